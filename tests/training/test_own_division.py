"""Classes with steps of their own.

A loss that differs in parts is refused, and a counted one is exact.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.services.process_group import run_together
from workbench.experiment import Experiment
from workbench.foundation.events import TrialEnded, TrialPlanned, TrialReported
from workbench.models.own_steps import OwnSteps
from workbench.training import checkpoint
from workbench.training.loss_division import judge_own_steps
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

HERE = "tests.training.test_own_division"
GENERATOR = torch.Generator().manual_seed(0)
INPUTS = torch.randn(58, 4, generator=GENERATOR)
CLASSES = (INPUTS[:, 0] > 0).long() + (INPUTS[:, 1] > 0.7).long()
WEIGHTS = torch.tensor([0.2, 1.0, 6.0])
NUM_TRAIN = 38  # three steps of 16, the last of them with 6


def load(_options: Any) -> Any:
    pairs = list(zip(INPUTS, CLASSES, strict=True))
    return pairs[:NUM_TRAIN], pairs[NUM_TRAIN:]


class Weighted:
    """A class-weighted loss: a mean over weights, not over samples."""

    def __init__(self, config: Any) -> None:
        torch.manual_seed(1)
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.0), nn.Linear(8, 3))

    def configure(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.net.parameters(), lr=0.2)

    def step(self, batch: Any) -> Any:
        inputs, targets = batch
        return functional.cross_entropy(self.net(inputs), targets, weight=WEIGHTS)


class Counted(Weighted):
    def step(self, batch: Any) -> Any:
        inputs, targets = batch
        total = functional.cross_entropy(self.net(inputs), targets, weight=WEIGHTS, reduction="sum")
        return total, WEIGHTS[targets].sum()


def area(scores: Tensor, is_first: Tensor) -> Tensor:
    """Return the share of pairs of the first class and another one that are in order."""
    return (scores[is_first][:, None] > scores[~is_first]).float().mean().nan_to_num()


class Scored(Counted):
    def evaluate(self, batch: Any) -> Any:
        inputs, targets = batch
        outputs = self.net(inputs)
        right = (outputs.argmax(1) == targets).float()
        return {
            "auc": area(outputs[:, 0], targets == 0),
            "recall": (right[targets == 0].sum(), (targets == 0).sum()),
            "accuracy": right.mean(),
        }


class Summed(Weighted):
    def step(self, batch: Any) -> Any:
        inputs, targets = batch
        return functional.cross_entropy(self.net(inputs), targets, reduction="sum")


class Contrastive(Weighted):
    def step(self, batch: Any) -> Any:
        features = functional.normalize(self.net(batch[0]))
        return functional.cross_entropy(features @ features.T, torch.arange(len(features)))


class Zero(Weighted):
    """What a new model answers hides the weights."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        nn.init.zeros_(self.net[2].weight)
        nn.init.zeros_(self.net[2].bias)


class RandomSum(Weighted):
    def step(self, batch: Any) -> Any:
        return (self.net(batch[0] + 0.1 * torch.randn(batch[0].shape)) ** 2).sum() / 100


class Mean(Weighted):
    def step(self, batch: Any) -> Any:
        return functional.cross_entropy(self.net(batch[0]), batch[1])


class RandomMean(Weighted):
    def step(self, batch: Any) -> Any:
        return (self.net(batch[0] + 0.1 * torch.randn(batch[0].shape)) ** 2).mean()


