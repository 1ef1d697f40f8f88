"""Which configurations fail at their first step, beside those that do not, as one error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from workbench.experiment.space import Params
from workbench.foundation.errors import ExperimentError
from workbench.foundation.formatting import format_params


class FirstStepFailure(NamedTuple):
    """A configuration whose first step fails."""

    which: str
    params: Params
    error: ExperimentError


def describe_failures(
    failed: Sequence[FirstStepFailure], made: Mapping[str, Params]
) -> ExperimentError:
    """Return the first of the errors, with the configurations that fail and those that do not.

    Args:
        failed: The configurations that fail, one or more.
        made: Those whose first step was made, by their description.
    """
    error, has_params = failed[0].error, bool(failed[0].params)
    if not has_params:
        return error if error.next_step else _with_step(error, "Correct it, then check again.")
    step = f"It fails with {_describe({each.which: each.params for each in failed})}"
    step += f", and succeeds with {_describe(made)}." if made else "."
    if error.next_step:
        step = f"{error.next_step} {step}"
    elif made:
        step += " Correct it, or leave what fails out of the search space."
    return _with_step(error, step)


def _with_step(error: ExperimentError, next_step: str) -> ExperimentError:
    return type(error)(error.problem, field=error.field, allowed=error.allowed, next_step=next_step)


def _describe(configurations: Mapping[str, Params]) -> str:
    return "; ".join(
        f"{which}: {format_params(params)}" for which, params in configurations.items()
    )
