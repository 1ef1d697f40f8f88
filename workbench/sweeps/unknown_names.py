"""The error for a name that does not exist, with a suggestion of the closest one."""

from __future__ import annotations

from workbench.foundation.errors import ExperimentError
from workbench.foundation.refusals import closest


def unknown(field: str, problem: str, known: list[str]) -> ExperimentError:
    """Return the error for an unknown name.

    Args:
        field: The dotted field. Its last part is the unknown name, unless the problem quotes it.
        problem: What is wrong.
        known: The names that exist.
    """
    name = field.rpartition(".")[2]
    if "'" in problem:
        name = problem.split("'")[-2]
    allowed, meant = closest(name, known)
    return ExperimentError(problem, field=field, allowed=allowed, next_step=meant)
