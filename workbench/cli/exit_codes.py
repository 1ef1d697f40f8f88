"""The exit codes of the command line: what they mean, and which errors and runs end with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.foundation.errors import (
    ArgumentError,
    DataError,
    ExperimentError,
    ResourcesError,
    RunNotFoundError,
    WorkbenchError,
)

if TYPE_CHECKING:
    from workbench.foundation.events import RunState
    from workbench.store.history import History

DONE = 0
FAILED = 1
BAD_INPUT = 2
UNSCHEDULABLE = 3
NOTHING_COMPLETE = 4
SOME_FAILED = 5
INTERRUPTED = 130

MEANINGS = {
    DONE: "done",
    FAILED: (
        "failed, or the check found a problem: doctor found something broken, drift found drift,"
        " alerts found a sink that does not work"
    ),
    BAD_INPUT: (
        "your input is wrong: the command line, the experiment, the data, or a run that does not"
        " exist"
    ),
    UNSCHEDULABLE: "the request needs more hardware than there is",
    NOTHING_COMPLETE: "the run ended, but no trial is complete",
    SOME_FAILED: "the run ended with complete trials, but some of its trials failed",
    INTERRUPTED: "interrupted",
}


def exit_code_of(error: WorkbenchError) -> int:
    """Return the exit code of an error."""
    if isinstance(error, ExperimentError | ArgumentError | DataError | RunNotFoundError):
        return BAD_INPUT
    if isinstance(error, ResourcesError):
        return UNSCHEDULABLE
    return FAILED


def exit_code_of_run(history: History, state: RunState) -> int:
    """Return the exit code of a run that has ended."""
    from workbench.store.history.failures import began_nothing

    if state == "lost" or (
        state == "failed" and history.reason != "failures" and not began_nothing(history)
    ):
        return FAILED
    if not history.in_state("complete"):
        return NOTHING_COMPLETE
    if history.in_state("failed"):
        return SOME_FAILED
    return DONE
