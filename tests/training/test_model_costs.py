"""The size of a model and its latency are measured where they are wanted, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.services.process_group import run_together
from workbench.experiment import Experiment
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import TrialEnded
from workbench.sweeps.preflight import check
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

BOTH: dict[str, Any] = {
    "objectives": [
        {"metric": "val_accuracy", "goal": "maximize"},
        {"metric": "latency_s", "goal": "minimize"},
    ],
    "constraints": [{"metric": "size_bytes", "at_most": 1e6}],
}


def experiment(**settings: Any) -> Experiment:
    return Experiment.model_validate(
        {
            "model": {"name": "mlp", "hidden_width": 16, "num_layers": 2},
            "data": "digits",
            "objectives": [{"metric": "val_accuracy", "goal": "maximize"}],
            "training": {"epochs": 1, "global_batch": 64},
            **settings,
        }
    )


def train(rank: int, num_workers: int, meeting: str | None, text: str, folder: str) -> TrialEnded:
    task = TrialTask(
        "run", 0, 0, text, folder=folder, rank=rank, num_workers=num_workers, meeting=meeting
    )
    return run_trial(task, lambda event: False)


def test_what_an_objective_or_a_constraint_names_is_measured(tmp_path: Path) -> None:
    values = train(0, 1, None, experiment(**BOTH).model_dump_json(), str(tmp_path)).values
    num_parameters = 64 * 16 + 16 + 16 * 16 + 16 + 16 * 10 + 10
    assert values["size_bytes"] == 4 * num_parameters
    assert 0.0 < values["latency_s"] < 1.0


def test_what_nobody_names_is_not_measured(tmp_path: Path) -> None:
    values = train(0, 1, None, experiment().model_dump_json(), str(tmp_path)).values
    assert values.keys().isdisjoint({"size_bytes", "latency_s"})


@pytest.mark.parametrize("plan", [{"strategy": "ddp"}, {"strategy": "pipeline", "stages": 2}])
def test_all_workers_of_a_trial_have_the_same_values(plan: dict[str, Any], tmp_path: Path) -> None:
    text = experiment(**BOTH, plan={"workers": 2, **plan}).model_dump_json()
    first, second = (each.values for each in run_together(train, 2, text, str(tmp_path)))
    assert first == second
    assert first["size_bytes"] == 4 * 1482


def test_clients_of_a_federation_do_not_measure_them() -> None:
    with pytest.raises(ExperimentError, match="nothing reports 'latency_s'"):
        check(experiment(**BOTH, federated={"clients": 2}), on_this_machine=False)
