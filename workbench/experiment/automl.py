"""What distinguishes the experiments that AutoML writes from those of users."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.experiment import Experiment

HELD_OUT = "held_out"
"""The option of the data that names the test part; only AutoML runs have it."""


# Part of the time of a run in which its model is chosen and tested, and the limits of that in seconds.
_CONCLUDING_PART, _CONCLUDING_S = 0.1, (2.0, 60.0)


def concluding_s(experiment: Experiment) -> float:
    """Return how much of the time budget of a run is kept to choose and test its model, in seconds.

    Args:
        experiment: Its experiment, with the limits that are in force; nothing is kept unless AutoML wrote it.
    """
    if experiment.budget.time is None or not is_automl(experiment):
        return 0.0
    least_s, most_s = _CONCLUDING_S
    return min(max(_CONCLUDING_PART * experiment.budget.time, least_s), most_s)


def is_automl(experiment: Experiment) -> bool:
    """Return whether a run of an experiment is an AutoML run."""
    return experiment.data is not None and HELD_OUT in experiment.data.options
