"""The step of one worker."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from workbench.data.splits import ArraySplit
from workbench.training.strategies import STRATEGIES
from workbench.training.strategies.single import Single
from workbench.training.strategies.strategy import StepSettings, Worker
from workbench.training.tensor_source import Source, WorkerBatch

NUM_SAMPLES = 70


def source() -> Source:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(NUM_SAMPLES, 6)).astype(np.float32)
    return Source(ArraySplit(inputs, rng.integers(0, 3, NUM_SAMPLES)), torch.device("cpu"))


def make(**settings: object) -> tuple[nn.Module, Single]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
    strategy = Single(StepSettings(loss=functional.cross_entropy, **settings))  # type: ignore[arg-type]
    strategy.setup(
        model, lambda parameters: torch.optim.SGD(parameters, lr=9.0, momentum=0.9), Worker()
    )
    return model, strategy


def train(
    strategy: Single, *, num_samples: int, micro_batch: int, num_steps: int = 5
) -> list[float]:
    samples, losses = source(), []
    for step in range(num_steps):
        indices = (np.arange(num_samples) + step) % NUM_SAMPLES
        batch = WorkerBatch(samples, indices, micro_batch=micro_batch)
        losses.append(strategy.forward_backward(batch).item())
        strategy.update(0.1)
    return losses


@pytest.mark.parametrize(("num_samples", "micro_batch"), [(64, 16), (64, 1), (50, 16), (65, 64)])
@pytest.mark.parametrize("clip_norm", [None, 0.05])
def test_accumulated_micro_batches_train_like_one_batch(
    num_samples: int, micro_batch: int, clip_norm: float | None
) -> None:
    whole_model, whole = make(clip_norm=clip_norm)
    cut_model, cut = make(clip_norm=clip_norm)
    whole_losses = train(whole, num_samples=num_samples, micro_batch=num_samples)
    cut_losses = train(cut, num_samples=num_samples, micro_batch=micro_batch)
    assert cut_losses == pytest.approx(whole_losses, rel=1e-5)
    for first, second in zip(whole_model.parameters(), cut_model.parameters(), strict=True):
        torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-6)


def test_a_step_is_that_of_plain_torch() -> None:
    model, strategy = make()
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)
    train(strategy, num_samples=64, micro_batch=64, num_steps=3)
    for step in range(3):
        inputs, targets = source().fetch((np.arange(64) + step) % NUM_SAMPLES)
        optimizer.zero_grad()
        functional.cross_entropy(plain(inputs), targets).backward()
        optimizer.step()
    for first, second in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(first, second)


def test_clipping_bounds_the_step() -> None:
    model, strategy = make(clip_norm=1e-3)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    train(strategy, num_samples=64, micro_batch=64, num_steps=1)
    moved = [new.detach() - old for old, new in zip(before, model.parameters(), strict=True)]
    norm = torch.cat([part.flatten() for part in moved]).norm().item()
    assert norm == pytest.approx(0.1 * 1e-3, rel=1e-3)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_keeps_float32_weights_and_learns(precision: str) -> None:
    model, strategy = make(precision=precision)
    losses = train(strategy, num_samples=64, micro_batch=32, num_steps=40)
    assert all(parameter.dtype is torch.float32 for parameter in model.parameters())
    assert losses[-1] < losses[0]
    full_losses = train(make()[1], num_samples=64, micro_batch=32, num_steps=40)
    assert losses != full_losses
    assert losses[:5] == pytest.approx(full_losses[:5], rel=0.02)


def test_predictions_carry_no_gradient() -> None:
    _, strategy = make()
    outputs = strategy.predict(torch.zeros(2, 6))
    assert not outputs.requires_grad
    assert outputs.shape == (2, 3)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_state_goes_on_in_another_strategy(precision: str) -> None:
    model, strategy = make(precision=precision)
    train(strategy, num_samples=64, micro_batch=64)
    other_model, other = make(precision=precision)
    other.load(copy.deepcopy(strategy.state()))
    for going_on in (strategy, other):
        train(going_on, num_samples=64, micro_batch=64)
    for first, second in zip(model.parameters(), other_model.parameters(), strict=True):
        assert torch.equal(first, second)


def test_the_parts_of_a_step_are_marked_in_order() -> None:
    marks: list[str] = []
    _, strategy = make(mark=marks.append)
    train(strategy, num_samples=64, micro_batch=32, num_steps=1)
    assert marks == ["data", "forward", "backward"] * 2 + ["update"]


def test_the_registry_knows_it() -> None:
    assert STRATEGIES.load("single") is Single
