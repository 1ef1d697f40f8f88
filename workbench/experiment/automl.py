"""The marks of experiments that AutoML writes: how to recognise them, and how to show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.experiment.experiment import Experiment

HELD_OUT = "held_out"
"""The option of the data with the test part. Only AutoML runs have it."""
STANDARDISES_TARGET = "standardises_target"
"""The option of the data of a regression whose loss uses a target of mean 0 and deviation 1."""
NUM_TARGETS = "num_targets"
"""The option of the data with the number of targets, if there are several."""
IS_LOG = "is_log"
"""The option of the data of a regression whose models learn the logarithm of the target."""
STANDARDISED = " (standardised)"
"""The suffix for the name of a loss that is computed from a standardised target."""
SHORT_ERRORS = {"mean_absolute_error": "mae", "root_mean_squared_error": "rmse"}
"""AutoML's names for the errors that trials report."""

# Part of the time of a run in which its model is chosen, tested and fitted to all rows, and the
# limits of that in seconds.
_CONCLUDING_PART, _CONCLUDING_S = 0.25, (2.5, 120.0)

MIN_TRIAL_TIME_S = 8.0
"""Trials get at least this much time, however long the start takes.

It is enough for the first models on small data.
"""


def concluding_s(experiment: Experiment) -> float:
    """Return the part of a run's time budget that is kept to choose and test its model, in seconds.

    Args:
        experiment: The experiment with its current limits. The result is 0 unless AutoML wrote it.
    """
    if experiment.budget.time is None or not is_automl(experiment):
        return 0.0
    least_s, most_s = _CONCLUDING_S
    return min(max(_CONCLUDING_PART * experiment.budget.time, least_s), most_s)


def standardises_target(experiment: Experiment) -> bool:
    """Return whether the loss of trials uses a standardised target, and so has no unit."""
    data = experiment.data
    return data is not None and is_automl(experiment) and STANDARDISES_TARGET in data.options


def short_errors(experiment: Experiment) -> dict[str, str]:
    """Return the short names of the errors that trials report.

    Errors of several targets have no common unit, so they are standardised. Those of logarithms
    say so.

    Args:
        experiment: The experiment of an AutoML run.
    """
    options = {} if experiment.data is None else experiment.data.options
    if IS_LOG in options:
        return {name: f"{short} (of logarithms)" for name, short in SHORT_ERRORS.items()}
    if NUM_TARGETS not in options:
        return SHORT_ERRORS
    return {name: f"{short}{STANDARDISED}" for name, short in SHORT_ERRORS.items()}


def shown_metric(experiment: Experiment, metric: str) -> str:
    """Return the name of a metric for people.

    Args:
        experiment: The experiment of the run.
        metric: The metric, as trials report it.
    """
    if not standardises_target(experiment):
        return metric
    if metric == "val_loss":
        return f"val_loss{STANDARDISED}"
    short = short_errors(experiment).get(metric.removeprefix("val_"))
    return f"val_{short}" if short is not None and metric.startswith("val_") else metric


def is_automl(experiment: Experiment) -> bool:
    """Return whether a run of an experiment is an AutoML run."""
    return experiment.data is not None and HELD_OUT in experiment.data.options
