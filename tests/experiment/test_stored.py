"""Experiments in the store are read as they were meant when they were stored."""

from __future__ import annotations

import json

import pytest

from tests.builders.studies import make_experiment
from workbench.experiment.stored import read_stored, write_stored


def test_an_experiment_that_names_no_sampler_was_stored_when_tpe_was_the_default() -> None:
    document = make_experiment().model_dump(mode="json")
    assert "sampler" not in document
    assert read_stored(json.dumps(document)).sampler.name == "tpe"


@pytest.mark.parametrize(
    "sampler", ["auto", "tpe", {"name": "gp", "options": {"n_startup_trials": 4}}]
)
def test_what_is_stored_comes_back(sampler: object) -> None:
    experiment = make_experiment(sampler=sampler)
    assert read_stored(write_stored(experiment)) == experiment
