"""Experiments of imported runs: another tool ran them, so there is nothing here to start.

Such an experiment has the tool in place of a train function, and the place of its files as option.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.foundation.errors import RunError

if TYPE_CHECKING:
    from workbench.experiment.experiment import Experiment

_PREFIX = "imported:"
TAG = "imported"
"""The tag of imported runs. Users may remove it."""


def imported_component(tool: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return what stands for the train function in the experiment of an imported run.

    Args:
        tool: The tool that ran it.
        options: What the import needs to know when it is repeated.
    """
    return {"name": f"{_PREFIX}{tool}", "options": options}


def importing_tool(experiment: Experiment) -> str | None:
    """Return the tool whose runs an experiment describes, or None if it is an ordinary one."""
    if experiment.train is None or not experiment.train.name.startswith(_PREFIX):
        return None
    return experiment.train.name.removeprefix(_PREFIX)


def refuse_imported(experiment: Experiment, action: str) -> None:
    """Raise an error if an experiment is that of an imported run.

    Args:
        experiment: The experiment.
        action: The participle of what is not possible, such as `resumed`.

    Raises:
        RunError: If it is.
    """
    if (tool := importing_tool(experiment)) is not None:
        raise RunError(
            f"a run that was imported from {tool} cannot be {action}, because its program is not"
            " known here",
            field="train",
            next_step="Start a run of your program, and let it learn from this one: --warm-start.",
        )
