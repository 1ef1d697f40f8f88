"""Steps without exchange, which are only made to be timed, leave the training as it was."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_data_parallel import OPTIMIZERS, Net, source
from torch.nn import functional

from tests.builders.ways import OF_REPLICAS
from tests.services.process_group import run_together
from workbench.data.batches import global_batches
from workbench.training.strategies import STRATEGIES
from workbench.training.strategies.strategy import StepSettings, Strategy, Worker
from workbench.training.strategies.worker_group import Group
from workbench.training.tensor_source import WorkerBatch


def train(rank: int, num_workers: int, meeting: str, name: str, also_alone: bool) -> Any:
    torch.manual_seed(0)
    group = Group(rank, num_workers, None, meeting)
    try:
        strategy: Strategy = STRATEGIES.load(name)(StepSettings(loss=functional.cross_entropy))
        strategy.setup(Net(), OPTIMIZERS["adamw"], Worker(rank, num_workers, group=group))
        for indices in global_batches(61, global_batch=24, epoch=0, seed=0, shuffle=True):
            batch = WorkerBatch(
                source(), indices, micro_batch=5, replica=rank, num_replicas=num_workers
            )
            strategy.forward_backward(batch)
            strategy.update(0.01)
            if also_alone:
                with strategy.alone():
                    strategy.forward_backward(batch)
        state, more_bytes = strategy.state()["model"], strategy.alone_bytes()
        state = {key: value.clone() for key, value in state.items()} if rank == 0 else {}
        strategy.close()
    finally:
        group.close()
    return state, more_bytes


@pytest.mark.parametrize("name", OF_REPLICAS)
def test_training_goes_on_as_if_there_had_been_no_steps_alone(name: str) -> None:
    (expected, _), _ = run_together(train, 2, name, False)
    (state, more_bytes), _ = run_together(train, 2, name, True)
    for key, values in expected.items():
        assert torch.equal(state[key], values), key
    model_bytes = sum(parameter.nbytes for parameter in Net().parameters())
    assert more_bytes == (
        model_bytes if STRATEGIES.load(name).capabilities.holds_whole_model else 2 * model_bytes
    )


def step_unequally(rank: int, num_workers: int, meeting: str) -> int:
    group = Group(rank, num_workers, None, meeting)
    try:
        strategy: Strategy = STRATEGIES.load("ddp")(StepSettings(loss=functional.cross_entropy))
        assert strategy.capabilities.holds_whole_model
        strategy.setup(Net(), OPTIMIZERS["sgd"], Worker(rank, num_workers, group=group))
        indices = next(global_batches(61, global_batch=24, epoch=0, seed=0, shuffle=True))
        batch = WorkerBatch(
            source(), indices, micro_batch=5, replica=rank, num_replicas=num_workers
        )
        with strategy.alone():
            for _ in range(3 * rank):
                strategy.forward_backward(batch)
                strategy.update(0.0)
        strategy.forward_backward(batch)
        strategy.close()
    finally:
        group.close()
    return 3 * rank


def test_a_worker_that_holds_the_whole_model_steps_alone_without_the_others() -> None:
    assert run_together(step_unequally, 2) == [0, 3]
