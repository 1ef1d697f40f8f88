"""How many operations a sample needs, and how often that is counted."""

from __future__ import annotations

import pytest
import torch

from workbench.experiment import Experiment
from workbench.training.assembly import trial_settings
from workbench.training.loading import load_trial_data
from workbench.training.probes import sample_flops
from workbench.training.probes.sample_flops import flops_of_a_sample
from workbench.training.task import TrialTask

EXPERIMENT = Experiment(
    model={"name": "mlp", "num_layers": 1},
    data="digits",
    objectives=[{"metric": "val_loss", "goal": "minimize"}],
    search={"hidden_width": {"choices": [16, 32]}, "lr": {"low": 1e-4, "high": 1e-1}},
)


def count(**params: float) -> float | None:
    task = TrialTask("run", 0, 0, EXPERIMENT.model_dump_json(), params=dict(params))
    datasets = load_trial_data("run", EXPERIMENT)
    return flops_of_a_sample(task, trial_settings(task, torch.device("cpu"), datasets))


def test_operations_are_counted_once_for_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    builds: list[object] = []
    inner = sample_flops.build_trial_model

    def build(*args: object, **options: object) -> object:
        builds.append(args)
        return inner(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(sample_flops, "build_trial_model", build)
    monkeypatch.setattr(sample_flops, "_counted", {})
    narrow = count(hidden_width=16, lr=1e-3)
    assert count(hidden_width=16, lr=1e-2, global_batch=64) == narrow
    assert len(builds) == 1
    wide = count(hidden_width=32, lr=1e-2)
    assert len(builds) == 2
    assert narrow is not None
    assert wide is not None
    # Forward, and both products of the backward pass; the first layer needs no gradient of its
    # inputs.
    assert wide == pytest.approx(2 * narrow)
    assert narrow == 2 * (2 * 64 * 16 + 3 * 16 * 10)
