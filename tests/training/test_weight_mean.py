"""A moving mean of the weights is evaluated, stored and continued.

The training itself stays what it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.builders.ways import OF_SEVERAL
from tests.services.process_group import run_together
from workbench.experiment import Experiment
from workbench.foundation.events import TrialReported
from workbench.training import checkpoint
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

DECAY = 0.9


def experiment(
    *, average_decay: float | None, strategy: str = "auto", workers: int = 1
) -> Experiment:
    return Experiment(
        model="mlp",
        data="breast_cancer",
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        training={
            "epochs": 6,
            "global_batch": 456,
            "lr": 0.01,
            "lr_rule": "constant",
            "average_decay": average_decay,
        },
        plan={"strategy": strategy, "workers": workers},
    )


def train(
    folder: Path, asked: Experiment, *, stop_at: int | None = None, **task: Any
) -> tuple[Any, Any]:
    """Return the weights of each checkpoint, an epoch of one step each, and the reports."""
    saved: list[dict[str, Any]] = []
    reports: list[TrialReported] = []

    def report(event: Any) -> bool:
        if isinstance(event, TrialReported) and "val_loss" in event.values:
            reports.append(event)
        if event.type == "checkpoint_saved":
            saved.append(checkpoint.read(folder / "checkpoints" / "last.pt")["strategy"])
        return event.type == "checkpoint_saved" and event.step == stop_at

    order = TrialTask(
        "run", 0, 0, asked.model_dump_json(), seed=3, folder=str(folder), resume=True, **task
    )
    ended = run_trial(order, report)
    assert ended.state != "failed", ended.traceback
    return saved, reports


@pytest.fixture(scope="module")
def averaged(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    return train(tmp_path_factory.mktemp("averaged"), experiment(average_decay=DECAY))


def test_the_mean_is_stored_beside_the_weights_of_the_same_training(
    averaged: tuple[Any, Any], tmp_path: Path
) -> None:
    plain, reports = train(tmp_path, experiment(average_decay=None))
    saved = averaged[0]
    mean = None
    for step, (with_mean, without) in enumerate(zip(saved, plain, strict=True), start=1):
        for name, values in without["model"].items():
            assert torch.equal(with_mean["trained"][name], values)
        decay = min(DECAY, (1 + step) / (10 + step))
        weights = without["model"]
        if mean is not None:
            mean = {
                name: decay * mean[name] + (1 - decay) * values for name, values in weights.items()
            }
            for name, values in mean.items():
                torch.testing.assert_close(with_mean["model"][name], values, rtol=1e-4, atol=1e-6)
        mean = with_mean["model"]
    assert averaged[1][-1].values["val_loss"] != reports[-1].values["val_loss"], (
        "the mean is evaluated"
    )


def test_a_stopped_training_continues_its_mean(averaged: tuple[Any, Any], tmp_path: Path) -> None:
    train(tmp_path, experiment(average_decay=DECAY), stop_at=3)
    saved, reports = train(tmp_path, experiment(average_decay=DECAY))
    for key in ("model", "trained"):
        for name, values in averaged[0][-1][key].items():
            assert torch.equal(saved[-1][key][name], values)
    assert reports[-1].values["val_loss"] == averaged[1][-1].values["val_loss"]


def train_on_two(rank: int, num_workers: int, meeting: str, folder: str) -> Any:
    results = {}
    for strategy in OF_SEVERAL:
        asked = experiment(average_decay=DECAY, strategy=strategy, workers=2)
        for part, stop_at in (("-1", 3), ("-2", None)):
            results[strategy] = train(
                Path(folder, strategy),
                asked,
                stop_at=stop_at,
                rank=rank,
                num_workers=num_workers,
                meeting=meeting + strategy + part,
            )
    return results


@pytest.mark.slow
def test_every_strategy_has_the_mean_of_one_worker(
    averaged: tuple[Any, Any], tmp_path: Path
) -> None:
    results = run_together(train_on_two, 2, str(tmp_path))[0]
    for saved, reports in results.values():
        for name, values in averaged[0][-1]["model"].items():
            torch.testing.assert_close(saved[-1]["model"][name], values, rtol=1e-3, atol=1e-5)
        assert reports[-1].values == pytest.approx(averaged[1][-1].values, rel=1e-3)
