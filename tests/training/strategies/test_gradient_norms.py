"""A measured step is the step that it would have been.

Its norms are those of its parts and of its whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.builders.ways import OF_REPLICAS
from tests.services.process_group import run_together
from workbench.data.splits import ArraySplit
from workbench.training.strategies import STRATEGIES
from workbench.training.strategies.strategy import StepSettings, Strategy, Worker
from workbench.training.strategies.worker_group import Group
from workbench.training.tensor_source import Source, WorkerBatch

GLOBAL_BATCH = 24
STEPS = 4


class Net(nn.Module):
    """Blocks that fsdp cuts apart, and a layer that no gradient reaches."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 330)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(330, 330), nn.Tanh()) for _ in range(2))
        self.out = nn.Linear(330, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(inputs))
        for block in self.blocks:
            hidden = hidden + block(hidden)
        return self.out(hidden)


class Words(nn.Module):
    """Sparse gradients, and a layer that no gradient reaches."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(9, 4, sparse=True)
        self.out = nn.Linear(4, 3)
        self.unused = nn.Linear(4, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.out(self.words((inputs[:, 0] > 0).long() + 1))


def source() -> Source:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(GLOBAL_BATCH, 6)).astype(np.float32)
    return Source(ArraySplit(inputs, rng.integers(0, 3, GLOBAL_BATCH)), torch.device("cpu"))


def make(name: str, worker: Worker, model: type[nn.Module] = Net, **settings: Any) -> Strategy:
    torch.manual_seed(0)
    strategy: Strategy = STRATEGIES.load(name)(
        StepSettings(loss=functional.cross_entropy, **settings)
    )
    strategy.setup(model(), lambda parameters: torch.optim.SGD(parameters, lr=0.1), worker)
    strategy.train(True)
    return strategy


def batch(worker: Worker, micro_batch: int) -> WorkerBatch:
    return WorkerBatch(
        source(),
        np.arange(GLOBAL_BATCH),
        micro_batch=micro_batch,
        replica=worker.replica,
        num_replicas=worker.num_replicas,
    )


def train(
    strategy: Strategy, worker: Worker, micro_batch: int, *, measure: bool
) -> tuple[Any, Any]:
    """Train some steps; return the weights and, of the first step, both squared norms over all
    workers.
    """
    norms: list[torch.Tensor] = []
    for _ in range(STEPS):
        if measure:
            loss, sqr_norms = strategy.measure(batch(worker, micro_batch))
            norms.append(worker.group.total(sqr_norms))
        else:
            loss = strategy.forward_backward(batch(worker, micro_batch))
        assert not loss.requires_grad
        strategy.update(0.1)
    return strategy.state()["model"], norms[0].tolist() if norms else None


def expected_norms(part_batch: int, model: type[nn.Module] = Net) -> list[float]:
    """Both squared norms from gradients that plain torch computes, one part at a time."""
    torch.manual_seed(0)
    net = model()
    parameters = list(net.parameters())

    def gradient(indices: np.ndarray) -> torch.Tensor:
        inputs, targets = source().fetch(indices)
        loss = functional.cross_entropy(net(inputs), targets)
        parts = torch.autograd.grad(loss, parameters, allow_unused=True)
        return torch.cat([part.to_dense().flatten() for part in parts if part is not None]).double()

    everything = np.arange(GLOBAL_BATCH)
    parts = [everything[first : first + part_batch] for first in range(0, GLOBAL_BATCH, part_batch)]
    part_sqr_norms = [gradient(part).square().sum().item() for part in parts]
    return [float(np.mean(part_sqr_norms)), gradient(everything).square().sum().item()]


def assert_equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


@pytest.mark.parametrize(
    "settings",
    [{}, {"clip_norm": 0.01}, {"recompute": True}, {"precision": "fp16", "clip_norm": 0.01}],
    ids=str,
)
def test_accumulated_steps_stay_what_they_are_and_tell_their_norms(
    settings: dict[str, Any],
) -> None:
    plain, _ = train(make("single", Worker(), **settings), Worker(), 6, measure=False)
    measured, norms = train(make("single", Worker(), **settings), Worker(), 6, measure=True)
    assert_equal(measured, plain)
    assert norms == pytest.approx(expected_norms(6), rel=0.01 if "precision" in settings else 1e-5)


def test_unequal_parts_count_by_themselves_and_the_gradient_is_that_of_the_whole() -> None:
    plain, _ = train(make("single", Worker()), Worker(), GLOBAL_BATCH, measure=False)
    measured, norms = train(make("single", Worker()), Worker(), 13, measure=True)
    assert norms == pytest.approx(expected_norms(13), rel=1e-5)
    for name, value in measured.items():
        torch.testing.assert_close(value, plain[name], rtol=1e-5, atol=1e-6)


def test_sparse_gradients_and_parameters_without_any_are_counted_right() -> None:
    plain, _ = train(make("single", Worker(), Words), Worker(), 6, measure=False)
    measured, norms = train(make("single", Worker(), Words), Worker(), 6, measure=True)
    assert_equal(measured, plain)
    assert norms == pytest.approx(expected_norms(6, Words), rel=1e-5)


def test_later_steps_walk_through_no_hooks_but_those_of_the_person() -> None:
    strategy = make("single", Worker())
    first, *others = list(strategy._model.parameters())  # pyright: ignore
    seen: list[int] = []
    first.register_hook(lambda gradient: seen.append(1))
    train(strategy, Worker(), 6, measure=True)
    assert seen
    assert first._backward_hooks
    assert all(leaf._backward_hooks is None for leaf in others)


def train_both(rank: int, num_workers: int, meeting: str, name: str, micro_batch: int) -> Any:
    group = Group(rank, num_workers, None, meeting)
    worker = Worker(rank, num_workers, group=group)
    results = []
    for measure in (False, True):
        strategy = make(name, worker, clip_norm=0.05)
        model, norms = train(strategy, worker, micro_batch, measure=measure)
        results.append(
            ({name: value.clone() for name, value in model.items()} if rank == 0 else {}, norms)
        )
        strategy.close()
    group.close()
    return results


@pytest.mark.parametrize("micro_batch", [12, 4])
@pytest.mark.parametrize("name", OF_REPLICAS)
def test_steps_of_two_workers_stay_what_they_are_and_tell_their_norms(
    name: str, micro_batch: int
) -> None:
    ((plain, _), (measured, norms)), (_, (_, seen_by_other)) = run_together(
        train_both, 2, name, micro_batch
    )
    assert_equal(measured, plain)
    assert norms == pytest.approx(expected_norms(micro_batch), rel=1e-5)
    assert seen_by_other == norms


@pytest.mark.parametrize("name", OF_REPLICAS)
def test_one_worker_alone_measures_with_every_strategy(name: str) -> None:
    worker = Worker()
    strategy = make(name, worker)
    try:
        _, norms = train(strategy, worker, 6, measure=True)
    finally:
        strategy.close()
        worker.group.close()
    assert norms == pytest.approx(expected_norms(6), rel=1e-5)
