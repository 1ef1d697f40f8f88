"""Experiments in the store are read as they were meant when they were stored."""

from __future__ import annotations

import pytest

from tests.builders.studies import make_experiment
from workbench.experiment.experiment import read_stored, write_stored


@pytest.mark.parametrize(
    "sampler", ["auto", "tpe", {"name": "gp", "options": {"n_startup_trials": 4}}]
)
def test_what_is_stored_comes_back(sampler: object) -> None:
    experiment = make_experiment(sampler=sampler)
    assert read_stored(write_stored(experiment)) == experiment
