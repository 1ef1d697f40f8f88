"""A loss that states a total and a count is that of the whole batch, however a step is divided."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.builders.ways import OF_SEVERAL, worker_of
from tests.services.process_group import run_together
from workbench.data.splits import ArraySplit
from workbench.models.parts import DividedLoss
from workbench.strategies import STRATEGIES
from workbench.strategies.group import Group
from workbench.strategies.strategy import StepSettings, Strategy, Worker
from workbench.training.source import Source, WorkerBatch

WEIGHTS = torch.tensor([0.1, 1.0, 7.0])
NUM_SAMPLES, IGNORED = 23, -100
RATE = 0.5


def weighted(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return a class-weighted cross entropy that leaves out ignored targets, as total and count."""
    total = functional.cross_entropy(outputs, targets, weight=WEIGHTS, reduction="sum")
    return total, WEIGHTS[targets.clamp(min=0)][targets != IGNORED].sum()


def net() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))


def samples() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    targets = rng.integers(0, 3, NUM_SAMPLES)
    targets[:4] = IGNORED  # the whole of the first micro batch
    targets[::5] = IGNORED
    return rng.normal(size=(NUM_SAMPLES, 6)).astype(np.float32), targets


def step(strategy: Strategy, worker: Worker, micro_batch: int) -> Tensor:
    batch = WorkerBatch(
        Source(ArraySplit(*samples()), worker.device),
        np.arange(NUM_SAMPLES),
        micro_batch=micro_batch,
        replica=worker.replica,
        num_replicas=worker.num_replicas,
    )
    return strategy.forward_backward(batch)


def make(name: str, worker: Worker, **settings: Any) -> Strategy:
    loss = DividedLoss(weighted, "counts")
    strategy: Strategy = STRATEGIES.load(name)(StepSettings(loss=loss, example=torch.zeros(2, 6), **settings))
    strategy.setup(net(), lambda parameters: torch.optim.SGD(parameters, lr=RATE), worker)
    strategy.train(True)
    return strategy


def of_torch() -> tuple[float, dict[str, Tensor]]:
    """Return the loss of the whole batch and the weights after a step, of plain torch."""
    model, (inputs, targets) = net(), samples()
    loss = functional.cross_entropy(
        model(torch.from_numpy(inputs)), torch.from_numpy(targets), weight=WEIGHTS
    )
    loss.backward()
    torch.optim.SGD(model.parameters(), lr=RATE).step()
    return loss.item(), model.state_dict()


@pytest.mark.parametrize("micro_batch", [1, 2, 4, 23])
def test_micro_batches_make_the_step_of_the_whole_batch(micro_batch: int) -> None:
    strategy = make("single", Worker())
    loss = step(strategy, Worker(), micro_batch).item()
    strategy.update(RATE)
    expected, weights = of_torch()
    assert loss == pytest.approx(expected, abs=1e-6)
    for name, values in strategy.state()["model"].items():
        torch.testing.assert_close(values, weights[name], rtol=1e-6, atol=1e-6)


def test_a_step_that_counts_nothing_changes_nothing() -> None:
    strategy, targets = make("single", Worker()), np.full(4, IGNORED)
    source = Source(ArraySplit(samples()[0][:4], targets), torch.device("cpu"))
    loss = strategy.forward_backward(WorkerBatch(source, np.arange(4), micro_batch=2))
    strategy.update(RATE)
    assert loss.item() == 0.0
    for name, values in strategy.state()["model"].items():
        assert torch.equal(values, net().state_dict()[name])


def test_norms_for_the_noise_are_in_the_unit_of_the_step() -> None:
    alone: Any = make("single", Worker())
    targets = torch.tensor([1, 2, 1, 2, 1, 2, 1, 2])
    source = Source(ArraySplit(samples()[0][:8], targets.numpy()), torch.device("cpu"))
    found = alone.measure(WorkerBatch(source, np.arange(8), micro_batch=2)).sqr_norms
    gradients = []
    for first in range(0, 8, 2):
        model = net()
        inputs = torch.from_numpy(samples()[0][first : first + 2])
        total, _ = weighted(model(inputs), targets[first : first + 2])
        (total / (WEIGHTS[targets].sum() / 4)).backward()
        gradients.append(torch.cat([each.grad.flatten() for each in model.parameters()]))  # type: ignore
    expected = [torch.stack([g.square().sum() for g in gradients]).mean(), sum(gradients).square().sum() / 16]  # type: ignore
    torch.testing.assert_close(found, torch.stack(expected).double(), rtol=1e-5, atol=1e-8)


def steps(rank: int, num_workers: int, meeting: str) -> list[Any]:
    group, results = Group(rank, num_workers, None, meeting), []
    for name in OF_SEVERAL:
        worker = worker_of(name, rank, num_workers, group)
        strategy = make(name, worker)
        share = step(strategy, worker, 4)
        strategy.update(RATE)
        state = strategy.state()["model"]
        results.append((group.total(share).item(), state if rank == 0 else None))
        strategy.close()
    group.close()
    return results


def test_workers_make_the_step_of_the_whole_batch() -> None:
    expected, weights = of_torch()
    for name, (loss, state) in zip(OF_SEVERAL, run_together(steps, 2)[0], strict=True):
        assert loss == pytest.approx(expected, abs=1e-6), name
        for key, values in state.items():
            torch.testing.assert_close(values, weights[key], rtol=1e-6, atol=1e-6, msg=name)
