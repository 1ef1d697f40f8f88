"""An optimizer that is divided among workers holds its share of the state and gathers the whole."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.services.process_group import run_together
from workbench.training.strategies.divided_optimizer import DividedOptimizer, owners
from workbench.training.strategies.worker_group import Group

STEPS = 3


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=30), st.integers(1, 8))
def test_no_share_exceeds_a_fair_one_by_more_than_the_largest_parameter(
    sizes: list[int], num_workers: int
) -> None:
    chosen = owners(sizes, num_workers)
    shares = [
        sum(size for size, owner in zip(sizes, chosen, strict=True) if owner == each)
        for each in range(num_workers)
    ]
    assert sum(shares) == sum(sizes)
    assert max(shares) <= sum(sizes) / num_workers + max(sizes)


def groups_of(model: nn.Module) -> list[dict[str, Any]]:
    """Return two groups, of which few workers own a part of the second."""
    biases = [parameter for name, parameter in model.named_parameters() if name.endswith("bias")]
    weights = [parameter for name, parameter in model.named_parameters() if name.endswith("weight")]
    return [{"params": weights}, {"params": biases, "weight_decay": 0.0, "lr_factor": 2.0}]


def take_steps(model: nn.Module, optimizer: Any, first: int = 0) -> None:
    for step in range(first, first + STEPS):
        for group in optimizer.param_groups:
            group["lr"] = 0.1 * group.get("lr_factor", 1.0) / (1 + step)
        for index, parameter in enumerate(model.parameters()):
            parameter.grad = torch.full_like(parameter, 0.1 * (index + 1) - 0.05 * step)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))


def train(rank: int, num_workers: int, meeting: str, state: Any) -> Any:
    group = Group(rank, num_workers, None, meeting)
    model = make_model()
    optimizer = DividedOptimizer(torch.optim.AdamW, groups_of(model), group)
    if state is not None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    take_steps(model, optimizer, 0 if state is None else STEPS)
    held = [value for values in optimizer._own.state.values() for value in values.values()]
    held_bytes = sum(each.nbytes for each in held if each.ndim)
    whole = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    group.close()
    return held_bytes, whole


@pytest.mark.parametrize("num_workers", [2, 6])  # six workers and four parameters
def test_the_whole_state_is_that_of_one_worker(num_workers: int) -> None:
    model = make_model()
    alone = torch.optim.AdamW(groups_of(model))
    take_steps(model, alone)
    together = run_together(train, num_workers, None)
    whole_bytes = 2 * sum(each.nbytes for each in model.parameters())
    assert sum(held_bytes for held_bytes, _ in together) == whole_bytes
    assert max(held_bytes for held_bytes, _ in together) < whole_bytes
    for _, state in together:
        assert_same(state["model"], model.state_dict())
    assert_same(together[0][1]["optimizer"], alone.state_dict())

    again = run_together(train, 2, {"model": model.state_dict(), "optimizer": alone.state_dict()})
    take_steps(model, alone, STEPS)
    assert_same(again[0][1], {"model": model.state_dict(), "optimizer": alone.state_dict()})


def assert_same(found: Any, expected: Any) -> None:
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for key in expected:
            assert_same(found[key], expected[key])
    elif isinstance(expected, list):
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    else:
        assert found == expected
