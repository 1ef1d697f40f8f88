"""Every error that the workbench raises on purpose, in one tree.

    WorkbenchError
    |-- ExperimentError (ValueError)         the experiment or another file of the user is wrong
    |   `-- UnknownNameError                 no registry knows the name
    |-- ArgumentError (ValueError)           an argument of a command, function or request is wrong
    |-- ResourcesError                       the available hardware can never satisfy the request
    |-- DataError                            data cannot be found, read or understood
    |-- StoreError                           the store cannot be opened, read or written
    |   |-- RunNotFoundError                 the store has no such run
    |   |-- StoreUnavailableError            full disk, lock or lost connection: may pass
    |   `-- LeaseError                       another driver owns the run, or took it over
    |-- ArtifactsError                       files of a run cannot be written or read
    |-- RunError                             a run cannot be started, reached or continued
    `-- MissingDependencyError (ImportError) an optional package is not installed

A message says what is wrong, where (the dotted field), what is allowed, and the next step. A next
step that is a command is kept as its verb and arguments, so it can be written for a shell, for
Python or for the panel. The package that owns another library translates its errors, once.
"""

from __future__ import annotations

import importlib.metadata
import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ConfigDict
from typing_extensions import Self

from workbench.version import DISTRIBUTION

PROBLEMS_VARIABLE = "WORKBENCH_PROBLEMS_AS_JSON"
"""Set for a command that another process of ours reads.

An error is printed as one line of JSON, and so is a new run as soon as it is stored.
"""


