"""Workers that hold parts of a model keep as much of the forward pass as they may, and make the
same step.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_data_parallel import OPTIMIZERS
from torch import nn
from torch.nn import functional

from tests.builders.ways import worker_of
from tests.services.process_group import run_together
from workbench.training.strategies import STRATEGIES
from workbench.training.strategies.strategy import MicroBatch, StepSettings, Worker
from workbench.training.strategies.worker_group import Group

NUM_MICRO_BATCHES, SAMPLES = 3, 8


class Block(nn.Module):
    """Two layers that are a pair for tensor parallelism."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs + self.down(torch.tanh(self.up(inputs)))


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(*(Block() for _ in range(6)))

    def layer_pairs(self) -> list[tuple[str, str, int]]:
        return [(f"{number}.up", f"{number}.down", 1) for number in range(len(self))]


def batches() -> list[MicroBatch]:
    generator = torch.Generator().manual_seed(3)
    return [
        MicroBatch(
            torch.randn(SAMPLES, 16, generator=generator),
            torch.randint(0, 16, (SAMPLES,), generator=generator),
            1.0 / NUM_MICRO_BATCHES,
        )
        for _ in range(NUM_MICRO_BATCHES)
    ]


def train(name: str, worker: Worker, **settings: Any) -> tuple[list[float], Any, list[bool]]:
    torch.manual_seed(0)
    strategy = STRATEGIES.load(name)(StepSettings(loss=functional.cross_entropy, **settings))
    strategy.setup(Net(), OPTIMIZERS["sgd"], worker)
    losses = []
    for _ in range(2):
        losses.append(worker.group.total(strategy.forward_backward(batches())).item())
        strategy.update(0.05)
    chosen = [block.is_recomputed for block in strategy._blocks]
    state = strategy.state()["model"]
    strategy.close()
    return losses, state, chosen


def train_together(rank: int, num_workers: int, meeting: str, name: str, kept_bytes: int) -> Any:
    group = Group(rank, num_workers, None, meeting)
    trained = train(
        name, worker_of(name, rank, num_workers, group), recompute=True, kept_bytes=kept_bytes
    )
    group.close()
    return trained


@pytest.mark.parametrize(("name", "kept_bytes"), [("tensor", 7_000), ("pipeline", 12_000)])
def test_parts_of_a_model_make_the_step_of_one_worker(name: str, kept_bytes: int) -> None:
    expected_losses, expected, _ = train("single", Worker())
    answers = run_together(train_together, 2, name, kept_bytes)
    for losses, _, chosen in answers:
        assert losses == pytest.approx(expected_losses, rel=1e-6)
        assert any(chosen)
        assert not all(chosen)
    for key, values in expected.items():
        torch.testing.assert_close(answers[0][1][key], values, rtol=1e-5, atol=1e-6)
    if name == "tensor":
        assert answers[0][2] == answers[1][2], "parts of a block are computed again together"
    else:
        # The first stage keeps two micro batches at once, the last one.
        assert sum(answers[0][2]) > sum(answers[1][2])
