"""Workers share steps that leave parameters unused, and look for these only where there are any."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests.services.process_group import run_together
from workbench.foundation.errors import ExperimentError
from workbench.training.strategies.ddp import DataParallel, leaves_unused
from workbench.training.strategies.fsdp import FullySharded
from workbench.training.strategies.single import Single
from workbench.training.strategies.strategy import MicroBatch, StepSettings, Worker
from workbench.training.strategies.worker_group import Group


class Net(nn.Module):
    """A head that is never used, and one for each sign of the first input."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6))
        self.heads = nn.ModuleList([nn.Linear(6, 2) for _ in range(3)])

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.heads[int(inputs[0, 0] > 0)](self.body(inputs))


def inputs_of(step: int, rank: int, *, diverse: bool) -> MicroBatch:
    draw = torch.Generator().manual_seed(7 * step + 100 * rank * diverse)
    inputs = torch.randn(8, 4, generator=draw)
    if not diverse:
        inputs[0, 0] = 1.0
    return MicroBatch(inputs, torch.randint(0, 2, (8,), generator=draw), 1.0)


def train(
    kind: type[Single], worker: Worker, *, diverse: bool, **settings: Any
) -> tuple[Any, bool]:
    """Return the weights after some steps, and whether the strategy looks for unused parameters."""
    strategy = kind(StepSettings(loss=functional.cross_entropy, **settings))
    strategy.setup(Net(), lambda parameters: torch.optim.SGD(parameters, lr=0.1), worker)
    strategy.train(True)
    for step in range(5):
        batch = inputs_of(step, worker.rank, diverse=diverse)
        parts = [
            MicroBatch(part[0], part[1], 0.5 / worker.num_replicas)
            for part in zip(batch.inputs.split(4), batch.targets.split(4), strict=True)
        ]
        strategy.forward_backward(parts)
        strategy.update(0.1)
    looks = getattr(strategy._trained, "find_unused_parameters", False)
    weights = strategy.state()["model"]
    state = {name: torch.clone(value) for name, value in weights.items() if value is not None}
    strategy.close()
    return state, looks


def train_on_two(rank: int, num_workers: int, meeting: str) -> Any:
    group = Group(rank, num_workers, meeting=meeting)
    worker = Worker(rank, num_workers, group=group)
    results = {
        "same": train(DataParallel, worker, diverse=False),
        "fsdp": train(FullySharded, worker, diverse=False),
        "diverse": train(DataParallel, worker, diverse=True),
        "always": train(DataParallel, worker, diverse=True, find_unused=True),
    }
    used = DataParallel(StepSettings(loss=functional.mse_loss))
    used.setup(nn.Linear(2, 1), lambda parameters: torch.optim.SGD(parameters, lr=0.1), worker)
    used.forward_backward([MicroBatch(torch.ones(1, 2), torch.ones(1, 1), 0.5)])
    results["used"] = ({}, used._trained.find_unused_parameters)  # type: ignore[assignment]
    used.close()
    never = DataParallel(StepSettings(loss=functional.cross_entropy, find_unused=False))
    never.setup(Net(), lambda parameters: torch.optim.SGD(parameters, lr=0.1), worker)
    batch = [inputs_of(0, 0, diverse=False)._replace(weight=0.5)]
    never.forward_backward(batch)
    with pytest.raises(ExperimentError, match="find_unused_parameters"):
        never.forward_backward(batch)
    never.close()
    group.close()
    return results


def test_workers_make_the_steps_of_one_with_unused_parameters() -> None:
    alone, _ = train(Single, Worker(), diverse=False)
    results = run_together(train_on_two, 2)
    for name in ("same", "fsdp"):
        for key, value in alone.items():
            torch.testing.assert_close(results[0][name][0][key], value, rtol=1e-4, atol=1e-6)
    assert [results[0][name][1] for name in ("same", "diverse", "always", "used")] == [
        True,
        True,
        True,
        False,
    ]
    for name in ("diverse", "always"):
        moved = [f"heads.{head}.weight" for head in range(2)]
        assert not any(
            torch.equal(results[0][name][0][key], Net().state_dict()[key]) for key in moved
        )
        for key, value in results[0][name][0].items():
            torch.testing.assert_close(
                results[1][name][0][key], value, msg=f"{key} differs between workers"
            )


def test_what_a_checkpoint_hides_is_not_taken_for_unused() -> None:
    layers = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    inputs = torch.ones(1, 2, requires_grad=True)
    parameters = list(layers.parameters())
    assert not leaves_unused(layers(inputs).sum(), parameters)
    assert leaves_unused(layers[0](inputs).sum(), parameters)
    hidden = checkpoint(layers[0], inputs, use_reentrant=True)
    assert not leaves_unused(hidden.sum(), parameters)