@dataclass(frozen=True)
class Suggestion:
    """A command that is the recommended next step.

    `workbench.experiment.actions.suggest` makes one.
    """

    lead: str
    """The purpose of the step, as the start of a sentence. It may be empty."""
    verb: str
    """The kind of an action, or another command of the command line."""
    subject: str | None = None
    """The run, or the file."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    """The command as words, without the name of the program."""
    python: str | None = None
    """The Python that does the same, or None if there is none."""
    label: str | None = None
    """The name of its button in the panel, or None if there is none."""

    def write(self, form: str) -> str:
        """Return the step as text, the command written as `form`."""
        if not self.lead:
            return form
        return f"{self.lead}: {form}"

    def __str__(self) -> str:
        return self.write(self.python or shlex.join(["workbench", *self.words]))


class Problem(BaseModel):
    """What is wrong, where, what is allowed, and what to do."""

    model_config = ConfigDict(frozen=True)

    problem: str
    field: str | None = None
    allowed: str | None = None
    next_step: str | None = None


def quote_name(name: str) -> str:
    """Return a name for a list with commas, in quotes if it has a comma itself."""
    return repr(name) if "," in name else name


class WorkbenchError(Exception):
    """Base of the tree: catch it to catch everything that the workbench raises on purpose.

    Example:
        >>> try:
        ...     experiment.replace(budget={"trials": 0})
        ... except wb.WorkbenchError as error:
        ...     print(error.field)
        budget.trials
    """

    def __init__(
        self,
        problem: str,
        *,
        field: str | None = None,
        allowed: str | Iterable[str] | None = None,
        next_step: str | Suggestion | None = None,
    ) -> None:
        """Compose one message from its parts.

        Args:
            problem: What is wrong, as one clause without a full stop.
            field: The dotted path of the offending field, such as `search.lr.low`.
            allowed: What is allowed instead: a phrase, or the known names.
            next_step: What the user can do now: a sentence, or a command.
        """
        self.problem = problem
        self.field = field
        if allowed is not None and not isinstance(allowed, str):
            allowed = ", ".join(map(quote_name, allowed))
        self.allowed = allowed
        self.next_step = next_step
        super().__init__(str(self))

    def __str__(self) -> str:
        return self.describe()

    def describe(self, write: Callable[[Suggestion], str] = str) -> str:
        """Return the whole message.

        Args:
            write: Writes a next step that is a command. By default as Python.
        """
        message = self.problem
        if self.field:
            message = f"{self.field}: {message}"
        if self.allowed:
            message += f"; allowed: {self.allowed}"
        if self.next_step:
            if message.endswith(".") and not message.endswith(".."):  # as in errors of libraries
                message = message[:-1]
            message += f". {self._step(write)}"
        return message

    def to_problem(self, write: Callable[[Suggestion], str] = str) -> Problem:
        """Return its parts for a page. See `describe` for `write`."""
        return Problem(
            problem=self.problem,
            field=self.field,
            allowed=self.allowed,
            next_step=self._step(write),
        )

    def to_json(self, write: Callable[[Suggestion], str] = str) -> dict[str, str | None]:
        """Return its parts as plain values. See `describe` for `write`."""
        return self.to_problem(write).model_dump()

    def _step(self, write: Callable[[Suggestion], str]) -> str | None:
        if isinstance(self.next_step, Suggestion):
            return write(self.next_step)
        return self.next_step

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders. The default would call __init__ with the whole message.
        return _rebuild, (type(self), self.problem, self.field, self.allowed, self.next_step)

    def at(self, prefix: str) -> WorkbenchError:
        """Return the same error with `prefix` before its field.

        Args:
            prefix: The dotted path of the part that contained the error.

        Returns:
            A new error of the same class.
        """
        if not self.field:
            return self.about(prefix)
        return self.about(f"{prefix}.{self.field}")

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
    next_step: str | Suggestion | None,
) -> WorkbenchError:
    return kind(problem, field=field, allowed=allowed, next_step=next_step)


class ExperimentError(WorkbenchError, ValueError):
    """The experiment, or another file or setting that the user wrote, is wrong."""


class UnknownNameError(ExperimentError):
    """No registry knows the name."""


class ArgumentError(WorkbenchError, ValueError):
    """An argument of a command, of a function or of an HTTP request is wrong."""


class ResourcesError(WorkbenchError):
    """The available hardware can never satisfy the request."""


class DataError(WorkbenchError):
    """Data cannot be found, read or understood."""


class StoreError(WorkbenchError):
    """The store cannot be opened, read or written."""


class RunNotFoundError(StoreError):
    """The store has no such run."""


class StoreUnavailableError(StoreError):
    """The store cannot be used at the moment: disk full, locked, or connection lost."""


class LeaseError(StoreError):
    """Another driver owns the run, or has taken it over."""


class ArtifactsError(WorkbenchError):
    """Files of a run cannot be written or read at the moment."""


class RunError(WorkbenchError):
    """A run cannot be started, reached or continued."""


class MissingDependencyError(WorkbenchError, ImportError):
    """An optional package is not installed. The message shows the command that installs it."""


_PARTS = {
    "train": (
        "cmaes",
        "pandas",
        "PIL",
        "pyarrow",
        "pynvml",
        "ray",
        "safetensors",
        "scipy",
        "sklearn",
        "threadpoolctl",
        "torch",
    ),
    "deploy": ("cryptography", "onnx", "onnxruntime", "onnxscript", "starlette", "uvicorn"),
    "agents": ("mcp",),
    "lab": ("anywidget", "ipywidgets", "IPython", "jupyter_server", "jupyterlab", "tornado"),
}


def first_line_of(error: BaseException) -> str:
    r"""Return the first line of another library's error, or its type if it has no text.

    Example:
        >>> first_line_of(ValueError("too long\n  at line 3"))
        'too long'
        >>> first_line_of(MemoryError())
        'MemoryError'
    """
    lines = str(error).strip().splitlines()
    if not lines:
        return type(error).__name__
    return lines[0].rstrip(" .")


def missing_part(error: ModuleNotFoundError) -> MissingDependencyError | None:
    """Return the error for a missing library that a part of the workbench needs.

    Args:
        error: The error of Python.

    Returns:
        The error, or None if no part of the workbench needs the library.
    """
    library = (error.name or "").partition(".")[0]
    part = next((name for name, libraries in _PARTS.items() if library in libraries), None)
    if part is None:
        return None
    return MissingDependencyError(
        f"this needs {library}, which is not installed",
        next_step=f"Install it: {install_command(part)}",
    )


def install_command(part: str) -> str:
    """Return the command that adds a part to this installation, from where it was installed.

    An installation from a folder or a URL gets the part from the same place, so that both have the
    same version.

    Args:
        part: The extra of the package, such as deploy.
    """
    try:
        text = importlib.metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:  # imported from its folder
        return _pip_install(f"{Path(__file__).parents[2]}[{part}]", is_editable=True)
    if text is None:
        return _pip_install(f"{DISTRIBUTION}[{part}]")
    origin = json.loads(text)
    url = urlsplit(origin["url"])
    if "vcs_info" in origin:
        vcs = origin["vcs_info"]
        source = f"{vcs['vcs']}+{origin['url']}@{vcs['commit_id']}"
        return _pip_install(f"{DISTRIBUTION}[{part}] @ {source}")
    if url.scheme != "file":
        return _pip_install(f"{DISTRIBUTION}[{part}] @ {origin['url']}")
    is_editable = origin.get("dir_info", {}).get("editable", False)
    return _pip_install(f"{unquote(url.path)}[{part}]", is_editable=is_editable)


def _pip_install(requirement: str, *, is_editable: bool = False) -> str:
    words = ["pip", "install"]
    if is_editable:
        words.append("--editable")
    return shlex.join([*words, requirement])
