"""The pruners by their names, with the settings of an experiment's `early_stop`."""

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
from workbench.space import Choice, Fixed


class PatiencePruner(BasePruner):
    """Stops a trial that has not improved on its own best value for some rungs.

    Optuna's PatientPruner counts reports where this one counts rungs, and lets a trial that stands
    still go on for ever.
    """

    def __init__(self, patience: int) -> None:
        """Make the pruner.

        Args:
            patience: Rungs without improvement, in epochs or steps.
        """
        self._patience = patience

    def prune(self, study: optuna.Study, trial: FrozenTrial) -> bool:
        """Tell whether the last improvement lies `patience` rungs back."""
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
        A pruner that has seen nothing yet. That no trial stops before `grace` is left to the caller
        where the pruner has no such setting.
    """
    settings = experiment.early_stop
    match settings.pruner:
        case "none":
            return NopPruner()
        case "asha":
            return SuccessiveHalvingPruner(
                min_resource=settings.grace, reduction_factor=settings.reduction_factor
            )
        case "hyperband":
            return HyperbandPruner(
                min_resource=settings.grace,
                max_resource=_longest_epochs(experiment),
                reduction_factor=settings.reduction_factor,
            )
        case "median":
            return MedianPruner(n_startup_trials=settings.startup_trials, n_warmup_steps=settings.grace)
        case "percentile":
            return PercentilePruner(
                settings.percentile,
                n_startup_trials=settings.startup_trials,
                n_warmup_steps=settings.grace,
            )
        case "patience":
            return PatiencePruner(settings.patience)
        case "wilcoxon":
            return WilcoxonPruner(p_threshold=settings.p_threshold)


def _longest_epochs(experiment: Experiment) -> int | str:
    """Return the most rungs that a trial can climb, or what makes Optuna wait for the first to end."""
    if experiment.train is not None:
        return "auto"
    domain = experiment.search.root.get("epochs")
    if domain is None:
        epochs = experiment.training.epochs
    elif isinstance(domain, Choice | Fixed):
        epochs = max(int(value) for value in domain.values() if isinstance(value, int | float))
    else:
        epochs = int(domain.high)
    return max(epochs, experiment.early_stop.grace)
