"""Creates the pruner of an experiment from `early_stop`. `experiment` defines its options.

It also says in one short sentence why a pruner stops a trial, with the numbers that it compared.
A decision must be explained directly afterwards, from the same study.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import optuna
from optuna.pruners import (
    BasePruner,
    HyperbandPruner,
    MedianPruner,
    NopPruner,
    PercentilePruner,
    SuccessiveHalvingPruner,
    WilcoxonPruner,
)
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from workbench.experiment import Experiment
from workbench.experiment.command import reads_earlier_files
from workbench.experiment.module_inspection import parameters_of
from workbench.experiment.pruners import Curves, PrunerOptions
from workbench.experiment.trainings import longest_training
from workbench.foundation.registry import load_object
from workbench.search.front_growth import FrontPruner
from workbench.search.optuna_versions import keeps_limits
from workbench.search.partial_results import Reading, is_decision, stated_epochs

if TYPE_CHECKING:
    from workbench.search.curves import Curve
from collections.abc import Callable

import numpy as np

from workbench.foundation.formatting import format_count, format_number, format_percent
from workbench.search.partial_results import CURVES

# Complete trials that are needed for forecasts, and how many of the latest curves are compared.
_MIN_COMPLETE = 3
_MAX_CURVES = 100
# A stopped trial is continued if its probability is this many times the one below which trials are
# stopped. Without the gap, trials would be stopped and continued in turn.
_RESUMING = 1.5
DescribeRung = Callable[[int], str]
"""Writes a rung, such as `epoch 5`."""


class PatiencePruner(BasePruner):
    """Stops a trial that has not improved on its best value for a number of rungs.

    Optuna's PatientPruner counts reports instead of rungs, and never stops a trial whose value is
    constant.
    """

    def __init__(self, patience: int) -> None:
        """Create the pruner.

        Args:
            patience: Rungs without improvement, in epochs or steps.
        """
        self._patience = patience

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        """Return whether the last improvement is `patience` rungs back."""
        values = trial.intermediate_values
        return bool(values) and max(values) - self.best_report(study, trial)[0] >= self._patience

    def best_report(self, study: optuna.Study, trial: FrozenTrial) -> tuple[int, float]:
        """Return the rung and the value of a trial's best report, or the first of equal ones."""
        values = trial.intermediate_values
        sign = 1 if study.direction == StudyDirection.MINIMIZE else -1
        best = min(values, key=lambda rung: (sign * values[rung], rung))
        return best, values[best]


class Place(NamedTuple):
    """The rank of a trial among the others that have reached the same rung."""

    num_better: int
    num_others: int

    @property
    def is_behind(self) -> bool:
        """Whether more than two thirds of the others are better."""
        return 3 * self.num_better > 2 * self.num_others


