"""Samples of a training are changed at random, alike after an interruption, and mixed targets have
a loss.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from workbench.experiment import Experiment
from workbench.models.losses import cross_entropy
from workbench.training import checkpoint
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask


def weights_of(
    folder: Path, *, stop_at: int | None = None, **augment: float
) -> dict[str, torch.Tensor]:
    """Train with some changes and return the weights at the end."""
    experiment = Experiment(
        model={"name": "convnet", "width": 8, "num_blocks": 1},
        data="digits",
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
        training={"epochs": 2, "global_batch": 719, "augment": augment or None},
        plan={"workers": 1},
    )
    task = TrialTask(
        "run", 0, 0, experiment.model_dump_json(), seed=3, folder=str(folder), resume=True
    )

    def report(event: Any) -> bool:
        return event.type == "checkpoint_saved" and event.step == stop_at

    ended = run_trial(task, report)
    assert ended.state != "failed", ended.traceback
    return checkpoint.read(folder / "checkpoints" / "last.pt")["strategy"]["model"]


def are_equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(values, other[name]) for name, values in one.items())


@pytest.mark.slow
def test_an_interrupted_training_sees_the_same_changes(tmp_path: Path) -> None:
    changes = {"mixup": 0.4, "crop": 0.2, "rand_augment": 4.0}
    whole = weights_of(tmp_path / "whole", **changes)
    weights_of(tmp_path / "parts", stop_at=2, **changes)
    assert are_equal(whole, weights_of(tmp_path / "parts", **changes))
    assert not are_equal(whole, weights_of(tmp_path / "plain"))


def test_the_loss_of_mixed_targets_is_the_mixed_loss() -> None:
    torch.manual_seed(0)
    scores, one, other = (
        torch.randn(5, 3),
        torch.tensor([0, 1, 2, 0, 1]),
        torch.tensor([2, 2, 0, 0, 1]),
    )
    shares = 0.3 * torch.eye(3)[one] + 0.7 * torch.eye(3)[other]
    expected = 0.3 * cross_entropy(scores, one) + 0.7 * cross_entropy(scores, other)
    assert cross_entropy(scores, shares).item() == pytest.approx(expected.item(), rel=1e-5)
