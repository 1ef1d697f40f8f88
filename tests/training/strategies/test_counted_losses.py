"""A loss that states a total and a count is that of the whole batch, however a step is divided."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.builders.ways import OF_SEVERAL, worker_of
from tests.services.process_group import run_together
from workbench.data.splits import ArraySplit
from workbench.models.batch_parts import DividedLoss
from workbench.training.exchanges import EXCHANGES
from workbench.training.exchanges.capabilities import Capabilities
from workbench.training.strategies import STRATEGIES
from workbench.training.strategies.strategy import StepSettings, Strategy, Worker
from workbench.training.strategies.worker_group import Group
from workbench.training.tensor_source import Source, WorkerBatch

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


def step(
    strategy: Strategy,
    worker: Worker,
    micro_batch: int,
    part: tuple[np.ndarray, np.ndarray] | None = None,
) -> Tensor:
    batch = WorkerBatch(
        Source(ArraySplit(*(samples() if part is None else part)), worker.device),
        np.arange(NUM_SAMPLES),
        micro_batch=micro_batch,
        replica=worker.replica,
        num_replicas=worker.num_replicas,
    )
    return strategy.forward_backward(batch)


def make(name: str, worker: Worker, **settings: Any) -> Strategy:
    loss = DividedLoss(weighted, "counts")
    strategy: Strategy = STRATEGIES.load(name)(
        StepSettings(loss=loss, example=torch.zeros(2, 6), **settings)
    )
    strategy.setup(net(), lambda parameters: torch.optim.SGD(parameters, lr=RATE), worker)
    strategy.train(True)
    return strategy


def of_torch(
    part: tuple[np.ndarray, np.ndarray] | None = None,
    *,
    clip_norm: float | None = None,
    dtype: Any = None,
) -> tuple[float, dict[str, Tensor]]:
    """Return the loss of the whole batch and the weights after a step, of plain torch."""
    model, (inputs, targets) = net(), samples() if part is None else part
    with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
        outputs = model(torch.from_numpy(inputs))
        loss = functional.cross_entropy(outputs, torch.from_numpy(targets), weight=WEIGHTS)
    loss.backward()
    if clip_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
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
    norms = alone.measure(WorkerBatch(source, np.arange(8), micro_batch=2)).sqr_norms
    gradients = []
    for first in range(0, 8, 2):
        model = net()
        inputs = torch.from_numpy(samples()[0][first : first + 2])
        total, _ = weighted(model(inputs), targets[first : first + 2])
        (total / (WEIGHTS[targets].sum() / 4)).backward()
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))  # type: ignore
    expected = [
        torch.stack([g.square().sum() for g in gradients]).mean(),
        sum(gradients).square().sum() / 16,
    ]  # type: ignore
    torch.testing.assert_close(norms, torch.stack(expected).double(), rtol=1e-5, atol=1e-8)


PRECISIONS: dict[str, tuple[dict[str, Any], dict[str, Any], float]] = {
    "clipping": ({"clip_norm": 0.05}, {"clip_norm": 0.05}, 1e-6),
    "recomputing": ({"recompute": True}, {}, 1e-6),
    "bf16": ({"precision": "bf16"}, {"dtype": torch.bfloat16}, 1e-2),
    "fp16": ({"precision": "fp16"}, {"dtype": torch.float16}, 2e-3),
    "fp16 and clipping": (
        {"precision": "fp16", "clip_norm": 0.05},
        {"dtype": torch.float16, "clip_norm": 0.05},
        2e-3,
    ),
}


@pytest.mark.parametrize("kind", PRECISIONS)
def test_other_settings_of_a_step_see_the_gradient_of_the_whole_batch(kind: str) -> None:
    settings, of_plain, tolerance = PRECISIONS[kind]
    strategy = make("single", Worker(), **settings)
    loss = step(strategy, Worker(), 4).item()
    strategy.update(RATE)
    expected, weights = of_torch(**of_plain)
    assert loss == pytest.approx(expected, abs=tolerance)
    for name, values in strategy.state()["model"].items():
        torch.testing.assert_close(values, weights[name], rtol=tolerance, atol=tolerance)


@pytest.mark.slow
def test_a_compiled_model_makes_the_step_of_the_whole_batch() -> None:
    strategy = make("single", Worker(), compiles=True)
    step(strategy, Worker(), 4)
    strategy.update(RATE)
    for name, values in strategy.state()["model"].items():
        torch.testing.assert_close(values, of_torch()[1][name], rtol=1e-5, atol=1e-6)
    strategy.close()


def of_one_rank() -> tuple[np.ndarray, np.ndarray]:
    """Return samples of which the whole part of one of two workers counts nothing."""
    inputs, targets = samples()
    targets[: -(-NUM_SAMPLES // 2)] = IGNORED
    targets[-3:] = [0, 1, 2]
    return inputs, targets


class Seen:
    """An exchange that notes what it is given, and adds what it left out to the next step."""

    capabilities = Capabilities(scales_loss=False)

    def setup(self, parameters: Any, replicas: Any) -> None:
        self.group, self.buffers = replicas, []

    def reduce(self, bucket: Any) -> Any:
        self.buffers.append(bucket.buffer().clone())
        return (
            torch.distributed.all_reduce(
                bucket.buffer().div_(2), group=self.group.torch_group(), async_op=True
            )
            .get_future()
            .then(lambda done: done.value()[0])
        )

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, state: Any) -> None:
        pass


def steps(rank: int, num_workers: int, meeting: str) -> dict[str, Any]:
    group = Group(rank, num_workers, None, meeting)
    results: dict[str, Any] = {}

    def run(key: str, name: str, part: Any = None, **settings: Any) -> None:
        worker = worker_of(name, rank, num_workers, group)
        strategy = make(name, worker, **settings)
        share = step(strategy, worker, 4, part)
        strategy.update(RATE)
        strategy.train(False)  # replicas that make steps of their own agree
        state = strategy.state()["model"]
        results[key] = group.total(share).item(), state if rank == 0 else None
        strategy.close()

    for name in OF_SEVERAL:
        run(name, name)
    run("empty rank", "ddp", of_one_rank())
    run("clipping", "ddp", clip_norm=0.05)
    for exchange in ("bf16", "local"):
        plan: Any = SimpleNamespace(exchange_period=1, exchange=exchange)
        run(exchange, "ddp", exchange=EXCHANGES.load(exchange)(plan))
    seen: Any = Seen()
    run("residuals", "ddp", exchange=seen)
    results["exchanged"] = torch.cat(seen.buffers)
    group.close()
    return results


@pytest.fixture(scope="module")
def together() -> list[dict[str, Any]]:
    """What two workers make of a step in each way."""
    return run_together(steps, 2)


WAYS: dict[str, tuple[Any, float]] = {
    **dict.fromkeys(OF_SEVERAL, (of_torch, 1e-06)),
    "empty rank": (lambda: of_torch(of_one_rank()), 1e-6),
    "clipping": (lambda: of_torch(clip_norm=0.05), 1e-6),
    "bf16": (of_torch, 1e-2),
    "residuals": (of_torch, 1e-6),
}


@pytest.mark.parametrize("kind", WAYS)
def test_workers_make_the_step_of_the_whole_batch(
    kind: str, together: list[dict[str, Any]]
) -> None:
    make_expected, tolerance = WAYS[kind]
    expected, weights = make_expected()
    loss, state = together[0][kind]
    assert loss == pytest.approx(expected, abs=tolerance)
    for name, values in state.items():
        torch.testing.assert_close(values, weights[name], rtol=tolerance, atol=tolerance)


def test_workers_that_step_by_themselves_each_make_the_step_of_their_part(
    together: list[dict[str, Any]],
) -> None:
    inputs, targets = samples()
    half = -(-NUM_SAMPLES // 2)
    losses, weights = zip(
        *(of_torch((inputs[part], targets[part])) for part in (slice(half), slice(half, None))),
        strict=True,
    )
    loss, state = together[0]["local"]
    assert loss == pytest.approx(sum(losses) / 2, abs=1e-6)
    for name, values in state.items():
        mean = (weights[0][name] + weights[1][name]) / 2
        torch.testing.assert_close(values, mean, rtol=1e-6, atol=1e-6)


def test_what_an_exchange_keeps_for_later_steps_is_in_the_unit_of_the_gradient(
    together: list[dict[str, Any]],
) -> None:
    """Steps count differently, so that what is left of totals would weigh otherwise in the next
    one.
    """
    model, (inputs, targets) = net(), samples()
    functional.cross_entropy(
        model(torch.from_numpy(inputs)), torch.from_numpy(targets), weight=WEIGHTS
    ).backward()
    expected = torch.cat(
        [parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None]
    )
    mean = (together[0]["exchanged"] + together[1]["exchanged"]) / 2
    torch.testing.assert_close(mean.sort().values, expected.sort().values, rtol=1e-4, atol=1e-6)