class CurvePruner(BasePruner):
    """Stops a trial whose learning curve is unlikely to end better than the best trial.

    Forecasts need a few complete trials. Until then, trials are stopped if they are in the worst
    third at their rung. Otherwise all trials that run at the same time would be trained to the end.
    """

    def __init__(self, chance: float, grace: int, num_epochs: int | None) -> None:
        """Create the pruner.

        Args:
            chance: A trial is stopped if its probability to end as the best is lower, in (0, 0.5).
            grace: Rungs before the first decision. Further decisions follow after each half of a
                doubling.
            num_epochs: The last rung of trials without a parameter `epochs`, or None if only
                complete trials show it.
        """
        self.chance = chance
        """A trial that is less likely to end as the best is stopped."""
        self._grace = grace
        self._num_epochs = num_epochs
        self._ended: dict[int, Curve | None] = {}  # a cache of the curves of ended trials

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        """Return whether the trial is unlikely to end as the best."""
        rungs = sorted(trial.intermediate_values)
        return is_decision(rungs, self._grace) and self.chance_of_best(study, trial) < self.chance

    def may_resume(self, chance: float) -> bool:
        """Return whether to continue a stopped trial with this probability to end as the best."""
        return chance >= _RESUMING * self.chance

    def place(self, study: optuna.Study, trial: FrozenTrial) -> Place | None:
        """Return the rank by which a trial is judged, or None once forecasts are possible."""
        others = _others(study, trial)
        return _place(study, trial, others, _ends(others))

    def bound(self, study: optuna.Study, trial: FrozenTrial) -> float | None:
        """Return the value with which a trial is no longer behind, while it is judged by rank."""
        rung, sign = max(trial.intermediate_values), _sign_of(study)
        there = _values_at(rung, sign, _others(study, trial))
        # As many others as `Place.is_behind` allows may be better.
        num_better = 2 * len(there) // 3
        return sign * there[num_better] if num_better < len(there) else None

    def chance_of_best(self, study: optuna.Study, trial: FrozenTrial) -> float:
        """Return the probability that a trial ends as the best, or 1 if too little is known."""
        others = _others(study, trial)
        ends = _ends(others)
        place = _place(study, trial, others, ends)
        if place is not None:
            return 0.0 if place.is_behind else 1.0
        rungs, sign = sorted(trial.intermediate_values), _sign_of(study)
        end = float(trial.params.get("epochs", self._num_epochs) or max(rung for rung, _ in ends))
        best = max(sign * value for _, value in ends)
        if end <= rungs[-1] or sign * trial.intermediate_values[rungs[-1]] > best:
            return 1.0
        return self._chance_of(trial, others, end, sign, best)

    def _chance_of(
        self, trial: FrozenTrial, others: list[FrozenTrial], end: float, sign: float, best: float
    ) -> float:
        """Return the probability that a trial ends above the best value, or 1 if unknown."""
        from workbench.search.curves import (
            forecast,
        )  # imports SciPy, which light installations omit

        trials = (trial, *others[-_MAX_CURVES:])
        curve, *known = (self._curve(other, sign) for other in trials)
        if curve is None:
            return 1.0
        last = forecast(curve, end, [other for other in known if other is not None])
        return 1.0 if last is None else 1.0 - last.chance_below(best)

    def _curve(self, trial: FrozenTrial, sign: float) -> Curve | None:
        """Return the curve of a trial, larger is better, or None if it has reported nothing."""
        from workbench.search.curves import Curve

        if trial.number in self._ended:
            return self._ended[trial.number]
        curve = Curve.of({rung: sign * value for rung, value in trial.intermediate_values.items()})
        if trial.state.is_finished():
            self._ended[trial.number] = curve
        return curve


def _sign_of(study: optuna.Study) -> float:
    return 1.0 if study.direction == StudyDirection.MAXIMIZE else -1.0


def _others(study: optuna.Study, trial: FrozenTrial) -> list[FrozenTrial]:
    return [other for other in study.get_trials(deepcopy=False) if other.number != trial.number]


def _place(
    study: optuna.Study,
    trial: FrozenTrial,
    others: Sequence[FrozenTrial],
    ends: Sequence[tuple[int, float]],
) -> Place | None:
    if len(ends) >= _MIN_COMPLETE:
        return None
    rung, value = max(trial.intermediate_values.items())
    sign = _sign_of(study)
    there = _values_at(rung, sign, others)
    if len(there) < 2 and not ends:
        # With only two trials, the one that is behind may still become the better one.
        return Place(0, len(there))
    return Place(sum(other > sign * value for other in there), len(there))


def _values_at(rung: int, sign: float, others: Iterable[FrozenTrial]) -> list[float]:
    """Return the values of other trials at a rung, the best first. Larger is better."""
    there = (
        sign * other.intermediate_values[rung]
        for other in others
        if rung in other.intermediate_values and keeps_limits(other)
    )
    return sorted(there, reverse=True)