class Normalised(Weighted):
    """Batch statistics differ in parts, as users of torch know; the loss itself does not."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.net = nn.Sequential(
            nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3)
        )

    def step(self, batch: Any) -> Any:
        return functional.cross_entropy(self.net(batch[0]), batch[1])


class Penalised(Weighted):
    """A penalty on parameters and one on gradients, which the step takes itself."""

    def step(self, batch: Any) -> Any:
        inputs = batch[0].requires_grad_(True)
        outputs = self.net(inputs)
        [gradients] = torch.autograd.grad(outputs.sum(), inputs, create_graph=True)
        penalty = 0.01 * sum(each.square().sum() for each in self.net.parameters())
        return (
            functional.cross_entropy(outputs, batch[1]) + gradients.square().sum(1).mean() + penalty
        )

    def evaluate(self, batch: Any) -> Any:
        return {"loss": functional.cross_entropy(self.net(batch[0]), batch[1])}


DIFFERS = [Weighted, Summed, Contrastive, Zero, RandomSum]
ADDS_UP = [Mean, Counted, RandomMean, Normalised, Penalised]


def experiment(
    kind: type, accumulation: int = 1, workers: int = 1, metric: str = "val_loss"
) -> Experiment:
    plan = {
        "accumulation": accumulation,
        "micro_batch": 16 // accumulation // workers,
        "workers": workers,
    }
    return Experiment(
        train=f"{HERE}:{kind.__name__}",
        data={"name": f"{HERE}:load", "task": "other"},  # type: ignore[arg-type]
        objectives=[{"metric": metric, "goal": "minimize"}],  # type: ignore[list-item]
        training={"epochs": 2, "global_batch": 16, "schedule": "constant"},  # type: ignore[arg-type]
        plan=plan,  # type: ignore[arg-type]
    )


def run(asked: Experiment, folder: Path, **task: Any) -> tuple[TrialEnded, list[Any]]:
    events: list[Any] = []
    order = TrialTask(
        str(folder), 0, 0, asked.model_dump_json(), seed=3, folder=str(folder), **task
    )
    return run_trial(order, lambda event: bool(events.append(event))), events


def weights_of(folder: Path) -> dict[str, Tensor]:
    content = checkpoint.read_latest(folder / "checkpoints")
    assert content is not None
    return content["strategy"]["model"]


@pytest.mark.parametrize("kind", DIFFERS)
def test_a_loss_that_differs_refuses_accumulation_and_states_the_form_that_is_exact(
    kind: type, tmp_path: Path
) -> None:
    ended, events = run(experiment(kind), tmp_path / "whole")
    assert ended.state == "complete", ended.message
    assert [event.divides_batch for event in events if isinstance(event, TrialPlanned)] == [False]
    ended, _ = run(experiment(kind, 4), tmp_path / "parts")
    assert ended.state == "failed"
    for words in ("plan.accumulation", "Let step return its total and its count"):
        assert words in str(ended.message)


@pytest.mark.parametrize("kind", ADDS_UP)
def test_a_loss_that_adds_up_may_be_accumulated(kind: type, tmp_path: Path) -> None:
    ended, events = run(experiment(kind, 2), tmp_path)
    assert ended.state == "complete", ended.message
    assert [event.divides_batch for event in events if isinstance(event, TrialPlanned)] == [True]


def of_rank(rank: int, num_workers: int, meeting: str, folder: str) -> tuple[str, str | None]:
    asked = experiment(Scored, 2, num_workers, "val_auc")
    ended, _ = run(asked, Path(folder), rank=rank, num_workers=num_workers, meeting=meeting)
    return ended.state, ended.message


def test_total_and_count_make_the_steps_of_torch_for_every_division(tmp_path: Path) -> None:
    net = Weighted({}).net
    optimizer = torch.optim.SGD(net.parameters(), lr=0.2)
    for epoch in range(2):
        order = np.random.default_rng([3, epoch]).permutation(NUM_TRAIN)
        for first in range(0, NUM_TRAIN, 16):
            indices = order[first : first + 16]
            optimizer.zero_grad()
            functional.cross_entropy(
                net(INPUTS[indices]), CLASSES[indices], weight=WEIGHTS
            ).backward()
            optimizer.step()
    for accumulation in (1, 4):
        ended, _ = run(experiment(Counted, accumulation), tmp_path / str(accumulation))
        assert ended.state == "complete", ended.message
    for state, message in run_together(of_rank, 2, str(tmp_path / "together")):
        assert state == "complete", message
    for folder in ("1", "4", "together"):
        for name, values in weights_of(tmp_path / folder).items():
            expected = net.state_dict()[name.removeprefix("net.")]
            torch.testing.assert_close(values, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("accumulation", [1, 8])
def test_metrics_of_evaluate_are_those_of_all_samples(accumulation: int, tmp_path: Path) -> None:
    ended, events = run(experiment(Scored, accumulation, metric="val_auc"), tmp_path)
    assert ended.state == "complete", ended.message
    values = [
        event.values
        for event in events
        if isinstance(event, TrialReported) and "val_auc" in event.values
    ]
    scored = Scored({})
    scored.net.load_state_dict({name[4:]: item for name, item in weights_of(tmp_path).items()})
    with torch.no_grad():
        evaluated = scored.evaluate((INPUTS[NUM_TRAIN:], CLASSES[NUM_TRAIN:]))
    assert values[-1]["val_auc"] == pytest.approx(float(evaluated["auc"]), rel=1e-6)
    assert values[-1]["val_accuracy"] == pytest.approx(float(evaluated["accuracy"]), rel=1e-6)
    total, count = evaluated["recall"]
    assert values[-1]["val_recall"] == pytest.approx(float(total / count), rel=1e-6)


class Remembering(Mean):
    """A step that changes what the class holds."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.num_steps, self.losses = 0, deque(maxlen=100)

    def configure(self) -> torch.optim.Optimizer:
        self.net.register_buffer("mean", torch.zeros(()))
        return super().configure()

    def step(self, batch: Any) -> Any:
        self.num_steps += 1
        loss = super().step(batch)
        self.losses.append(loss.item())
        self.net.mean += 1  # type: ignore[operator]
        return loss


def test_looking_leaves_weights_buffers_and_attributes_as_they_were() -> None:
    owner = Remembering({})
    model = OwnSteps(owner, 0.1)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    verdict = judge_own_steps(model, (INPUTS[:16], CLASSES[:16]), CLASSES[:16])
    assert verdict.divisions == {"optimizer": "samples"}
    assert (owner.num_steps, list(owner.losses)) == (0, [])
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    assert owner.net[0].weight.grad is None  # type: ignore[union-attr]
