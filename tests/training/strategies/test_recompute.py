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
from workbench.foundation.errors import ExperimentError
from workbench.training.strategies import STRATEGIES
from workbench.training.strategies.kept_blocks import measure_pass
from workbench.training.strategies.recompute import has_blocks, recompute_blocks
from workbench.training.strategies.strategy import MicroBatch, StepSettings, Strategy, Worker
from workbench.training.strategies.worker_group import Group
from workbench.training.tensor_source import Source, WorkerBatch

NUM_SAMPLES = 24
KEPT_BYTES = 80_000
"""Enough for some of the blocks of a micro batch."""


class Block(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(330, 330), nn.BatchNorm1d(330), nn.Tanh(), nn.Dropout(dropout)
        )

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


def make(
    name: str,
    worker: Worker,
    *,
    recompute: bool,
    dropout: float = 0.0,
    kept_bytes: int | None = None,
) -> Strategy:
    torch.manual_seed(0)
    settings = StepSettings(
        loss=functional.cross_entropy, recompute=recompute, kept_bytes=kept_bytes
    )
    strategy: Strategy = STRATEGIES.load(name)(settings)
    strategy.setup(
        Net(dropout), lambda parameters: torch.optim.SGD(parameters, lr=9.0, momentum=0.9), worker
    )
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


def kept_bytes(strategy: Strategy, inputs: torch.Tensor, targets: torch.Tensor) -> int:
    """What autograd keeps of a forward pass beside parameters and statistics."""
    model: nn.Module = strategy._model  # type: ignore[attr-defined]
    persistent = {
        each.untyped_storage().data_ptr() for each in (*model.parameters(), *model.buffers())
    }
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = functional.cross_entropy(strategy._trained(inputs), targets)  # type: ignore[attr-defined]
    del loss
    return sum(size for pointer, size in kept.items() if pointer not in persistent)


def test_less_is_kept() -> None:
    plain, again = (make("single", Worker(), recompute=flag) for flag in (False, True))
    batch = torch.ones(512, 6), torch.zeros(512, dtype=torch.int64)
    assert kept_bytes(again, *batch) < 0.75 * kept_bytes(plain, *batch)


@pytest.mark.parametrize(
    ("model", "num_blocks"),
    [
        (Net(), 4),  # two blocks, and six plain layers in two pieces
        (nn.Sequential(*(nn.Linear(2, 2) for _ in range(16))), 4),
    ],
)
def test_blocks_are_found(model: nn.Module, num_blocks: int) -> None:
    assert has_blocks(model)
    assert len(recompute_blocks(model)) == num_blocks


@pytest.mark.parametrize(
    "model",
    [nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2)), nn.LSTM(2, 2)],
)
def test_a_model_without_blocks_is_refused(model: nn.Module) -> None:
    assert not has_blocks(model)
    strategy = STRATEGIES.load("single")(
        StepSettings(loss=functional.cross_entropy, recompute=True)
    )
    with pytest.raises(ExperimentError, match=r"plan\.recompute: the model has no blocks"):
        strategy.setup(model, torch.optim.SGD, Worker())


def choose(limit_bytes: int, dropout: float = 0.5) -> Strategy:
    return make("single", Worker(), recompute=True, dropout=dropout, kept_bytes=limit_bytes)


def choices(strategy: Strategy) -> list[bool]:
    return [block.is_recomputed for block in strategy._blocks]  # type: ignore[attr-defined]


def test_only_what_may_not_be_kept_is_computed_again_and_the_step_is_the_same() -> None:
    batch = (torch.randn(512, 6), torch.randint(0, 3, (512,)))
    plain = make("single", Worker(), recompute=False, dropout=0.5)
    meter = make("single", Worker(), recompute=True, dropout=0.5)
    before = {name: tensor.clone() for name, tensor in meter._model.state_dict().items()}  # type: ignore[attr-defined]
    random_state = torch.get_rng_state()
    model: Any = meter._model  # type: ignore[attr-defined]
    _, cost = measure_pass(
        meter._blocks,
        model,
        lambda: functional.cross_entropy(model(batch[0]), batch[1]),  # type: ignore[attr-defined]
    )
    assert torch.equal(random_state, torch.get_rng_state())
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())
    assert cost.least_bytes < cost.most_bytes
    found: list[list[bool]] = []
    torch.manual_seed(1)
    expected = gradients(plain, batch)
    for limit_bytes in (
        cost.most_bytes,
        (cost.least_bytes + cost.most_bytes) // 2,
        cost.least_bytes,
    ):
        strategy = choose(limit_bytes)
        torch.manual_seed(1)
        same = gradients(strategy, batch)
        assert all(torch.equal(each, other) for each, other in zip(same, expected, strict=True))
        found.append(choices(strategy))
        assert kept_bytes(strategy, *batch) <= limit_bytes + batch[0].nbytes + batch[1].nbytes
    assert found[0] == [False] * 4
    assert 0 < sum(found[1]) < 4
    assert sum(found[2]) > sum(found[1])
    with pytest.raises(
        ExperimentError, match=rf"plan\.recompute: .* allowed: at least {cost.least_bytes}B"
    ):
        gradients(choose(cost.least_bytes - 1), batch)


def gradients(strategy: Strategy, batch: tuple[torch.Tensor, torch.Tensor]) -> list[torch.Tensor]:
    strategy.forward_backward([MicroBatch(*batch, 1.0)])
    return [parameter.grad.clone() for parameter in strategy._parameters]  # type: ignore[attr-defined]


def test_predicted_bytes_are_those_that_are_kept() -> None:
    """Counted from outside, over what autograd holds at the end of the forward pass."""
    batch = (torch.randn(512, 6), torch.randint(0, 3, (512,)))
    strategy = choose(10**9)
    model: Any = strategy._model  # type: ignore[attr-defined]
    blocks: Any = strategy._blocks  # type: ignore[attr-defined]
    _, cost = measure_pass(
        blocks, model, lambda: functional.cross_entropy(model(batch[0]), batch[1])
    )
    for kept in ([True] * 4, [True, False, False, True], [False, True, False, True], [False] * 4):
        for block, is_kept in zip(blocks, kept, strict=True):
            block.is_recomputed = not is_kept
        held = sum(each.before_bytes for each in cost.blocks) + cost.after_bytes
        held += sum(
            each.own_bytes for each, is_kept in zip(cost.blocks, kept, strict=True) if is_kept
        )
        assert kept_bytes(strategy, *batch) == held


def train_together(rank: int, num_workers: int, meeting: str, names: list[str]) -> list[Any]:
    group = Group(rank, num_workers, None, meeting)
    worker = Worker(rank, num_workers, group=group)
    results = []
    for name in names:
        for recompute, kept in ((False, None), (True, None), (True, KEPT_BYTES)):
            strategy = make(name, worker, recompute=recompute, kept_bytes=kept)
            losses = train(strategy, worker)
            state = strategy.state()["model"]
            if kept is not None:
                assert 0 < sum(choices(strategy)) < 4
            results.append((losses, state if rank == 0 else None))
            strategy.close()
    group.close()
    return results


def test_workers_together_compute_again_what_they_would_have_kept() -> None:
    results = run_together(train_together, 2, list(OF_REPLICAS))[0]
    for number, (expected_losses, expected) in enumerate(results[::3]):
        for losses, state in results[3 * number + 1 : 3 * number + 3]:
            assert losses == pytest.approx(expected_losses, rel=1e-5)
            for name, values in state.items():
                torch.testing.assert_close(values, expected[name], rtol=1e-4, atol=1e-5)
