"""The common part of all sinks: typed options with secrets, and one method that sends an alert.

A new sink is a subclass in its own file and a line in `SINKS`, or an entry point of the group
`workbench.sinks` in another package. It declares its options as fields and overrides `send`.
Settings are checked against these fields, and failures are reported without secrets. `delivery`
decides when to retry.
"""

from __future__ import annotations

import os
import ssl
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, InstanceOf, model_validator
from typing_extensions import Self

from workbench.foundation.errors import ExperimentError, WorkbenchError
from workbench.foundation.registry import Registry

SINKS = Registry(
    "sink",
    {
        "webhook": "workbench.store.alerts.webhook:Webhook",
        "email": "workbench.store.alerts.mail:Email",
        "command": "workbench.store.alerts.command:Command",
    },
    group="workbench.sinks",
    needs=("model_validate", "send"),
)

Alert = Mapping[str, Any]


class SinkError(WorkbenchError):
    """An alert could not be sent."""

    def __init__(self, problem: str, *, may_pass: bool) -> None:
        """Describe the problem.

        Args:
            problem: What went wrong. It is stored, so it must not contain secrets.
            may_pass: Whether another attempt may succeed.
        """
        super().__init__(problem)
        self.may_pass = may_pass


class Secret(BaseModel):
    """The place of a secret, instead of the secret itself."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    env: str | None = Field(default=None, description="The environment variable that contains it.")
    file: str | None = Field(
        default=None, description="The file that contains it and nothing else."
    )

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.env is None) == (self.file is None):
            raise ExperimentError("needs exactly one place", allowed="env or file")
        return self

    def read(self) -> str:
        """Return the secret.

        Raises:
            ExperimentError: If the variable is not set or the file cannot be read.
        """
        if self.env is not None:
            if not (secret := os.environ.get(self.env, "")):
                raise ExperimentError(f"the environment variable {self.env} is not set")
            return secret
        assert self.file is not None
        try:
            return Path(self.file).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ExperimentError(f"{self.file} cannot be read") from error


class Sink(BaseModel, ABC):
    """Options of a sink, checked when the settings are read."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    timeout_s: ClassVar[float] = 10.0
    """Seconds that sending one alert may take."""

    kind: str = Field(description="Its name in the registry.")

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """The secrets among the options, including those inside lists and mappings."""
        return tuple(_secrets_in(getattr(self, name) for name in type(self).model_fields))

    @abstractmethod
    def send(self, alert: Alert) -> None:
        """Send one alert.

        Args:
            alert: Plain values. `text` is the alert in one line.

        Raises:
            SinkError: If it cannot be sent and the reason is known. Other exceptions are reported
                by type.
        """

    def describe(self, error: Exception) -> str:
        """Describe a failure without repeating the message, which may be secret."""
        reason = error.strerror if isinstance(error, OSError) else None
        if reason:
            return f"{type(error).__name__}: {reason}"
        return type(error).__name__

    def may_pass(self, error: Exception) -> bool:
        """Return whether another attempt may succeed after this failure."""
        return isinstance(error, OSError) and not isinstance(
            error, FileNotFoundError | PermissionError | ssl.SSLCertVerificationError
        )


def send(sink: Sink, alert: Alert) -> None:
    """Send an alert to a sink.

    Args:
        sink: The sink.
        alert: Plain values. `text` is the alert in one line.

    Raises:
        SinkError: If it cannot be sent.
    """
    try:
        sink.send(alert)
    except SinkError:
        raise
    except ExperimentError as error:
        raise SinkError(str(error), may_pass=False) from None
    except Exception as error:
        raise SinkError(sink.describe(error), may_pass=sink.may_pass(error)) from None


def reveal(value: str | Secret) -> str:
    """Return a value, read from its place if it is a secret."""
    if isinstance(value, Secret):
        return value.read()
    return value


def _of_its_kind(given: Any) -> Any:
    if not isinstance(given, Mapping):
        return given
    kind = given.get("kind")
    if not isinstance(kind, str) or kind not in SINKS:
        raise ExperimentError("unknown or missing", field="kind", allowed=sorted(SINKS.names()))
    return SINKS.load(kind, field="kind").model_validate(given)


def _secrets_in(values: Iterable[Any]) -> Iterator[Secret]:
    for value in values:
        if isinstance(value, Secret):
            yield value
        elif isinstance(value, Mapping):
            yield from _secrets_in(value.values())
        elif isinstance(value, list | tuple):
            yield from _secrets_in(value)


AnySink = Annotated[InstanceOf[Sink], BeforeValidator(_of_its_kind)]
"""A sink of any registered kind, as a field of settings."""
