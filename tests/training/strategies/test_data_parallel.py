"""N workers make the step that one worker makes, whatever the strategy and however batches are
cut.
"""

from __future__ import annotations

import io
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.builders.ways import OF_REPLICAS, OF_SEVERAL, worker_of
from tests.services.process_group import run_together
from workbench.data.splits import ArraySplit
from workbench.training.strategies import STRATEGIES
from workbench.training.strategies.strategy import StepSettings, Strategy, Worker
from workbench.training.strategies.worker_group import Group
from workbench.training.tensor_source import Source, WorkerBatch

NUM_SAMPLES = 61
GLOBAL_BATCH = 24
STEPS = 6
"""Two epochs: steps of 24, 24 and 13 samples, so that workers share them unevenly."""
OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=9.0, momentum=0.9),
    # With torch's epsilon Adam makes a full step of every rounding error in a gradient near 0.
    "adamw": lambda parameters: torch.optim.AdamW(parameters, eps=1e-3),
}
CASES = [
    (strategy, *settings)
    for strategy in OF_SEVERAL
    for settings in ((12, "sgd", None), (5, "adamw", 0.5))
]
"""Strategies, sizes of micro batches, optimizers, and the norms to which gradients are clipped."""


class Net(nn.Module):
    """Large blocks in a list, which fsdp cuts apart, a small layer around them, and a tied
    weight.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 330)
        self.blocks = nn.ModuleList([nn.Linear(330, 330), nn.Linear(330, 330)])
        self.up, self.down = nn.Linear(330, 12), nn.Linear(12, 330)
        self.last = nn.Linear(330, 330)
        self.out = nn.Linear(330, 3)
        self.last.weight = self.blocks[1].weight

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(inputs))
        for block in self.blocks:
            hidden = hidden + torch.tanh(block(hidden))
        hidden = hidden + self.down(torch.tanh(self.up(hidden)))
        return self.out(torch.tanh(self.last(hidden)))

    def layer_pairs(self) -> list[tuple[str, str, int]]:
        return [("up", "down", 1)]

    def pieces(self) -> list[Any]:
        def add(block: nn.Module) -> Any:
            return lambda hidden: hidden + torch.tanh(block(hidden))

        return [
            (lambda inputs: torch.tanh(self.first(inputs)), self.first),
            *((add(block), block) for block in self.blocks),
            (lambda hidden: hidden + self.down(torch.tanh(self.up(hidden))), self.up, self.down),
            (lambda hidden: self.out(torch.tanh(self.last(hidden))), self.last, self.out),
        ]


def source() -> Source:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(NUM_SAMPLES, 6)).astype(np.float32)
    return Source(ArraySplit(inputs, rng.integers(0, 3, NUM_SAMPLES)), torch.device("cpu"))


def make(
    name: str, worker: Worker, *, optimizer: str = "sgd", clip_norm: float | None = None
) -> Strategy:
    torch.manual_seed(0)
    strategy: Strategy = STRATEGIES.load(name)(
        StepSettings(loss=functional.cross_entropy, clip_norm=clip_norm)
    )
    strategy.setup(Net(), OPTIMIZERS[optimizer], worker)
    strategy.train(True)
    return strategy


def train(
    strategy: Strategy, worker: Worker, micro_batch: int, steps: range = range(STEPS)
) -> list[float]:
    """Train steps that visit all samples in order, the last of each epoch smaller.

    Return mean losses.
    """
    samples, losses = source(), []
    cuts = [
        np.arange(NUM_SAMPLES)[first : first + GLOBAL_BATCH]
        for first in range(0, NUM_SAMPLES, GLOBAL_BATCH)
    ]
    for step in steps:
        indices = cuts[step % len(cuts)]
        batch = WorkerBatch(
            samples,
            indices,
            micro_batch=micro_batch,
            replica=worker.replica,
            num_replicas=worker.num_replicas,
        )
        share = strategy.forward_backward(batch)
        losses.append(worker.group.total(share).item())
        strategy.update(0.01 / (1 + step))
    return losses


def train_cases(rank: int, num_workers: int, meeting: str, cases: list[Any]) -> list[Any]:
    group = Group(rank, num_workers, None, meeting)
    results = []
    for name, micro_batch, optimizer, clip_norm in cases:
        worker = worker_of(name, rank, num_workers, group)
        strategy = make(name, worker, optimizer=optimizer, clip_norm=clip_norm)
        losses = train(strategy, worker, micro_batch)
        state = strategy.state()
        results.append((losses, state["model"] if rank == 0 else None))
        strategy.close()
    group.close()
    return results


@cache
def train_alone(
    optimizer: str, clip_norm: float | None
) -> tuple[list[float], dict[str, torch.Tensor]]:
    alone = make("single", Worker(), optimizer=optimizer, clip_norm=clip_norm)
    losses = train(alone, Worker(), GLOBAL_BATCH)
    return losses, alone.state()["model"]


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.slow)])
def trained(request: pytest.FixtureRequest) -> dict[Any, Any]:
    """What groups of 2 and of 3 workers made of every case."""
    return dict(zip(CASES, run_together(train_cases, request.param, CASES)[0], strict=True))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_n_workers_train_parameter_for_parameter_like_one(
    case: Any, trained: dict[Any, Any]
) -> None:
    expected_losses, expected = train_alone(*case[2:])
    losses, model = trained[case]
    assert losses == pytest.approx(expected_losses, rel=2e-5)
    assert model.keys() == expected.keys()
    for name, values in model.items():
        torch.testing.assert_close(values, expected[name], rtol=1e-4, atol=1e-5)
    assert len({round(loss, 6) for loss in losses}) > 1, "nothing was learnt"


def go_on(rank: int, num_workers: int, meeting: str, name: str, state: bytes) -> Any:
    group = Group(rank, num_workers, None, meeting)
    worker = worker_of(name, rank, num_workers, group)
    strategy = make(name, worker, optimizer="adamw")
    strategy.load(torch.load(io.BytesIO(state)))
    train(strategy, worker, 4, range(3, 6))
    whole = strategy.state()
    group.close()
    return whole if rank == 0 else None


@pytest.mark.parametrize("name", OF_SEVERAL)
def test_a_state_goes_on_in_another_strategy_and_with_another_number_of_workers(name: str) -> None:
    whole = make("single", Worker(), optimizer="adamw")
    train(whole, Worker(), GLOBAL_BATCH)
    alone = make("single", Worker(), optimizer="adamw")
    train(alone, Worker(), GLOBAL_BATCH, range(3))
    written = io.BytesIO()
    torch.save(alone.state(), written)
    state = run_together(go_on, 2, name, written.getvalue())[0]
    for key, expected in whole.state()["model"].items():
        torch.testing.assert_close(state["model"][key], expected, rtol=1e-4, atol=2e-5)
    back = make("single", Worker(), optimizer="adamw")
    back.load(state)
    train(back, Worker(), GLOBAL_BATCH, range(6, 9))
    train(whole, Worker(), GLOBAL_BATCH, range(6, 9))
    for key, expected in whole.state()["model"].items():
        torch.testing.assert_close(back.state()["model"][key], expected, rtol=1e-4, atol=2e-5)


def normalise(rank: int, num_workers: int, meeting: str, name: str) -> Any:
    group = Group(rank, num_workers, None, meeting)
    torch.manual_seed(0)
    strategy: Strategy = STRATEGIES.load(name)(StepSettings(loss=functional.cross_entropy))
    model = nn.Sequential(nn.BatchNorm1d(6, momentum=1.0), nn.Linear(6, 3))
    strategy.setup(model, torch.optim.AdamW, Worker(rank, num_workers, group=group))
    strategy.train(True)
    batch = WorkerBatch(
        source(), np.arange(60), micro_batch=30, replica=rank, num_replicas=num_workers
    )
    strategy.forward_backward(batch)
    strategy.train(False)
    mean = model[0].running_mean.clone()
    group.close()
    return mean


@pytest.mark.parametrize("name", OF_REPLICAS)
def test_all_workers_evaluate_with_the_mean_of_their_batch_statistics(name: str) -> None:
    first, second = run_together(normalise, 2, name)
    inputs, _ = source().fetch(np.arange(60))
    torch.testing.assert_close(first, inputs.mean(0))
    torch.testing.assert_close(second, first)


@pytest.mark.parametrize("name", OF_SEVERAL)
def test_one_worker_needs_nobody_to_meet(name: str) -> None:
    group = Group()
    alone = make(name, Worker(group=group))
    losses = train(alone, Worker(), GLOBAL_BATCH)
    assert losses == pytest.approx(
        train(make("single", Worker()), Worker(), GLOBAL_BATCH), rel=1e-5
    )
    alone.close()
    group.close()


def exchange(rank: int, num_workers: int, meeting: str) -> Any:
    group = Group(rank, num_workers, None, meeting)
    gathered = group.total(torch.tensor([1.0, rank])).tolist(), group.gather({"rank": rank})
    group.close()
    again = Group(rank, num_workers, None, meeting + "-next")
    total = again.total(torch.tensor(1.0)).item()
    again.close()
    return *gathered, total


def test_workers_add_up_and_gather_and_meet_again() -> None:
    for gathered in run_together(exchange, 3):
        assert gathered == ([3.0, 3.0], [{"rank": 0}, {"rank": 1}, {"rank": 2}], 3.0)
