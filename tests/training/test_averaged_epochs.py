"""The mean of the last epochs (SWA).

That of torch, with its own statistics of batch normalisation.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD
from torch.optim.swa_utils import AveragedModel, update_bn

from tests.builders.ways import OF_SEVERAL
from tests.services.process_group import run_together
from tests.services.training import losses_by_step
from workbench.experiment import Experiment
from workbench.foundation.errors import ExperimentError
from workbench.sweeps.preflight import check
from workbench.training import checkpoint
from workbench.training.loading import load_trial_data
from workbench.training.tensor_source import Source
from workbench.training.trained_model import read_model, write_weights

EPOCHS, FIRST, SAMPLES = 8, 4, 456
LR, AVERAGE_LR = 0.02, 0.3


def normalised(config: dict[str, Any]) -> nn.Module:
    """Return a model with batch normalisation, always with the same weights."""
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(30, 16),
        nn.BatchNorm1d(16),
        nn.ReLU(),
        nn.Linear(16, 8),
        nn.ReLU(),
        nn.Linear(8, 2),
    )


def experiment(*, strategy: str = "auto", **training: Any) -> Experiment:
    """Return an experiment whose epochs are one step each, of all samples."""
    return Experiment(
        model=f"{__name__}:normalised",
        data="breast_cancer",
        objectives=[{"metric": "val_loss", "goal": "minimize", "value": "last"}],
        training={
            "epochs": EPOCHS,
            "global_batch": SAMPLES,
            "lr": LR,
            "lr_rule": "constant",
            "optimizer": "sgd",
            "momentum": 0.0,
            "schedule": "constant",
            "average_start": FIRST / EPOCHS,
            "average_lr": AVERAGE_LR,
            **training,
        },
        plan={"strategy": strategy, "workers": 1 if strategy == "auto" else 2},
    )


@pytest.fixture(scope="module")
def by_torch() -> tuple[list[float], nn.Module]:
    """Return the losses after each epoch of a plain loop with torch's swa_utils, and its model."""
    data = load_trial_data("plain", experiment())
    sources = [Source(split, torch.device("cpu")) for split in (data.train, data.validation)]
    (inputs, targets), (held_out, answers) = (each.fetch(each.all_indices) for each in sources)
    model = normalised({})
    mean = AveragedModel(model)
    optimizer, losses = SGD(model.parameters(), lr=LR), []
    for epoch in range(EPOCHS):
        optimizer.param_groups[0]["lr"] = LR if epoch < FIRST else AVERAGE_LR
        nn.functional.cross_entropy(model.train()(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
        shown: nn.Module = model
        if epoch >= FIRST:
            mean.update_parameters(model)
            update_bn([inputs], mean)
            shown = mean
        with torch.no_grad():
            losses.append(nn.functional.cross_entropy(shown.eval()(held_out), answers).item())
    return losses, mean.module


def test_what_is_evaluated_stored_and_exported_is_the_mean_of_torch(
    by_torch: tuple[list[float], nn.Module], tmp_path: Path
) -> None:
    losses, mean = by_torch
    whole = losses_by_step(tmp_path / "whole", experiment())
    assert list(whole.values()) == pytest.approx(losses, rel=1e-3)
    first, rest = (
        losses_by_step(tmp_path / "cut", experiment(), stop_at=step) for step in (6, None)
    )
    assert first | rest == whole, "a stopped training continues its mean"

    best = tmp_path / "cut" / "checkpoints" / "best.pt"
    stored = checkpoint.read(best)
    assert stored["values"]["val_loss"] == whole[EPOCHS]
    write_weights(best, tmp_path / "weights.safetensors")
    model, _ = read_model(experiment(), {}, tmp_path / "weights.safetensors")
    for name, expected in mean.state_dict().items():
        if name != "1.num_batches_tracked":
            torch.testing.assert_close(model.state_dict()[name], expected, rtol=1e-3, atol=1e-5)
    with_stale = stored["strategy"]["trained"]["1.running_mean"]
    assert not torch.allclose(with_stale, mean.state_dict()["1.running_mean"], rtol=1e-2)


def test_without_a_rate_of_its_own_the_schedule_continues(tmp_path: Path) -> None:
    with_mean = losses_by_step(tmp_path / "mean", experiment(average_lr=None))
    without = losses_by_step(tmp_path / "plain", experiment(average_lr=None, average_start=None))
    assert [with_mean[step] for step in range(1, 5)] == [without[step] for step in range(1, 5)]
    kept, plain = (
        checkpoint.read(tmp_path / name / "checkpoints" / "last.pt")["strategy"]
        for name in ("mean", "plain")
    )
    for name, values in plain["model"].items():
        assert torch.equal(kept["trained"][name], values), "the training itself stays what it is"


def train_on_two(rank: int, num_workers: int, meeting: str, folder: str) -> Any:
    return {
        strategy: losses_by_step(
            Path(folder, strategy),
            experiment(strategy=strategy),
            rank=rank,
            num_workers=num_workers,
            meeting=meeting + strategy,
        )
        for strategy in OF_SEVERAL
    }


@pytest.mark.slow
def test_two_workers_keep_one_mean(by_torch: tuple[list[float], nn.Module], tmp_path: Path) -> None:
    for losses in run_together(train_on_two, 2, str(tmp_path))[0].values():
        # Each worker normalises by its own half of the samples.
        assert list(losses.values()) == pytest.approx(by_torch[0], rel=0.1)
    weights = [
        checkpoint.read(tmp_path / strategy / "checkpoints" / "last.pt")["strategy"]["model"]
        for strategy in OF_SEVERAL
    ]
    for name, values in weights[0].items():
        torch.testing.assert_close(values, weights[1][name], rtol=1e-3, atol=1e-5)


def test_two_means_and_a_rate_without_a_mean_are_refused() -> None:
    with pytest.raises(ExperimentError, match="cannot combine it with average_decay"):
        check(experiment(average_decay=0.9))
    with pytest.raises(ExperimentError, match="no epochs are averaged"):
        check(experiment(average_start=None))
