"""A model in stages makes the steps of one worker, also with several copies of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from test_data_parallel import OPTIMIZERS
from test_sequence import make as make_zoo
from torch import nn
from torch.nn import functional

from tests.builders.ways import worker_of
from tests.services.process_group import run_together
from workbench.foundation.errors import ExperimentError
from workbench.training.strategies.pipeline import Pipeline
from workbench.training.strategies.single import Single
from workbench.training.strategies.strategy import MicroBatch, StepSettings, Worker
from workbench.training.strategies.worker_group import Group

SAMPLES = 21
"""A step has 16 of them, the last one 5."""


class TiedNet(nn.Sequential):
    """Normalisation, dropout of nothing, and a weight that the first and the last stage share."""

    def __init__(self) -> None:
        super().__init__(
            nn.Linear(8, 8),
            nn.BatchNorm1d(8),
            nn.Tanh(),
            nn.Linear(8, 8),
            nn.BatchNorm1d(8),
            nn.Tanh(),
            nn.Linear(8, 8),
            nn.ReLU(inplace=True),
            nn.Linear(8, 8),
        )
        self[-1].weight = self[0].weight


def train(worker: Worker, num_micro_batches: int, schedule: str, **settings: Any) -> dict[str, Any]:
    torch.manual_seed(0)
    kind = Single if worker.num_workers == 1 else Pipeline
    strategy = kind(
        StepSettings(
            loss=functional.cross_entropy, pipeline_schedule=schedule, clip_norm=0.5, **settings
        )
    )
    strategy.setup(TiedNet(), OPTIMIZERS["adamw"], worker)
    strategy.train(True)
    rng = np.random.default_rng(0)
    inputs = torch.from_numpy(rng.normal(size=(SAMPLES, 8)).astype(np.float32))
    targets, losses = torch.from_numpy(rng.integers(0, 8, SAMPLES)), []
    for first, end in ((0, 16), (16, SAMPLES), (0, 16)):
        parts = torch.arange(first, end).tensor_split(min(num_micro_batches, (end - first) // 2))
        batch: Any = [
            MicroBatch(inputs[part], targets[part], len(part) / (end - first)) for part in parts
        ]
        losses.append(worker.group.total(strategy.forward_backward(batch)).item())
        strategy.update(0.05)
    strategy.train(False)
    outputs = strategy.predict(inputs)
    results = {"losses": losses, "outputs": outputs, "state": strategy.state()}
    strategy.close()
    return results


CASES = [
    (count, schedule) for count in (1, 2, 3, 8) for schedule in ("1f1b", "gpipe", "zero_bubble")
]


def train_all(rank: int, num_workers: int, meeting: str) -> list[Any]:
    group = Group(rank, num_workers, None, meeting)
    worker = worker_of("pipeline", rank, num_workers, group)
    trained = [train(worker, *case) for case in CASES]
    group.close()
    return trained


@pytest.mark.slow
@pytest.mark.parametrize("num_stages", [2, 3])
def test_stages_compute_what_one_worker_computes(num_stages: int) -> None:
    answers = run_together(train_all, num_stages)
    for index, (num_micro_batches, schedule) in enumerate(CASES):
        expected = train(Worker(), num_micro_batches, schedule)
        assert answers[0][index]["losses"] == pytest.approx(expected["losses"], rel=1e-6)
        assert all(answer[index]["outputs"] is None for answer in answers[:-1])
        torch.testing.assert_close(
            answers[-1][index]["outputs"], expected["outputs"], rtol=1e-4, atol=1e-5
        )
        state = answers[0][index]["state"]
        assert state["model"].keys() == expected["state"]["model"].keys()
        for name, values in expected["state"]["model"].items():
            torch.testing.assert_close(state["model"][name], values, rtol=1e-4, atol=1e-5)
        assert state["optimizer"]["state"].keys() == expected["state"]["optimizer"]["state"].keys()


def train_replicas(rank: int, num_workers: int, meeting: str, shard: int) -> Any:
    group = Group(rank, num_workers, None, meeting)
    worker = worker_of("pipeline", rank, num_workers, group, per_replica=2)
    torch.manual_seed(0)
    strategy = Pipeline(StepSettings(loss=functional.cross_entropy, clip_norm=0.5, shard=shard))
    strategy.setup(plain_net(), OPTIMIZERS["adamw"], worker)
    losses = []
    for batch in batches(worker.replica, worker.num_replicas):
        losses.append(group.total(strategy.forward_backward(batch)).item())
        strategy.update(0.05)
    state = strategy.state()
    strategy.close()
    group.close()
    return losses, state


def plain_net() -> nn.Module:
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    model[-1].weight = model[0].weight
    return model


def batches(replica: int = 0, num_replicas: int = 1) -> list[Any]:
    rng = np.random.default_rng(1)
    batch_shapes: list[Any] = []
    for _ in range(3):
        inputs = torch.from_numpy(rng.normal(size=(12, 8)).astype(np.float32))
        targets = torch.from_numpy(rng.integers(0, 8, 12))
        micro_batches = [
            MicroBatch(inputs[part], targets[part], len(part) / 12)
            for part in torch.arange(12).chunk(num_replicas)[replica].chunk(2)
        ]
        batch_shapes.append(micro_batches)
    return batch_shapes


@pytest.mark.parametrize("shard", [0, 2])
def test_copies_of_the_stages_share_a_step(shard: int) -> None:
    alone = Single(StepSettings(loss=functional.cross_entropy, clip_norm=0.5))
    torch.manual_seed(0)
    alone.setup(plain_net(), OPTIMIZERS["adamw"], Worker())
    expected = []
    for batch in batches():
        expected.append(alone.forward_backward(batch).item())
        alone.update(0.05)
    for losses, _ in (answers := run_together(train_replicas, 4, shard)):
        assert losses == pytest.approx(expected, rel=1e-5)
    for name, values in alone.state()["model"].items():
        torch.testing.assert_close(answers[0][1]["model"][name], values, rtol=1e-4, atol=1e-5)


def hold(rank: int, num_workers: int, meeting: str) -> int:
    group = Group(rank, num_workers, None, meeting)
    model, inputs = make_zoo("transformer")
    strategy = Pipeline(
        StepSettings(loss=functional.cross_entropy, recompute=True, example=inputs[:2])
    )
    strategy.setup(model, OPTIMIZERS["sgd"], worker_of("pipeline", rank, num_workers, group))
    held = sum(each.numel() for each in strategy._model.parameters())
    batch: Any = [MicroBatch(inputs, torch.zeros(4, 7, dtype=torch.long), 1.0)]
    strategy._settings = StepSettings(loss=lambda outputs, targets: outputs.square().mean())
    strategy.forward_backward(batch)
    assert all(each.grad is not None for each in strategy._model.parameters() if each.requires_grad)
    strategy.close()
    group.close()
    return held


def test_each_stage_holds_a_part_of_the_parameters() -> None:
    model, _ = make_zoo("transformer")
    whole = sum(each.numel() for each in model.parameters())
    tied = model.token_embedding.weight.numel()
    held = run_together(hold, 2)
    assert sum(held) == whole + tied
    assert max(held) < 0.8 * whole


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"precision": "fp16"}, "plan.precision"),
        ({"compiles": True}, "plan.compile"),
        ({"recompute": True}, "plan.recompute"),
    ],
)
def test_what_stages_cannot_do_is_refused(settings: dict[str, Any], field: str) -> None:
    strategy = Pipeline(StepSettings(loss=functional.cross_entropy, **settings))
    with pytest.raises(ExperimentError) as caught:
        strategy.setup(plain_net(), OPTIMIZERS["sgd"], Worker())
    assert caught.value.field == field
