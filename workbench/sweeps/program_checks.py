"""Checks of a command before its run starts.

The program exists, and trials do not write over each other.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from workbench.experiment import Experiment
from workbench.experiment.command import arguments_of
from workbench.foundation.errors import ExperimentError

INTERPRETERS = ("python", "python3")
_OWN_NAMES = ("{folder}", "{trial}")


def check_program(experiment: Experiment) -> None:
    """Refuse a command whose program or script is not on this machine.

    Raises:
        ExperimentError: If it is not.
    """
    assert experiment.command is not None
    program, *others = arguments_of(experiment.command)
    if "{" in program:
        return
    if program in INTERPRETERS:  # the one that runs the workbench
        _check_script(others)
        return
    if shutil.which(program) is not None:
        return
    path = Path(program)
    if path.suffix == ".py":
        problem, step = f"there is no file {program}", "Start from the folder that holds it."
        if path.is_file():
            problem, step = f"{program} is not a program", f"Write python {program}."
        raise ExperimentError(problem, field="command", next_step=step)
    raise ExperimentError(
        f"there is no program {program!r}",
        field="command",
        next_step=(
            f"Make it executable: chmod +x {program}."
            if path.is_file()
            else "Install it, or write its path."
        ),
    )


def check_paths(experiment: Experiment) -> None:
    """Refuse a file of metrics into which several trials would write at once.

    Raises:
        ExperimentError: If they would.
    """
    source = experiment.metric_source
    if source.path is None or experiment.resources.concurrency == 1:
        return
    if not any(name in source.path for name in _OWN_NAMES):
        raise ExperimentError(
            f"trials that run at once would all write to {source.path}",
            field=f"metrics.{source.kind}",
            allowed="a path with {folder} or {trial}",
            next_step=(
                "Pass {folder} to the program and name the file there, or set resources.concurrency"
                " to 1."
            ),
        )


def _check_script(arguments: list[str]) -> None:
    """Refuse a script that is not there; what the options of the interpreter start is not known."""
    if not arguments or arguments[0].startswith("-") or "{" in arguments[0]:
        return
    if not Path(arguments[0]).exists():
        raise ExperimentError(
            f"there is no file {arguments[0]}",
            field="command",
            next_step="Start from the folder that holds it, or write its path.",
        )
