"""Translates the errors of pydantic about an experiment into ours."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ValidationError

from workbench.experiment.alert_rules import KINDS
from workbench.experiment.aliases import ALIASES, as_written
from workbench.experiment.domain import Choice, Fixed, Float, Int, Versions
from workbench.foundation import validation_errors
from workbench.foundation.errors import ExperimentError
from workbench.foundation.validation_errors import Dialect

_OBJECTIVE = "{metric: val_accuracy, goal: maximize}"
_OBJECTIVES = f"objectives: [{_OBJECTIVE}]"
_ELSEWHERE = {
    **dict.fromkeys(
        ("n_trials", "num_trials", "num_samples", "max_trials", "max_evals"),
        "budget: {trials: ...}",
    ),
    **dict.fromkeys(("timeout", "time_budget_s"), "budget: {time: ...}"),
    **dict.fromkeys(
        ("direction", "directions", "goal", "metric", "mode", "objective"), _OBJECTIVES
    ),
    **dict.fromkeys(
        ("parameters", "params", "search_space", "space"),
        "search: {lr: {low: 0.0001, high: 0.1, log: true}}",
    ),
}
_RENAMED = {
    **dict.fromkeys(("direction", "mode", "optimize"), "goal"),
    **dict.fromkeys(("key", "name"), "metric"),
    "max": "maximize",
    "min": "minimize",
}
DIALECT = Dialect(
    kinds={"alerts": KINDS},
    other_names=ALIASES,
    tagged={
        "float": Float,
        "int": Int,
        "choice": Choice,
        "code-versions": Versions,
        "fixed": Fixed,
    },
    elsewhere=_ELSEWHERE,
    examples={
        "objectives": f"a list, such as [{_OBJECTIVE}]",
        "objectives.": f"a mapping, such as {_OBJECTIVE}",
    },
    renamed={"objectives": _RENAMED},
)


def refusal(error: ValidationError, at: str | None = None) -> ExperimentError:
    """Return the first problem, as the function of this name in `foundation` does."""
    return validation_errors.refusal(error, at, DIALECT)


def refusal_of_all(
    error: ValidationError, root: type[BaseModel], written: Mapping[str, str]
) -> ExperimentError:
    """Return all problems as one error.

    Args:
        error: The error of pydantic.
        root: The type that was checked.
        written: The keys as the user wrote them, from `written_names`.
    """
    return validation_errors.refusal_of_all(
        error, root, DIALECT, lambda problem: as_written(problem, written)
    )


def findings(error: ValidationError, root: type[BaseModel] | None = None) -> list[ExperimentError]:
    """Return each problem. Arguments as in `workbench.foundation.validation_errors.findings`."""
    return validation_errors.findings(error, root, DIALECT)
