"""Computing blocks again changes nothing but what is kept."""

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
from workbench.errors import ExperimentError
from workbench.strategies import STRATEGIES
from workbench.strategies.group import Group
from workbench.strategies.recompute import recompute_blocks
from workbench.strategies.strategy import StepSettings, Strategy, Worker
from workbench.training.source import Source, WorkerBatch

NUM_SAMPLES = 24


class Block(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(330, 330), nn.BatchNorm1d(330), nn.Tanh(), nn.Dropout(dropout))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs + self.layers(inputs)


class Net(nn.Module):
    """Composite blocks in a list, and a chain of plain layers."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.first = nn.Linear(6, 330)
        self.blocks = nn.ModuleList([Block(dropout), Block(dropout)])
        self.chain = nn.Sequential(
            nn.Linear(330, 330),
            nn.Tanh(),
            nn.Dropout(dropout),
            nn.Linear(330, 330),
            nn.BatchNorm1d(330),
            nn.Tanh(),
        )
        self.out = nn.Linear(330, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = self.first(inputs)
        for block in self.blocks:
            hidden = block(hidden)
        return self.out(self.chain(hidden))


def make(name: str, worker: Worker, *, recompute: bool, dropout: float = 0.0) -> Strategy:
    torch.manual_seed(0)
    settings = StepSettings(loss=functional.cross_entropy, recompute=recompute)
    strategy: Strategy = STRATEGIES.load(name)(settings)
    strategy.setup(Net(dropout), lambda parameters: torch.optim.SGD(parameters, lr=9.0, momentum=0.9), worker)
    strategy.train(True)
    return strategy


def train(strategy: Strategy, worker: Worker) -> list[float]:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(NUM_SAMPLES, 6)).astype(np.float32)
    source = Source(ArraySplit(inputs, rng.integers(0, 3, NUM_SAMPLES)), torch.device("cpu"))
    losses = []
    for _ in range(3):
        batch = WorkerBatch(
            source,
            np.arange(NUM_SAMPLES),
            micro_batch=6,
            replica=worker.replica,
            num_replicas=worker.num_replicas,
        )
        losses.append(worker.group.total(strategy.forward_backward(batch)).item())
        strategy.update(0.05)
    return losses


def test_a_step_is_the_same_with_dropout_and_running_statistics() -> None:
    plain, again = (make("single", Worker(), recompute=flag, dropout=0.5) for flag in (False, True))
    torch.manual_seed(1)
    expected_losses = train(plain, Worker())
    torch.manual_seed(1)
    losses = train(again, Worker())
    assert losses == expected_losses
    assert len(set(losses)) == 3
    expected, state = plain.state()["model"], again.state()["model"]
    assert state.keys() == expected.keys()
    for name, values in state.items():
        torch.testing.assert_close(values, expected[name], rtol=0, atol=0)
    inputs = torch.ones(4, 6)
    for strategy in (plain, again):
        strategy.train(False)
    torch.testing.assert_close(again.predict(inputs), plain.predict(inputs), rtol=0, atol=0)


def kept_bytes(strategy: Strategy) -> int:
    """What the forward pass keeps for the backward pass."""
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = strategy._trained(torch.ones(512, 6))  # type: ignore[attr-defined]
    del output
    return sum(kept.values())


def test_less_is_kept() -> None:
    plain, again = (make("single", Worker(), recompute=flag) for flag in (False, True))
    assert kept_bytes(again) < 0.75 * kept_bytes(plain)


@pytest.mark.parametrize(
    ("model", "num_blocks"),
    [
        (Net(), 4),  # two blocks, and six plain layers in two pieces
        (nn.Sequential(*(nn.Linear(2, 2) for _ in range(16))), 4),
        (nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2)), 0),
        (nn.LSTM(2, 2), 0),
    ],
)
def test_blocks_are_found(model: nn.Module, num_blocks: int) -> None:
    assert recompute_blocks(model) == num_blocks


def test_a_model_without_blocks_is_refused() -> None:
    strategy = STRATEGIES.load("single")(StepSettings(loss=functional.cross_entropy, recompute=True))
    with pytest.raises(ExperimentError, match=r"plan\.recompute: the model has no blocks"):
        strategy.setup(nn.Linear(2, 2), torch.optim.SGD, Worker())


def train_together(rank: int, num_workers: int, meeting: str, names: list[str]) -> list[Any]:
    group = Group(rank, num_workers, None, meeting)
    worker = Worker(rank, num_workers, group=group)
    results = []
    for name in names:
        for recompute in (False, True):
            strategy = make(name, worker, recompute=recompute)
            losses = train(strategy, worker)
            state = strategy.state()["model"]
            results.append((losses, state if rank == 0 else None))
            strategy.close()
    group.close()
    return results


def test_workers_together_compute_again_what_they_would_have_kept() -> None:
    results = run_together(train_together, 2, list(OF_REPLICAS))[0]
    for (expected_losses, expected), (losses, state) in zip(results[::2], results[1::2], strict=True):
        assert losses == pytest.approx(expected_losses, rel=1e-5)
        for name, values in state.items():
            torch.testing.assert_close(values, expected[name], rtol=1e-4, atol=1e-5)
