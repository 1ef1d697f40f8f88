"""Explains in one short sentence why a pruner stops a trial, with the numbers that it compared.

`pruners` makes the decision. It must be explained directly afterwards, from the same study.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import optuna
from optuna.pruners import (
    BasePruner,
    HyperbandPruner,
    MedianPruner,
    PercentilePruner,
    SuccessiveHalvingPruner,
)
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from workbench.foundation.formatting import format_count, format_number, format_percent
from workbench.search.front import FrontPruner
from workbench.search.partial_results import CURVES
from workbench.search.pruners import CurvePruner, PatiencePruner

DescribeRung = Callable[[int], str]
"""Writes a rung, such as `epoch 5`."""


def explain(
    pruner: BasePruner,
    study: optuna.Study,
    trial: FrozenTrial,
    *,
    metric: str,
    at: DescribeRung,
) -> str:
    """Return why a pruner has just decided to stop a trial.

    Args:
        pruner: The pruner.
        study: The study, as it was when the pruner decided.
        trial: The trial, read after the decision.
        metric: The first objective.
        at: Writes a rung.
    """
    match pruner:
        case FrontPruner():
            rung = max(trial.user_attrs[CURVES])
            chance = _compare_chances(pruner.chance_of_gain(study, trial), pruner.chance)
            return f"at {at(rung)} the chance of extending the front was {chance}"
        case CurvePruner():
            if place := pruner.place(study, trial):
                worse = (
                    f"worse than {place.num_better} of"
                    f" {format_count(place.num_others, 'other trial')}"
                )
                return (
                    f"{_last(trial, metric, at)} is {worse} (too few trials are complete for"
                    " forecasts)"
                )
            chance = _compare_chances(pruner.chance_of_best(study, trial), pruner.chance)
            return f"with {_last(trial, metric, at)}, the chance of becoming the best is {chance}"
        case PatiencePruner():
            rung, value = pruner.best_report(study, trial)
            return f"{metric} has not improved since {at(rung)}, when it was {format_number(value)}"
        case SuccessiveHalvingPruner() | HyperbandPruner():
            return _explain_rank(pruner, study, trial, metric, at)
        case PercentilePruner():
            return _explain_percentile(pruner, study, trial, metric, at)
        case _:
            return f"{type(pruner).__name__} stopped it with {_last(trial, metric, at)}"


def _last(trial: FrozenTrial, metric: str, at: DescribeRung) -> str:
    rung, value = max(trial.intermediate_values.items())
    return f"{metric} {format_number(value)} at {at(rung)}"


def _compare_chances(chance: float, least: float) -> str:
    return f"{format_percent(chance)} (at least {format_percent(least)} is needed)"


def _explain_rank(
    pruner: SuccessiveHalvingPruner | HyperbandPruner,
    study: optuna.Study,
    trial: FrozenTrial,
    metric: str,
    at: DescribeRung,
) -> str:
    """Explain by the values at the trial's last rung, within its bracket if there are brackets."""
    # Optuna has no public way to read these values. It stores them in attributes of the trials.
    rungs = [name for name in trial.system_attrs if name.startswith("completed_rung_")]
    key = max(rungs, key=_number_in)
    others = [other for other in study.get_trials(deepcopy=False) if key in other.system_attrs]
    in_bracket = ""
    if isinstance(pruner, HyperbandPruner):
        bracket = pruner._get_bracket_id(study, trial)
        others = [other for other in others if pruner._get_bracket_id(study, other) == bracket]
        in_bracket = " of its bracket"
    is_maximized = study.direction == StudyDirection.MAXIMIZE
    values = sorted((other.system_attrs[key] for other in others), reverse=is_maximized)
    num_best = max(1, len(values) // pruner._reduction_factor)
    best, bound = "the best", format_number(values[num_best - 1])
    if num_best > 1:
        best = f"among the best {num_best}"
        bound += " or more" if is_maximized else " or less"
    return (
        f"{_last(trial, metric, at)} is not {best} of "
        f"{format_count(len(values), 'trial')}{in_bracket} there ({bound})"
    )


def _number_in(key: str) -> int:
    return int(key.rpartition("_")[2])


def _explain_percentile(
    pruner: PercentilePruner, study: optuna.Study, trial: FrozenTrial, metric: str, at: DescribeRung
) -> str:
    """Explain by the values of complete trials at the last rung.

    Optuna compares them with the best value of the trial so far, not with its last value.
    """
    rung = max(trial.intermediate_values)
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    values = [
        other.intermediate_values[rung] for other in complete if rung in other.intermediate_values
    ]
    is_maximized = study.direction == StudyDirection.MAXIMIZE
    share = pruner._percentile
    bound = float(np.nanpercentile(values, 100 - share if is_maximized else share))
    best = (max if is_maximized else min)(trial.intermediate_values.values())
    compared = f"the best {metric} until {at(rung)}, {format_number(best)},"
    if best == trial.intermediate_values[rung]:
        compared = _last(trial, metric, at)
    trials = f"{format_count(len(values), 'complete trial')} there"
    if isinstance(pruner, MedianPruner):
        side = "below" if is_maximized else "above"
        return f"{compared} is {side} the median {format_number(bound)} of {trials}"
    reach = f"{format_number(bound)} or {'more' if is_maximized else 'less'}"
    return f"{compared} is not among the best {format_percent(share / 100)} of {trials} ({reach})"
