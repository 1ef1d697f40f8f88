"""Make the pruner of an experiment from its `early_stop`; what each reads is in `workbench.experiment`."""

from __future__ import annotations

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
from optuna.trial import FrozenTrial

from workbench.experiment import Experiment
from workbench.experiment.pruners import PrunerOptions
from workbench.registry import load_object
from workbench.space import Choice, Fixed


class PatiencePruner(BasePruner):
    """Stops a trial that has not improved on its own best value for some rungs.

    Optuna's PatientPruner counts reports instead of rungs, and never stops a trial whose value is constant.
    """

    def __init__(self, patience: int) -> None:
        """Make the pruner.

        Args:
            patience: Rungs without improvement, in epochs or steps.
        """
        self._patience = patience

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        """Return whether the last improvement is `patience` rungs back."""
        values = trial.intermediate_values
        if not values:
            return False
        sign = 1 if study.direction == StudyDirection.MINIMIZE else -1
        best = min(values, key=lambda rung: (sign * values[rung], rung))
        return max(values) - best >= self._patience


def make_pruner(experiment: Experiment) -> BasePruner:
    """Make the pruner of an experiment.

    Args:
        experiment: The experiment; `early_stop` holds the settings.

    Returns:
        A pruner that has not seen any trial. For pruners without such a setting, the caller ensures that
        no trial stops before `grace`.
    """
    kind = experiment.early_stop.kind
    make = load_object(kind.factory, field="early_stop.pruner")
    return make(experiment, kind.model_validate(experiment.early_stop.options))


def make_none(experiment: Experiment, options: PrunerOptions) -> BasePruner:
    """Make the pruner that stops nothing."""
    return NopPruner()


def make_asha(experiment: Experiment, options: PrunerOptions) -> BasePruner:
    """Make Optuna's asynchronous successive halving."""
    settings = experiment.early_stop
    return SuccessiveHalvingPruner(min_resource=settings.grace, reduction_factor=settings.reduction_factor)


def make_hyperband(experiment: Experiment, options: PrunerOptions) -> BasePruner:
    """Make Optuna's Hyperband."""
    settings = experiment.early_stop
    return HyperbandPruner(
        min_resource=settings.grace, max_resource=_longest_epochs(experiment),
        reduction_factor=settings.reduction_factor,
    )  # fmt: skip


def make_median(experiment: Experiment, options: PrunerOptions) -> BasePruner:
    """Make Optuna's median pruner."""
    settings = experiment.early_stop
    return MedianPruner(n_startup_trials=settings.startup_trials, n_warmup_steps=settings.grace)


def make_percentile(experiment: Experiment, options: PrunerOptions) -> BasePruner:
    """Make Optuna's percentile pruner."""
    settings = experiment.early_stop
    return PercentilePruner(
        settings.percentile, n_startup_trials=settings.startup_trials, n_warmup_steps=settings.grace
    )


def make_patience(experiment: Experiment, options: PrunerOptions) -> BasePruner:
    """Make the pruner of trials that no longer improve."""
    return PatiencePruner(experiment.early_stop.patience)


def make_wilcoxon(experiment: Experiment, options: PrunerOptions) -> BasePruner:
    """Make Optuna's Wilcoxon pruner."""
    return WilcoxonPruner(p_threshold=experiment.early_stop.p_threshold)


def _longest_epochs(experiment: Experiment) -> int | str:
    """Return the most rungs that a trial can climb, or what makes Optuna wait for the first to end."""
    if not experiment.trains_model:
        return "auto"
    domain = experiment.search.root.get("epochs")
    if domain is None:
        epochs = experiment.training.epochs
    elif isinstance(domain, Choice | Fixed):
        epochs = max(int(value) for value in domain.values() if isinstance(value, int | float))
    else:
        epochs = int(domain.high)
    return max(epochs, experiment.early_stop.grace)