def _ends(trials: Iterable[FrozenTrial]) -> list[tuple[int, float]]:
    """Return the last reports of complete trials that keep the limits."""
    return [
        max(trial.intermediate_values.items())
        for trial in trials
        if trial.state == TrialState.COMPLETE and trial.intermediate_values and keeps_limits(trial)
    ]


def make_pruner(experiment: Experiment) -> BasePruner:
    """Create the pruner of an experiment.

    Args:
        experiment: The experiment. Its section `early_stop` contains the settings.

    Returns:
        A pruner that has not seen any trial. Some pruners have no setting for `grace`, so the
        caller must ensure that no trial stops before.
    """
    kind = experiment.early_stop.kind
    make = load_object(kind.factory, field="early_stop.pruner")
    return make(experiment, kind.model_validate(experiment.early_stop.options))


def can_resume(experiment: Experiment) -> bool:
    """Return whether stopped trials of an experiment may be continued from their checkpoints."""
    kind = experiment.early_stop.kind
    options = kind.model_validate(experiment.early_stop.options)
    if not isinstance(options, Curves) or not options.resume or len(experiment.objectives) > 1:
        return False
    if experiment.trains_model:
        return experiment.federated is None
    if experiment.command is not None:
        return reads_earlier_files(experiment.command)
    return experiment.train is not None and "folder" in (parameters_of(experiment.train) or ())


def make_none(experiment: Experiment, options: PrunerOptions) -> BasePruner:
    """Create a pruner that stops nothing."""
    return NopPruner()


def make_asha(experiment: Experiment, options: PrunerOptions) -> BasePruner:
    """Create Optuna's asynchronous successive halving."""
    settings = experiment.early_stop
    return SuccessiveHalvingPruner(
        min_resource=settings.grace, reduction_factor=settings.reduction_factor
    )


def make_hyperband(experiment: Experiment, options: PrunerOptions) -> BasePruner:
    """Create Optuna's Hyperband."""
    settings = experiment.early_stop
    return HyperbandPruner(
        min_resource=settings.grace,
        max_resource=_longest_epochs(experiment),
        reduction_factor=settings.reduction_factor,
    )


def make_median(experiment: Experiment, options: PrunerOptions) -> BasePruner:
    """Create Optuna's median pruner."""
    settings = experiment.early_stop
    return MedianPruner(n_startup_trials=settings.startup_trials, n_warmup_steps=settings.grace)


def make_percentile(experiment: Experiment, options: PrunerOptions) -> BasePruner:
    """Create Optuna's percentile pruner."""
    settings = experiment.early_stop
    return PercentilePruner(
        settings.percentile, n_startup_trials=settings.startup_trials, n_warmup_steps=settings.grace
    )


def make_patience(experiment: Experiment, options: PrunerOptions) -> BasePruner:
    """Create the pruner of trials that no longer improve."""
    return PatiencePruner(experiment.early_stop.patience)


def make_curves(experiment: Experiment, options: PrunerOptions) -> BasePruner:
    """Create the pruner that extrapolates learning curves."""
    assert isinstance(options, Curves)
    if len(experiment.objectives) > 1:
        return FrontPruner(options.chance, experiment.early_stop.grace, Reading.of(experiment))
    return CurvePruner(options.chance, experiment.early_stop.grace, stated_epochs(experiment))


def make_wilcoxon(experiment: Experiment, options: PrunerOptions) -> BasePruner:
    """Create Optuna's Wilcoxon pruner."""
    return WilcoxonPruner(p_threshold=experiment.early_stop.p_threshold)


def _longest_epochs(experiment: Experiment) -> int | str:
    """Return the largest number of rungs. `auto` makes Optuna wait for the first trial to end."""
    epochs = longest_training(experiment)
    if epochs is None:
        return "auto"
    return max(epochs, experiment.early_stop.grace)


