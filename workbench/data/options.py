"""The options of named data sets: their common base type, and how options are checked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator
from typing_extensions import Self

from workbench.data.reading import Reading
from workbench.data.splits import Datasets
from workbench.experiment.metric_declarations import Task
from workbench.experiment.validation_errors import refusal
from workbench.foundation.errors import DataError, ExperimentError
from workbench.foundation.validation_errors import closest

if TYPE_CHECKING:
    from workbench.data.table_summary import TableSummary


def held_out_field() -> Any:
    """Return the field of the share of samples that is held out for one test of each training."""
    return Field(
        0.0,
        ge=0.0,
        lt=1.0,
        description=(
            "Share that no decision uses. Each complete training is measured on it once, at its"
            " end. 0 for none."
        ),
    )


def normalisation_field() -> Any:
    """Return the field of how inputs are shifted and scaled, as `splits.moments` does it."""
    return Field(
        "standard",
        description=(
            "Scale the inputs by statistics of train: standard (mean 0, deviation 1), robust (by"
            " quartiles, so that outliers count less), range (-1 to 1), or none."
        ),
    )


class DatasetOptions(BaseModel, ABC):
    """Options of a named data set, which also load it."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    reads_urls: ClassVar[bool] = False
    """Whether `path` may be a URL."""
    searchable: ClassVar[Mapping[str, Mapping[str, JsonValue]]] = {}
    """The options that may differ between trials, each with options that are then set.

    With these, all trials are scored on the same samples and in the same unit.
    """

    @model_validator(mode="after")
    def _check_fractions(self) -> Self:
        fractions = [getattr(self, name, 0.0) for name in ("validation_fraction", "test_fraction")]
        if sum(fractions) >= 1.0:
            raise ExperimentError(
                "nothing is left for train",
                field="test_fraction",
                allowed="less than 1 together with validation_fraction",
            )
        return self

    @classmethod
    def parse(cls, options: Mapping[str, Any], *, name: str) -> Self:
        """Check the options that a user wrote under `data`.

        Args:
            options: Values by option.
            name: Name of the data set, for messages.

        Raises:
            ExperimentError: If an option is unknown, missing, or has a value that is not allowed.
        """
        for key in options:
            if key not in cls.model_fields:
                allowed = list(cls.model_fields) or "no options"
                raise ExperimentError(
                    f"{name} has no such option", field=f"data.{key}", allowed=allowed
                )
        try:
            return cls.model_validate(dict(options))
        except ValidationError as error:
            raise refusal(error, at="data") from error

    @abstractmethod
    def load(self, *, seed: int, cache: Path | None) -> Datasets:
        """Load and split the data set.

        Args:
            seed: Seed of the division into train and validation.
            cache: Folder of the cache. None means the default folder.

        Raises:
            DataError: If the source is missing or cannot be read or understood.
        """

    def find_task(self) -> Task | None:
        """Return the task without loading the data set, or None if that is not possible."""
        return None

    def check_source(self) -> None:
        """Reject a source that cannot be loaded, as far as its first bytes show.

        Raises:
            DataError: If it is missing, cannot be understood, or does not fit the options.
        """

    def reading(self, *, seed: int) -> Reading | None:
        """Return how samples become inputs of a model, or None if they are used as they are.

        Args:
            seed: Seed of the division into train and validation.

        Raises:
            DataError: If the source is missing or cannot be read or understood.
        """
        return None

    def samples(self) -> tuple[str, ...]:
        """Return a few samples in words, as the model sees them. None by default.

        They are shown to those who ask, and not stored.
        """
        return ()

    def notes(self) -> tuple[str, ...]:
        """Return what users should know about how the source is read. This may read all of it.

        Raises:
            DataError: If the source is missing or cannot be read or understood.
        """
        table = self.summary()
        if table is None:
            return ()
        return table.notes

    def summary(self) -> TableSummary | None:
        """Return what a table consists of after reading it, or None for other data sets.

        Raises:
            DataError: If the source is missing or cannot be read or understood.
        """
        return None

    def written_rows(self, num_rows: int) -> tuple[list[str], list[list[str]]] | None:
        """Return the first rows as written if the data set is a table.

        Args:
            num_rows: Maximum number of rows.

        Returns:
            Names of the columns and the cells of each row, the target last, or None if it is not a
            table.
        """
        return None


def existing_path(
    path: Path, *, field: str = "data.path", other_names: Collection[str] = ()
) -> Path:
    """Return `path` with ~ expanded if it exists.

    Args:
        path: A file or a folder.
        field: The dotted field that contains the path.
        other_names: What may be written there instead of a path, such as names of data sets.

    Raises:
        DataError: If it does not exist.
    """
    expanded = path.expanduser()
    if not expanded.exists():
        allowed, meant = None, None
        if other_names:
            names, meant = closest(str(path), sorted(other_names))
            allowed = f"a path, or a bundled data set: {names}"
        place = f"Relative paths start in {Path.cwd()}. Write an absolute path if it is elsewhere."
        raise DataError(
            f"the path {path} does not exist",
            field=field,
            allowed=allowed,
            next_step=meant or place,
        )
    return expanded
