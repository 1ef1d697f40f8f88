"""What the campaigns let faults happen to has several different trials.

One alone would hide most faults.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults import busy, hard_trials, head_folder, stopped, storm, sweeps
from workbench.experiment import Experiment
from workbench.experiment.trainings import tries_one_configuration

PLAYED: dict[str, tuple[dict[str, Any], int]] = {
    **{
        f"{name}, {num_workers}": (
            sweeps.make_fields(name, num_workers, {}),
            sweeps.num_trials(name),
        )
        for num_workers in (1, 2)
        for name in sweeps.names(num_workers)
    },
    "short": (sweeps.make_fields(sweeps.SHORT, 1, {}), sweeps.num_trials(sweeps.SHORT)),
    "trials": (hard_trials.make_fields([*hard_trials.EXPECTED]), len(hard_trials.EXPECTED)),
    "storm": (storm.make_fields(), storm.NUM_TRIALS),
    "stopped": (stopped.make_fields("driver"), stopped.NUM_TRIALS),
    "stopped program": (stopped.make_fields("program"), stopped.NUM_TRIALS),
    "busy": (busy.make_fields("busy"), busy.NUM_TRIALS),
    "head_folder": (head_folder.make_fields("next", 0.05), head_folder.NUM_TRIALS),
}


@pytest.mark.parametrize("name", PLAYED)
def test_a_campaign_has_as_many_trials_as_it_counts_on(name: str) -> None:
    fields, num_trials = PLAYED[name]
    experiment = Experiment(**fields)
    assert num_trials >= 4
    assert experiment.max_configurations() in (num_trials, None)  # a grid ends by itself
    assert not tries_one_configuration(experiment)
