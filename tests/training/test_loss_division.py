"""A batch in parts equals the whole.

Other losses are refused, and metrics are those of all outputs.
"""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, r2_score, roc_auc_score
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

from tests.builders.whole_measures import FUNCTIONS, LABELS, NUMBERS, SCORES, measure
from tests.services.process_group import run_together
from tests.training.test_first_batch import experiment
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import TrialEnded, TrialPlanned, TrialReported
from workbench.training.probes.first_step import try_first_steps
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

NUM_VALIDATION = 20
GENERATOR = torch.Generator().manual_seed(0)
INPUTS = torch.randn(60, 6, generator=GENERATOR)
CLASSES = (INPUTS[:, 0] > 0).long() + (INPUTS[:, 1] > 0).long()
PADDED = torch.where(torch.arange(60) % 3 == 0, -100, CLASSES)
PADDED[:9] = -100
WEIGHTS = torch.tensor([0.1, 1.0, 5.0])


def plain(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, targets)


def weighted(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, targets, weight=WEIGHTS)


def weighted_in_parts(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    return (
        functional.cross_entropy(outputs, targets, weight=WEIGHTS, reduction="sum"),
        WEIGHTS[targets].sum(),
    )


def without_class_0(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, targets, ignore_index=0)


def summed(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, targets, reduction="sum")


def root(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.mse_loss(outputs, functional.one_hot(targets, 3).float()).sqrt()


def contrastive(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs @ outputs.T, torch.arange(len(outputs)))


def pinball(outputs: Tensor, targets: Tensor) -> Tensor:
    error = targets - outputs[:, 0]
    return torch.maximum(0.9 * error, -0.1 * error).mean()


def run(
    folder: Path, loss: Any, accumulation: int, targets: Tensor = CLASSES, **fields: Any
) -> tuple[TrialEnded, list[Any]]:
    """Train 2 epochs with global batches of 16, the last of which has 8 samples."""
    folder.mkdir()
    objects, events = folder / "objects", []
    objects.mkdir()
    size = 16 // accumulation
    asked = experiment(
        targets,
        num_outputs=3,
        model=model,
        training=TRAINING,
        loss=loss,
        plan={"micro_batch": size, "accumulation": accumulation},
        **fields,
    )
    for sha256, payload in asked.payloads().items():
        (objects / sha256).write_bytes(payload)
    task = TrialTask(
        str(folder),
        0,
        0,
        asked.model_dump_json(),
        objects=str(objects),
        folder=str(folder / "trial"),
    )
    return run_trial(task, lambda event: bool(events.append(event))), events


TRAINING = {"epochs": 2, "global_batch": 16, "lr": 0.3, "optimizer": "sgd", "schedule": "constant"}


def model(_config: Any) -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(6, 3)


def last_values(events: list[Any]) -> dict[str, float]:
    return [
        event.values
        for event in events
        if isinstance(event, TrialReported) and "val_loss" in event.values
    ][-1]


@pytest.mark.parametrize(
    "loss", [weighted, without_class_0, summed, root, contrastive, nn.CrossEntropyLoss(WEIGHTS)]
)
def test_a_loss_that_differs_in_parts_refuses_accumulation_and_states_the_form_that_does_not(
    loss: Any, tmp_path: Path
) -> None:
    ended, events = run(tmp_path / "whole", loss, 1)
    assert ended.state == "complete"
    [planned] = [event for event in events if isinstance(event, TrialPlanned)]
    assert planned.divides_batch is False
    ended, _ = run(tmp_path / "parts", loss, 4)
    assert ended.state == "failed"
    assert "plan.accumulation" in str(ended.message)
    assert "total and its count" in str(ended.message)


@pytest.mark.parametrize(
    ("loss", "targets"),
    [
        (plain, CLASSES),
        (weighted_in_parts, CLASSES),
        (pinball, CLASSES),
        (plain, PADDED),
        (None, PADDED),
    ],
)
def test_a_loss_that_adds_up_trains_the_same_for_every_micro_batch(
    loss: Any, targets: Tensor, tmp_path: Path
) -> None:
    losses = []
    for accumulation in (1, 2, 8):
        ended, events = run(tmp_path / str(accumulation), loss, accumulation, targets)
        assert ended.state == "complete", ended.message
        losses.append(last_values(events))
    for losses_of in losses[1:]:
        assert losses_of == pytest.approx(losses[0], rel=1e-5)


def test_the_loss_of_an_evaluation_is_that_of_all_its_samples(tmp_path: Path) -> None:
    """A training with rate 0 leaves the model as it is, so that torch can be asked."""
    for name, loss in {"whole": weighted, "counted": weighted_in_parts}.items():
        TRAINING["lr"] = 1e-12
        try:
            _, events = run(tmp_path / name, loss, 1)
        finally:
            TRAINING["lr"] = 0.3
        outputs = model(None)(INPUTS_OF_FIRST_BATCH[40:])
        expected = weighted(outputs, CLASSES[40:]).item()
        assert last_values(events)["val_loss"] == pytest.approx(expected, rel=1e-6)


INPUTS_OF_FIRST_BATCH = torch.randn(60, 6, generator=torch.Generator().manual_seed(0))


def expected(targets: np.ndarray) -> dict[str, float]:
    outputs, wanted = torch.from_numpy(SCORES[:, None]), torch.from_numpy(targets)
    values: dict[str, Any] = {
        function.__name__: function(outputs, wanted) for function in FUNCTIONS
    }
    values["auc"] = roc_auc_score(targets > 0.5, SCORES)
    values["f1"] = f1_score(targets > 0.5, SCORES > 0.7)
    values["r2"] = r2_score(targets, SCORES)
    values["largest"] = np.abs(SCORES - targets).max()
    return {name: float(value) for name, value in values.items()}


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_metric_is_that_of_all_outputs_for_every_batch_and_number_of_workers(
    num_workers: int,
) -> None:
    batches = (37, 8, 1)
    function = functools.partial(measure, batches=batches)
    values = (
        [function(0, 1, None)] if num_workers == 1 else run_together(measure, num_workers, batches)
    )
    for results in values:
        for index, result in enumerate(results):
            targets = (NUMBERS, LABELS)[index // len(batches)]
            assert result == pytest.approx(expected(targets), rel=1e-6)
            assert not any(math.isnan(value) for value in result.values())


class Tuples(Dataset[Any]):
    """Samples of which the targets are known only when they are read."""

    def __init__(self, inputs: Tensor, targets: Tensor) -> None:
        self.inputs, self.targets = inputs, targets

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.inputs[index], self.targets[index]


def two_terms(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return a mean over samples, as long as no target is left out."""
    return functional.cross_entropy(outputs, targets) + 0.1 * outputs.square().mean()


@pytest.mark.parametrize("leaves_out", [False, True])
def test_a_target_that_is_left_out_later_refuses_what_adds_up_without_it(
    leaves_out: bool, tmp_path: Path
) -> None:
    targets = CLASSES.clone()
    if leaves_out:
        targets[33] = -100  # of train, so that nobody has seen it before
    ended, _ = run(tmp_path / "parts", two_terms, 4, targets, kind=Tuples)
    assert ended.state == ("failed" if leaves_out else "complete"), ended.message
    assert not leaves_out or "plan.accumulation" in str(ended.message)
    assert run(tmp_path / "whole", two_terms, 1, targets, kind=Tuples)[0].state == "complete"


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_loss_that_draws_at_random_is_judged_by_its_mean(reduction: str, tmp_path: Path) -> None:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        noisy = functional.dropout(outputs, 0.3)
        return functional.cross_entropy(noisy, targets, reduction=reduction) / 16

    ended, _ = run(tmp_path / "parts", loss, 4)
    assert ended.state == ("complete" if reduction == "mean" else "failed"), ended.message


@pytest.mark.slow
def test_check_names_what_was_written_of_a_plan_that_divides_such_a_loss() -> None:
    asked = experiment(
        CLASSES,
        num_outputs=3,
        model=model,
        training=TRAINING,
        loss=contrastive,
        plan={"workers": 2, "micro_batch": 8},
    )
    with pytest.raises(ExperimentError, match=r"plan\.workers 2 computes it for the samples"):
        try_first_steps(asked)
