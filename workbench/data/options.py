"""The options of named data sets: their common base type, and how options are checked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from typing_extensions import Self

from workbench.data.reading import Reading
from workbench.data.splits import Datasets
from workbench.experiment.metric_declarations import Task
from workbench.experiment.refusals import refusal
from workbench.foundation.errors import DataError, ExperimentError

if TYPE_CHECKING:
    from workbench.data.table_summary import TableSummary


def held_out_field() -> Any:
    """Return the field of the share of samples that is held out for one test at the end of each
    training.
    """
    return Field(
        0.0,
        ge=0.0,
        lt=1.0,
        description=(
            "Share that nothing is chosen by, on which each complete training is measured once at "
            "its end; 0 for none."
        ),
    )


class DatasetOptions(BaseModel, ABC):
    """Options of a named data set, which also load it."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    reads_urls: ClassVar[bool] = False
    """Whether `path` may be a URL."""

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
            cache: Folder of the cache; the default one if None.

        Raises:
            DataError: If the source is missing or cannot be read or understood.
        """

    def find_task(self) -> Task | None:
        """Return the task without loading the data set; None if that is not possible."""
        return None

    def check_source(self) -> None:
        """Refuse a source that cannot be loaded, as far as its beginning shows.

        Raises:
            DataError: If it is missing, cannot be understood, or lacks what the options name.
        """

    def reading(self, *, seed: int) -> Reading | None:
        """Return how samples become inputs of a model; None where they are used as they are.

        Args:
            seed: Seed of the division into train and validation.

        Raises:
            DataError: If the source is missing or cannot be read or understood.
        """
        return None

    def notes(self) -> tuple[str, ...]:
        """Return what users should know about how the source is read, which may take reading it.

        Raises:
            DataError: If the source is missing or cannot be read or understood.
        """
        table = self.summary()
        return () if table is None else table.notes

    def summary(self) -> TableSummary | None:
        """Return what a table consists of, which takes reading it.

        None if the data set is not a table.

        Raises:
            DataError: If the source is missing or cannot be read or understood.
        """
        return None

    def written_rows(self, num_rows: int) -> tuple[list[str], list[list[str]]] | None:
        """Return the first rows as written if the data set is a table.

        Args:
            num_rows: Maximum number of rows.

        Returns:
            Names of the columns and the cells of each row, the target last; None if it is not a
            table.
        """
        return None


def existing_path(path: Path, *, field: str = "data.path") -> Path:
    """Return `path` with ~ expanded if it exists.

    Args:
        path: A file or a folder.
        field: The dotted field that contains the path.

    Raises:
        DataError: If it does not exist.
    """
    expanded = path.expanduser()
    if not expanded.exists():
        raise DataError(
            f"the path {path} does not exist",
            field=field,
            next_step=(
                f"Relative paths start in {Path.cwd()}; write an absolute one if it lies elsewhere."
            ),
        )
    return expanded
