"""Every error that the workbench raises on purpose, in one tree.

    WorkbenchError
    |-- ExperimentError (ValueError)         the experiment, or something a person wrote, is wrong
    |   `-- UnknownNameError                 a name that no registry knows
    |-- ResourcesError                       the hardware there is can never satisfy the request
    |-- DataError                            data cannot be found, read or understood
    |-- StoreError                           the store cannot be opened, read or written
    |   |-- RunNotFoundError
    |   |-- StoreUnavailableError            full disk, lock or lost connection: may pass
    |   `-- LeaseError                       another driver owns the run, or ours was taken over
    |-- ArtifactsError                       files of a run cannot be written or read: full, read-only, gone
    |-- RunError                             a run could not be started, reached or continued
    `-- MissingDependencyError (ImportError) an optional package is not installed

A message says what is wrong, where (the dotted field), what is allowed, and the next step.
Foreign errors are translated once, by the room that owns the foreign library.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self


class WorkbenchError(Exception):
    """Base of the tree: catch it to catch everything that the workbench raises on purpose."""

    def __init__(
        self,
        problem: str,
        *,
        field: str | None = None,
        allowed: str | Iterable[str] | None = None,
        next_step: str | None = None,
    ) -> None:
        """Compose one message from its parts.

        Args:
            problem: What is wrong, as one clause without a full stop.
            field: The dotted path of the offending field, such as `search.lr.low`.
            allowed: What would have been right: a sentence, or the known names.
            next_step: What the person can do now.
        """
        self.problem = problem
        self.field = field
        self.allowed = allowed if allowed is None or isinstance(allowed, str) else ", ".join(allowed)
        self.next_step = next_step
        super().__init__(str(self))

    def __str__(self) -> str:
        message = f"{self.field}: {self.problem}" if self.field else self.problem
        if self.allowed:
            message += f"; allowed: {self.allowed}"
        if self.next_step:
            message += f". {self.next_step}"
        return message

    def to_json(self) -> dict[str, str | None]:
        """Return its parts as plain values."""
        return {
            "field": self.field, "problem": self.problem, "allowed": self.allowed, "next_step": self.next_step
        }  # fmt: skip

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders; the default would call __init__ with the whole message.
        return _rebuild, (type(self), self.problem, self.field, self.allowed, self.next_step)

    def at(self, prefix: str) -> WorkbenchError:
        """Return the same error with `prefix` put before its field.

        Args:
            prefix: The dotted path of the part that contained the error.

        Returns:
            A new error of the same class.
        """
        return self.about(f"{prefix}.{self.field}" if self.field else prefix)

    def about(self, field: str | None) -> Self:
        """Return the same error about another field.

        Args:
            field: The dotted path of that field.
        """
        return type(self)(self.problem, field=field, allowed=self.allowed, next_step=self.next_step)


def _rebuild(
    kind: type[WorkbenchError],
    problem: str,
    field: str | None,
    allowed: str | None,
    next_step: str | None,
) -> WorkbenchError:
    return kind(problem, field=field, allowed=allowed, next_step=next_step)


class ExperimentError(WorkbenchError, ValueError):
    """The experiment, or another thing that a person wrote, is wrong."""


class UnknownNameError(ExperimentError):
    """A name that no registry knows."""


class ResourcesError(WorkbenchError):
    """The hardware there is can never satisfy the request."""


class DataError(WorkbenchError):
    """Data cannot be found, read or understood."""


class StoreError(WorkbenchError):
    """The store cannot be opened, read or written."""


class RunNotFoundError(StoreError):
    """The store holds no run of that name."""


class StoreUnavailableError(StoreError):
    """The store cannot be used just now: disk full, locked, or connection lost."""


class LeaseError(StoreError):
    """Another driver owns the run, or has taken it over."""


class ArtifactsError(WorkbenchError):
    """Files of a run cannot be written or read where they are kept; may pass."""


class RunError(WorkbenchError):
    """A run could not be started, reached or continued."""


class MissingDependencyError(WorkbenchError, ImportError):
    """An optional package is not installed; the message names the command that installs it."""
