"""What distinguishes the experiments that AutoML writes from those of users."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.experiment import Experiment

HELD_OUT = "held_out"
"""The option of the data that names the test part; only AutoML runs have it."""
TARGET_SCALE = "target_scale"
"""The option of the data that errors of trials are multiplied with to be in the unit of the target."""
STANDARDISED = " (standardised)"
"""What stands behind the name of a loss that is computed from a standardised target."""
SHORT_ERRORS = {"mean_absolute_error": "mae", "root_mean_squared_error": "rmse"}
"""What AutoML calls the errors that trials report, which are divided by the target's scale."""

# Part of the time of a run in which its model is chosen and tested, and the limits of that in seconds.
_CONCLUDING_PART, _CONCLUDING_S = 0.1, (2.0, 60.0)

MIN_TRIAL_TIME_S = 8.0
"""However long the start takes, this much is left for trials: enough for the first models on small data."""


def concluding_s(experiment: Experiment) -> float:
    """Return how much of the time budget of a run is kept to choose and test its model, in seconds.

    Args:
        experiment: Its experiment, with the limits that are in force; nothing is kept unless AutoML wrote it.
    """
    if experiment.budget.time is None or not is_automl(experiment):
        return 0.0
    least_s, most_s = _CONCLUDING_S
    return min(max(_CONCLUDING_PART * experiment.budget.time, least_s), most_s)


def target_scale(experiment: Experiment) -> float | None:
    """Return the factor of a standardised target; None where the target has its own unit, or none."""
    scale = experiment.data.options.get(TARGET_SCALE) if is_automl(experiment) and experiment.data else None
    return None if scale is None else float(str(scale))


def shown_metric(experiment: Experiment, metric: str) -> tuple[str, float]:
    """Return what a metric is called where it is shown, and the factor of its values.

    Args:
        experiment: The experiment of the run; errors of AutoML are shown in the unit of the target.
        metric: The metric, as trials report it.
    """
    scale = target_scale(experiment)
    if scale is None:
        return metric, 1.0
    if metric == "val_loss":
        return f"val_loss{STANDARDISED}", 1.0
    short = SHORT_ERRORS.get(metric.removeprefix("val_"))
    return (metric, 1.0) if short is None or not metric.startswith("val_") else (f"val_{short}", scale)


def is_automl(experiment: Experiment) -> bool:
    """Return whether a run of an experiment is an AutoML run."""
    return experiment.data is not None and HELD_OUT in experiment.data.options
