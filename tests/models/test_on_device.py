"""What steps compute on a GPU meets no tensor of the CPU, and waits for the device only where
wanted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.builders.on_device import OnDevice, WithDevice, on_device
from workbench.foundation.errors import ExperimentError
from workbench.models import batch_parts
from workbench.models.adapters import load_loss, load_metrics
from workbench.models.batch_parts import DividedLoss
from workbench.models.own_functions import check_function
from workbench.models.pairing import Pairing
from workbench.training.strategies.counted_losses import CountedStep, stacked

GENERATOR = torch.Generator().manual_seed(0)
SCORES = torch.randn(8, 3, generator=GENERATOR)
CLASSES = torch.tensor([0, 1, 2, -100, 1, 2, 0, -100])
NUMBERS = torch.randn(8, generator=GENERATOR)
PIXELS, MASKS = torch.randn(2, 3, 4, 5, generator=GENERATOR), torch.randint(0, 3, (2, 4, 5))


@pytest.fixture(autouse=True)
def looks() -> Iterator[list[str]]:
    OnDevice.looks.clear()
    with WithDevice():
        yield OnDevice.looks
    OnDevice.looks.clear()


def test_the_stand_in_refuses_what_a_gpu_refuses(looks: list[str]) -> None:
    values = on_device(SCORES)
    assert values.device.type == (values + 1).softmax(-1).device.type == "cuda"
    with pytest.raises(RuntimeError, match="same device"):
        values + SCORES
    with pytest.raises(TypeError, match="numpy"):
        values.numpy()
    assert type(values.cpu()) is Tensor
    assert float(values.sum()) == pytest.approx(float(SCORES.sum()))
    assert looks


PAIRS: list[tuple[str, Any, Any]] = [
    ("classification", SCORES, CLASSES),
    ("classification", SCORES, functional.one_hot(CLASSES.clamp(min=0), 3).float()),
    ("classification", SCORES, CLASSES.clamp(min=0).float()),
    ("classification", PIXELS, MASKS),
    ("regression", NUMBERS[:, None], NUMBERS + 1),
]


@pytest.mark.parametrize(("task", "outputs", "targets"), PAIRS)
def test_losses_and_metrics_of_a_task_wait_for_nothing(
    task: Any, outputs: Tensor, targets: Tensor, looks: list[str]
) -> None:
    pairing = Pairing(task=task, num_outputs=3 if task == "classification" else None)
    loss = load_loss(None, task, pairing=pairing)
    expected = loss(outputs, targets)
    names = ["accuracy"] if task == "classification" else ["mean_squared_error"]
    metrics = load_metrics({name: name for name in names}, task, pairing=pairing)
    there = on_device((outputs, targets))
    loss_value = loss(*there)
    assert type(loss_value) is OnDevice
    for name in names:
        metrics[name].measure(*there)  # type: ignore[union-attr]
    assert looks == []
    torch.testing.assert_close(loss_value.cpu(), expected)


@pytest.mark.parametrize("division", ["samples", "targets", "next_targets"])
def test_parts_of_a_step_wait_for_nothing(division: Any, looks: list[str]) -> None:
    is_next = division == "next_targets"
    outputs = torch.randn(4, 5, 3, generator=GENERATOR)
    targets = torch.randint(0, 3, (4, 5), generator=GENERATOR)
    targets[0], targets[2, 3:] = -100, -100

    def function(outputs: Tensor, targets: Tensor) -> Tensor:
        if is_next:
            outputs, targets = outputs[:, :-1], targets[:, 1:]
        return functional.cross_entropy(outputs.reshape(-1, 3), targets.reshape(-1))

    there = on_device((outputs, targets))
    loss, step = DividedLoss(function, division), CountedStep(4)
    for part in range(4):  # the first of them counts nothing
        cut = [tensor[part : part + 1] for tensor in there]
        step.add(stacked(*loss.measure(*cut)), 0.25)
    if division != "samples":
        assert looks == []
        sums = step._sums
        assert sums is not None
        total, count = sums.cpu().tolist()
        assert total / count == pytest.approx(function(outputs, targets).item(), rel=1e-6)


def test_a_part_that_counts_nothing_has_no_gradient() -> None:
    scores = SCORES.clone().requires_grad_()
    total, count = DividedLoss(functional.cross_entropy, "targets").measure(
        scores, torch.full((8,), -100)
    )
    total.backward()
    assert (total.item(), int(count)) == (0.0, 0)
    assert torch.equal(scores.grad, torch.zeros_like(SCORES))  # type: ignore[arg-type]


def test_checks_before_the_first_step_follow_the_device() -> None:
    def plain(outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(outputs, targets)

    there = on_device((SCORES, CLASSES))
    check_function(plain, *there, name="the loss", field="loss")
    for some_outputs, some_targets in batch_parts.variants(*there, torch.arange(3)):
        for piece in batch_parts.evidence_on(plain, some_outputs, some_targets) or ():
            assert piece.supports("targets")
    masked = batch_parts.masked(there[1])
    assert type(masked) is OnDevice


def test_probabilities_stay_probabilities_as_a_gpu_does_not_survive_others() -> None:
    shares = SCORES.sigmoid()
    for outputs, _ in batch_parts.variants(shares, CLASSES, None):
        assert 0 <= float(outputs.min()) <= float(outputs.max()) <= 1


def test_targets_on_a_gpu_are_checked() -> None:
    pairing = Pairing(task="classification", num_outputs=3)
    pairing.classes(SCORES, CLASSES)
    pairing.check_targets(on_device(CLASSES), kind="classes", where="train")
    with pytest.raises(Exception, match="from 1 to 3"):
        pairing.check_targets(on_device(torch.tensor([1, 2, 3])), kind="classes", where="train")


def test_what_could_be_probabilities_is_refused_on_a_gpu_as_on_the_cpu(looks: list[str]) -> None:
    targets = torch.tensor(np.arange(8) % 2)
    for scores in (NUMBERS.sigmoid(), on_device(NUMBERS.sigmoid())):
        pairing = Pairing(task="classification", num_outputs=2, single_scores="unknown")
        with pytest.raises(ExperimentError, match="probabilities or logits"):
            pairing.classes(scores, on_device(targets) if type(scores) is OnDevice else targets)
    pairing = Pairing(task="classification", num_outputs=2, single_scores="unknown")
    pairing.classes(*on_device((NUMBERS, targets)))
    looks.clear()
    pairing.classes(*on_device((NUMBERS, targets)))
    assert looks == [], "known from then on"
