"""How the end of a program ends its trial, and how that is described."""

from __future__ import annotations

import re
import signal

from workbench.experiment import Experiment
from workbench.experiment.goals import describe_other_metric
from workbench.training.outcome import ALLOCATION_FAILURES, Outcome
from workbench.training.program_reports import ProgramReports
from workbench.training.programs.kept_output import KeptOutput
from workbench.training.programs.last_error import last_error, last_traceback
from workbench.training.programs.process import ProgramEnd
from workbench.training.task import TrialTask

NUM_LAST_LINES = 10
_MAX_LINE_CHARS = 200
_MEMORY = (*ALLOCATION_FAILURES, "OutOfMemoryError", "MemoryError", "std::bad_alloc")
_FROM_OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
"""Signals by which others end a program, whatever it printed before."""
_ENDS = re.compile(r"[\r\n]+")


def unstarted(program: str, error: str) -> Outcome:
    """Return the outcome of a program that could not be started."""
    return Outcome("failed", 0, reason="error", message=f"{program} could not be started: {error}")


def outcome_of(
    end: ProgramEnd,
    reports: ProgramReports,
    experiment: Experiment,
    task: TrialTask,
    output: KeptOutput,
    *,
    is_stopped: bool,
) -> Outcome:
    """Return how a trial ended.

    Args:
        end: How the program ended.
        reports: What it reported.
        experiment: The experiment.
        task: The trial.
        output: What the program printed.
        is_stopped: Whether it was requested to stop.
    """
    tail = output.tail()
    if reports.failed is not None:
        return reports.failed
    if is_stopped:
        return Outcome("stopped", reports.step, reports.values)
    if end.code != 0:
        printed = output.errors.decode(errors="replace")
        error = _error_of(end.code, printed if printed.strip() else tail)
        last = f": {error}" if error else ""
        is_memory = any(sign in tail[-4000:] for sign in _MEMORY)
        return Outcome(
            "failed",
            reports.step,
            reports.values,
            "oom" if is_memory else "error",
            f"the program {_describe_code(end.code)}{last}",
            traceback=last_traceback(printed) or last_traceback(tail),
        )
    missing = _missing(reports, experiment, task) if task.rank == 0 else None
    if missing is None and (unmeasured := reports.unmeasured) is not None:
        name, word = unmeasured
        return Outcome(
            "failed",
            reports.step,
            reports.values,
            "error",
            f"the last {name} that the program wrote is {word}, which is not a number; "
            "where nothing is measured, write nothing",
        )
    if missing is None:
        return Outcome("complete", reports.step, reports.values)
    last = "\n".join(_lines(tail)[-NUM_LAST_LINES:])
    other = describe_other_metric(experiment.objectives, missing, reports.names)
    wrote = f"it wrote: {', '.join(reports.names)}" + f"; {other}" * bool(other)
    seen = wrote if reports.names else _describe_silence(missing, last)
    if (word := reports.words.get(missing)) is not None:
        seen = f"it wrote {word} in its place, which is not a number" + f"; {wrote}" * bool(
            reports.names
        )
    printed = f"\nIts last lines:\n{last}" if last else ". It printed nothing."
    return Outcome(
        "failed",
        reports.step,
        reports.values,
        "error",
        f"the program ended without writing {missing!r}; {seen}{printed}",
        is_unreported=True,
    )


def _describe_silence(missing: str, last_lines: str) -> str:
    example = f"metrics: {{pattern: '{missing} (?P<{missing}>\\S+)'}}"
    hint = (
        f", or in a form that needs a pattern, such as {example}"
        if last_lines and missing.isidentifier()
        else ""
    )
    return f"it wrote no metric at all{hint}"


def _missing(reports: ProgramReports, experiment: Experiment, task: TrialTask) -> str | None:
    """Return the first name that the program should have written and has not.

    None where there is none.
    """
    known = {**task.reported, **reports.values}
    for objective in experiment.objectives:
        if objective.metric not in known:
            return objective.metric
    if experiment.step is not None and not reports.has_step and not task.reported:
        return experiment.step
    return None


def _describe_code(code: int | None) -> str:
    if code is None:
        return "was killed"
    if code >= 0:
        return f"ended with status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _lines(tail: str) -> list[str]:
    found = [line.strip() for line in _ENDS.split(tail)]
    return [line[:_MAX_LINE_CHARS] for line in found if line]


def _error_of(code: int | None, printed: str) -> str:
    """Return the error that a program printed.

    Of one that was killed from outside, its last line.
    """
    if code is None or -code in _FROM_OUTSIDE:
        return (_lines(printed) or [""])[-1]
    return last_error(printed)