def shortfall(pruner: BasePruner, study: optuna.Study, trial: FrozenTrial) -> float | None:
    """Return by how much a trial is worse than the value with which it would have gone on.

    Args:
        pruner: The pruner, which has just decided to stop the trial.
        study: The study, as it was when the pruner decided.
        trial: The trial, read after the decision.

    Returns:
        The difference in the unit of the metric, or None if the pruner compares no two values.
        Forecasts of curves do not: they are uncertain by the noise already.
    """
    values = trial.intermediate_values
    match pruner:
        case CurvePruner() if pruner.place(study, trial):
            bound = pruner.bound(study, trial)
        case SuccessiveHalvingPruner() | HyperbandPruner():
            bound = _RungRank.of(pruner, study, trial).bound
        case PercentilePruner():
            bound, _ = _percentile_bound(pruner, study, max(values))
            best = (min if _sign_of(study) < 0 else max)(values.values())
            return _sign_of(study) * (bound - best)
        case _:
            return None
    return None if bound is None else _sign_of(study) * (bound - values[max(values)])


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


@dataclass(frozen=True)
class _RungRank:
    """The trials that a trial is compared with at its last rung."""

    num: int
    """How many there are, with the trial itself."""
    num_best: int
    """So many of them go on."""
    bound: float
    """The worst value with which a trial goes on."""
    in_bracket: str

    @classmethod
    def of(
        cls,
        pruner: SuccessiveHalvingPruner | HyperbandPruner,
        study: optuna.Study,
        trial: FrozenTrial,
    ) -> _RungRank:
        """Compare by the values at the trial's last rung, within its bracket if there are some."""
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
        return cls(len(values), num_best, values[num_best - 1], in_bracket)


def _explain_rank(
    pruner: SuccessiveHalvingPruner | HyperbandPruner,
    study: optuna.Study,
    trial: FrozenTrial,
    metric: str,
    at: DescribeRung,
) -> str:
    rank = _RungRank.of(pruner, study, trial)
    best, bound = "the best", format_number(rank.bound)
    if rank.num_best > 1:
        best = f"among the best {rank.num_best}"
        bound += " or more" if study.direction == StudyDirection.MAXIMIZE else " or less"
    return (
        f"{_last(trial, metric, at)} is not {best} of "
        f"{format_count(rank.num, 'trial')}{rank.in_bracket} there ({bound})"
    )


def _number_in(key: str) -> int:
    return int(key.rpartition("_")[2])


def _percentile_bound(
    pruner: PercentilePruner, study: optuna.Study, rung: int
) -> tuple[float, int]:
    """Return the value at a rung that the best must reach, and of how many complete trials."""
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    values = [
        other.intermediate_values[rung] for other in complete if rung in other.intermediate_values
    ]
    is_maximized = study.direction == StudyDirection.MAXIMIZE
    share = pruner._percentile
    return float(np.nanpercentile(values, 100 - share if is_maximized else share)), len(values)


def _explain_percentile(
    pruner: PercentilePruner, study: optuna.Study, trial: FrozenTrial, metric: str, at: DescribeRung
) -> str:
    """Explain by the values of complete trials at the last rung.

    Optuna compares them with the best value of the trial so far, not with its last value.
    """
    rung = max(trial.intermediate_values)
    bound, num = _percentile_bound(pruner, study, rung)
    is_maximized = study.direction == StudyDirection.MAXIMIZE
    share = pruner._percentile
    best = (max if is_maximized else min)(trial.intermediate_values.values())
    compared = f"the best {metric} until {at(rung)}, {format_number(best)},"
    if best == trial.intermediate_values[rung]:
        compared = _last(trial, metric, at)
    trials = f"{format_count(num, 'complete trial')} there"
    if isinstance(pruner, MedianPruner):
        side = "below" if is_maximized else "above"
        return f"{compared} is {side} the median {format_number(bound)} of {trials}"
    reach = f"{format_number(bound)} or {'more' if is_maximized else 'less'}"
    return f"{compared} is not among the best {format_percent(share / 100)} of {trials} ({reach})"
