"""The place from which a program's metrics are read: its output, a file, or another tool's log.

The training reads them.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import ConfigDict, Field, field_validator, model_serializer, model_validator
from typing_extensions import Self

from workbench.experiment.command import check_path
from workbench.experiment.setting_types import Section
from workbench.foundation.errors import ExperimentError

Kind = Literal["auto", "stdout", "wandb", "jsonl", "csv", "tensorboard", "pattern"]
_PLACES = ("jsonl", "csv", "tensorboard", "pattern")


class MetricSource(Section):
    """Where to read the metrics of a program. A model or a function does not need this.

    Example:
        >>> from workbench.experiment.metric_source import MetricSource
        >>> MetricSource(jsonl="{folder}/log.jsonl").kind
        'jsonl'
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    from_: Literal["auto", "stdout", "wandb"] = Field(
        default="auto",
        alias="from",
        description=(
            "auto reads name=value, name: value or JSON in everything that the program prints. "
            "stdout ignores its standard error. wandb reads what it logs with wandb, without an "
            "account."
        ),
    )
    jsonl: str | None = Field(
        default=None,
        min_length=1,
        description="A file with one JSON object per line, such as {folder}/log.jsonl.",
    )
    csv: str | None = Field(
        default=None, min_length=1, description="A CSV file with names in the first line."
    )
    tensorboard: str | None = Field(
        default=None,
        min_length=1,
        description="A folder with TensorBoard event files, at any depth.",
    )
    pattern: tuple[str, ...] | None = Field(
        default=None,
        description=(
            "A regular expression for printed lines, or several. Its named groups are the metrics."
        ),
    )

    @field_validator("pattern", mode="before")
    @classmethod
    def _accept_one(cls, given: Any) -> Any:
        if isinstance(given, str):
            return (given,)
        return given

    @model_validator(mode="after")
    def _check(self) -> Self:
        places = [name for name in _PLACES if getattr(self, name) is not None]
        if len(places) + (self.from_ != "auto") > 1:
            raise ExperimentError(
                "metrics can only be read from one place",
                field=places[-1],
                allowed=["from", *_PLACES],
                next_step="Keep one of them.",
            )
        if self.path is not None:
            check_path(self.path, self.kind)
        for pattern in self.pattern or ():
            _check_pattern(pattern)
        if self.pattern == ():
            raise ExperimentError(
                "the list of patterns is empty", field="pattern", next_step="Add one, or remove it."
            )
        return self

    @model_serializer(mode="wrap")
    def _write_what_differs(self, handler: Any) -> Any:
        written = {key: value for key, value in handler(self).items() if value is not None}
        source = written.pop("from_", written.pop("from", "auto"))
        if len(written.get("pattern", ())) == 1:
            written["pattern"] = written["pattern"][0]
        if source == "auto":
            return written
        return {"from": source}

    @property
    def kind(self) -> Kind:
        """The kind of place: the field that is given, or else the value of `from`."""
        for name in _PLACES:
            if getattr(self, name) is not None:
                return name  # type: ignore[return-value]
        return self.from_

    @property
    def path(self) -> str | None:
        """The file or folder to read, with its placeholders. None if there is none."""
        return self.jsonl or self.csv or self.tensorboard


def _check_pattern(pattern: str) -> None:
    try:
        groups = re.compile(pattern).groupindex
    except re.error as error:
        raise ExperimentError(
            f"{pattern!r} is not a regular expression: {error}",
            field="pattern",
            next_step="Escape special characters with a backslash.",
        ) from error
    if not groups:
        raise ExperimentError(
            f"{pattern!r} has no named group, so it finds no metric",
            field="pattern",
            allowed=r"a regular expression with a named group, such as loss (?P<loss>\S+)",
        )
