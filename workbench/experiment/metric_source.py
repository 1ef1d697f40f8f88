"""Where the metrics of a program are read.

Its output, a file that it writes, or what it logs elsewhere.

Reading them is left to the training.
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
    """Where the metrics of a program are read; a model or a function needs none of this.

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
            "auto: lines with name=value, name: value or JSON in everything that the program"
            " prints; stdout: the same without its standard error; wandb: what it logs with wandb,"
            " without an account."
        ),
    )
    jsonl: str | None = Field(
        default=None,
        min_length=1,
        description="A file with one JSON object per line, such as {folder}/log.jsonl.",
    )
    csv: str | None = Field(
        default=None, min_length=1, description="A file with a line of names, then lines of values."
    )
    tensorboard: str | None = Field(
        default=None,
        min_length=1,
        description="A folder with event files of TensorBoard, at any depth.",
    )
    pattern: tuple[str, ...] | None = Field(
        default=None,
        description=(
            "A regular expression for printed lines, whose named groups are metrics; or several."
        ),
    )

    @field_validator("pattern", mode="before")
    @classmethod
    def _accept_one(cls, given: Any) -> Any:
        return (given,) if isinstance(given, str) else given

    @model_validator(mode="after")
    def _check(self) -> Self:
        given = [name for name in _PLACES if getattr(self, name) is not None]
        if len(given) + (self.from_ != "auto") > 1:
            raise ExperimentError(
                "metrics are read from one place",
                field=given[-1],
                allowed=["from", *_PLACES],
                next_step="Name one of them.",
            )
        if self.path is not None:
            check_path(self.path, self.kind)
        for pattern in self.pattern or ():
            _check_pattern(pattern)
        if self.pattern == ():
            raise ExperimentError("there is no pattern", field="pattern", next_step="Write one.")
        return self

    @model_serializer(mode="wrap")
    def _write_what_differs(self, handler: Any) -> Any:
        written = {key: value for key, value in handler(self).items() if value is not None}
        source = written.pop("from_", written.pop("from", "auto"))
        if len(written.get("pattern", ())) == 1:
            written["pattern"] = written["pattern"][0]
        return written if source == "auto" else {"from": source}

    @property
    def kind(self) -> Kind:
        """What is read."""
        for name in _PLACES:
            if getattr(self, name) is not None:
                return name  # type: ignore[return-value]
        return self.from_

    @property
    def path(self) -> str | None:
        """The file or folder that is read, with its placeholders; None where there is none."""
        return self.jsonl or self.csv or self.tensorboard


def _check_pattern(pattern: str) -> None:
    try:
        groups = re.compile(pattern).groupindex
    except re.error as error:
        raise ExperimentError(
            f"{pattern!r} is not a regular expression: {error}", field="pattern"
        ) from error
    if not groups:
        raise ExperimentError(
            f"{pattern!r} names no metric",
            field="pattern",
            allowed=r"a regular expression with a named group, such as loss (?P<loss>\S+)",
        )
