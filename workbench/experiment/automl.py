"""What distinguishes the experiments that AutoML writes from those of users."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workbench.experiment import Experiment

HELD_OUT = "held_out"
"""The option of the data that names the test part; only AutoML runs have it."""


def is_automl(experiment: Experiment) -> bool:
    """Return whether a run of an experiment is an AutoML run."""
    return experiment.data is not None and HELD_OUT in experiment.data.options
