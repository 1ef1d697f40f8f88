"""Undo what a trial did to its process, or find out why the process must not serve another one.

What the user's modules did when they were imported is not undone: it lasts as long as they are
loaded, which is until another run, another folder or an edit. How each kind of change is undone is
left to `ProcessState`, `left_running` and `worker_memory`.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ray

from workbench.cluster.remote.code_origin import Origin, UserCode
from workbench.cluster.workers import state_parts
from workbench.cluster.workers.left_running import (
    end_child_processes,
    end_services,
    left_threads,
    thread_ids,
)
from workbench.cluster.workers.state_parts import ENVIRONMENT, UNKNOWN, Part
from workbench.cluster.workers.worker_memory import Baseline
from workbench.training.worker_task import TrialTask

_PARTS: tuple[Part, ...] = (*state_parts.PYTHON, *state_parts.TORCH, *state_parts.OTHERS)
_PASSES = 3
"""How often to write what differs: settings of torch change each other."""


@dataclass(frozen=True)
class Difference:
    """How a process differed from an earlier state.

    Attributes:
        changed: The names of the parts that had changed.
        lost: A sentence on each part that could not be restored.
    """

    changed: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)


class ProcessState:
    """The state of this process at one moment.

    Example:
        >>> import os
        >>> before = ProcessState()
        >>> os.environ["LEFT_BEHIND"] = "1"
        >>> before.restore().changed
        ['environment variables']
        >>> "LEFT_BEHIND" in os.environ
        False
    """

    def __init__(self) -> None:
        """Read the state as it is now."""
        self._values = {part.name: _read(part) for part in _PARTS if part.is_there}

    def changed_variables(self) -> set[str]:
        """Return the names of the environment variables that have another value now, or none."""
        before, now = self._values[ENVIRONMENT.name].items(), os.environ.items()
        return {name for name, _ in before ^ now}

    def restore(self) -> Difference:
        """Restore this state, and return what had changed.

        A part whose library was loaded meanwhile gets the value that it has after an import.
        """
        differing = self._differing()
        changed = [part.name for part, _ in differing]
        for _ in range(_PASSES if differing else 0):
            for part, before in differing:
                with contextlib.suppress(
                    Exception
                ):  # whatever a library raises: the worker is replaced
                    part.write(before)
            differing = self._differing()
            if not differing:
                break
        return Difference(changed, [f"{part.name} cannot be restored" for part, _ in differing])

    def _differing(self) -> list[tuple[Part, Any]]:
        return [(part, before) for part, before in self._pairs() if _read(part) != before]

    def _pairs(self) -> list[tuple[Part, Any]]:
        """Return the parts that can be compared, with their values in this state."""
        pairs = [
            (part, self._values.get(part.name, part.default)) for part in _PARTS if part.is_there
        ]
        return [(part, before) for part, before in pairs if before is not UNKNOWN]


def _read(part: Part) -> Any:
    try:
        return part.read()
    except Exception:  # torch refuses to return settings that contradict each other
        return UNKNOWN


logger = logging.getLogger(__name__)

_READ_AT_IMPORT = {
    "deepxde": "DDE",
    "dgl": "DGL",
    "jax": "JAX_",
    "keras": "KERAS_",
    "numba": "NUMBA_",
    "pot": "POT_",
    "tensorflow": "TF_",
    "tensorly": "TENSORLY_",
}
"""Libraries that read environment variables when they are imported, and the prefixes of these."""


def _stay_connected(*_: object, **__: object) -> None:
    """Take the place of `ray.shutdown` in a trial.

    Without Ray its process ends, and the trial is lost.
    """
    logger.warning(
        "ray.shutdown() has no effect in a trial, because its process belongs to Ray. To use Ray"
        " in a trial, attach to it with ray.init(ignore_reinit_error=True)"
    )


class TrialCleanup:
    """What a worker remembers of its process in order to undo the changes of trials."""

    def __init__(self) -> None:
        """Take the process as it is now, without user code, as what every run starts with."""
        self._user_code = UserCode()
        self._pristine = ProcessState()
        self._own_modules = frozenset(sys.modules)
        self._before: ProcessState | None = None
        self._memory = Baseline()
        self._threads = thread_ids()
        ray.shutdown = _stay_connected

    def begin(self, task: TrialTask, origin: Origin | None) -> None:
        """Bring the process to where its run was started, and import the user's modules.

        Args:
            task: The trial that is about to start.
            origin: Where the run was started, or None to stay where the process is.
        """
        if self._user_code.leave(origin, task.run_id) or self._before is None:
            self._before = None
            self._pristine.restore()
            self._user_code.enter(origin, task.run_id)
        if self._before is None:
            _import_modules_of(task)
            self._user_code.remember()
            self._before = ProcessState()
        self._threads = thread_ids()

    def end(self, task: TrialTask) -> str | None:
        """Undo what a trial changed.

        Args:
            task: The trial that has ended.

        Returns:
            Why the process must not be used again, in words that follow its name, or None if it can
            be.
        """
        checks = (
            self._end_processes,
            self._find_threads,
            self._restore,
            lambda: [self._memory.excess(task.run_id)],
        )
        problems = [problem for find in checks for problem in _guarded(find)]
        return "; ".join(filter(None, problems)) or None

    def _end_processes(self) -> list[str | None]:
        problems: list[str | None] = [f"could not end {problem}" for problem in end_services()]
        if names := end_child_processes():
            problems.append(
                f"had processes left, which were ended: {', '.join(sorted(set(names)))}"
            )
        return problems

    def _find_threads(self) -> list[str | None]:
        names = left_threads(self._threads)
        return [f"still ran threads of the trial: {', '.join(names)}"] if names else []

    def _restore(self) -> list[str | None]:
        before = self._before
        if before is None:  # the trial failed before it started
            return []
        changed = before.changed_variables()
        problems: list[str | None] = [
            f"set {name}, which {library} reads only when it is imported"
            for library, beginning in _READ_AT_IMPORT.items()
            if library in sys.modules and library not in self._own_modules
            for name in sorted(changed)
            if name.startswith(beginning)
        ]
        difference = before.restore()
        has_imported = self._user_code.remember()
        if has_imported and difference.changed:
            # Maybe the import changed them: the next trial must import these modules again.
            self._user_code.leave()
            self._before = None
        return [*problems, *(f"could not be restored: {lost}" for lost in difference.lost)]


def _guarded(find: Callable[[], list[str | None]]) -> list[str | None]:
    try:
        return find()
    except Exception as error:  # a trial may have replaced whatever this uses
        return [f"could not be compared with its state before: {type(error).__name__}: {error}"]


def _import_modules_of(task: TrialTask) -> None:
    experiment = task.experiment
    for component in (experiment.train, experiment.model, experiment.data):
        if component is None or not component.is_reference or component.payload_hash is not None:
            continue
        # The trial imports it again, and fails with the error.
        with contextlib.suppress(Exception, SystemExit):
            importlib.import_module(component.name.partition(":")[0])
