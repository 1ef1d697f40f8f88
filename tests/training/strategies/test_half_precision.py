"""Every strategy computes in the precision of the plan."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.builders.ways import OF_SEVERAL, worker_of
from tests.services.process_group import run_together
from workbench.data.splits import ArraySplit
from workbench.training.strategies import STRATEGIES
from workbench.training.strategies.strategy import StepSettings, Strategy
from workbench.training.strategies.worker_group import Group
from workbench.training.tensor_source import Source, WorkerBatch

NUM_SAMPLES = 8


class DtypeOfOutputs(nn.Module):
    """A loss that keeps in what its inputs were computed."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[torch.dtype] = []

    def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        self.found.append(outputs.dtype)
        return functional.cross_entropy(outputs, targets)


def dtypes(rank: int, num_workers: int, meeting: str, name: str) -> list[torch.dtype]:
    """Return in what the outputs of a step, and of a prediction, were computed on this worker."""
    torch.manual_seed(0)
    group = Group(rank, num_workers, torch.device("cpu"), meeting)
    try:
        worker = worker_of(name, rank, num_workers, group)
        inputs = np.ones((NUM_SAMPLES, 8), np.float32)
        loss = DtypeOfOutputs()
        settings = StepSettings(loss=loss, precision="bf16", example=torch.from_numpy(inputs[:2]))
        strategy: Strategy = STRATEGIES.load(name)(settings)
        model = nn.Sequential(
            nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4)
        )
        strategy.setup(model, lambda parameters: torch.optim.SGD(parameters, lr=0.1), worker)
        strategy.train(True)
        source = Source(ArraySplit(inputs, np.zeros(NUM_SAMPLES, np.int64)), torch.device("cpu"))
        strategy.forward_backward(
            WorkerBatch(
                source,
                np.arange(NUM_SAMPLES),
                micro_batch=2,
                replica=worker.replica,
                num_replicas=worker.num_replicas,
            )
        )
        strategy.update(0.1)
        strategy.train(False)
        predicted = strategy.predict(torch.from_numpy(inputs))
        group.gather(None)  # a worker that leaves takes along what it still sends
        return loss.found + ([] if predicted is None else [predicted.dtype])
    finally:
        group.close()


@pytest.mark.parametrize("strategy", OF_SEVERAL)
def test_steps_and_predictions_are_computed_in_bf16(strategy: str) -> None:
    computed = [dtype for rank in run_together(dtypes, 2, strategy) for dtype in rank]
    assert computed
    assert set(computed) == {torch.bfloat16}
