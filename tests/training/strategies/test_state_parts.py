"""What workers write in parts is their state, each part of it once, and any strategy continues from
it.
"""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from test_data_parallel import OPTIMIZERS
from test_sequence import make as make_zoo
from test_tensor import loss

from tests.builders.ways import OF_SEVERAL, worker_of
from tests.services.process_group import run_together
from workbench.training.strategies import STRATEGIES
from workbench.training.strategies.capabilities import capabilities_of
from workbench.training.strategies.strategy import (
    MicroBatch,
    StepSettings,
    Strategy,
    Worker,
    WritableInParts,
)
from workbench.training.strategies.tensor_shards import StateParts, state_of
from workbench.training.strategies.worker_group import Group

NUM_WORKERS = 4
INPUTS = torch.arange(28).reshape(4, 7) % 10
DIVIDED = tuple(name for name in OF_SEVERAL if not capabilities_of(name).holds_whole_model)
CASES = [(name, shard) for name in DIVIDED for shard in (0, 2)]
OTHERS = {
    case: OF_SEVERAL[number % len(OF_SEVERAL) :][:1] if number else OF_SEVERAL
    for number, case in enumerate(CASES)
}
"""Where the parts of each are continued.

What is put together of them is the state of one worker.
"""


def make(name: str, worker: Worker, shard: int = 0) -> Strategy:
    model, _ = make_zoo("transformer")
    strategy: Strategy = STRATEGIES.load(name)(StepSettings(loss=loss, shard=shard, example=INPUTS))
    strategy.setup(model, OPTIMIZERS["adamw"], worker)
    strategy.train(True)
    return strategy


def train(strategy: Strategy, worker: Worker) -> None:
    """Make a step in which every replica takes an equal part of the samples."""
    own = torch.arange(4).chunk(worker.num_replicas)[worker.replica]
    strategy.forward_backward([MicroBatch(INPUTS[own], own, 1.0 / worker.num_replicas)])
    strategy.update(0.01)


def write_and_continue(rank: int, num_workers: int, meeting: str) -> list[Any]:
    group = Group(rank, num_workers, None, meeting)
    results = []
    for name, shard in CASES:
        worker = worker_of(name, rank, num_workers, group, per_replica=2)
        strategy = make(name, worker, shard)
        train(strategy, worker)
        assert isinstance(strategy, WritableInParts)
        parts: list[StateParts] = group.gather(strategy.parts())
        state = strategy.state()
        strategy.close()
        continued = {}
        for other in OTHERS[name, shard]:
            theirs = worker_of(other, rank, num_workers, group, per_replica=2)
            others = make(other, theirs)
            others.load(
                state_of(copy.deepcopy(parts))
            )  # a strategy may go on with the tensors themselves
            train(others, theirs)
            continued[other] = others.state()["model"]
            others.close()
        results.append((state, parts, continued) if rank == 0 else None)
    group.close()
    return results


@pytest.fixture(scope="module")
def together() -> list[Any]:
    return run_together(write_and_continue, NUM_WORKERS)[0]


@pytest.mark.slow
def test_parts_are_the_state_and_each_is_written_once(together: list[Any]) -> None:
    for case, (state, parts, _) in zip(CASES, together, strict=True):
        whole_state = state_of(parts)
        assert whole_state["model"].keys() == state["model"].keys()
        for name, values in state["model"].items():
            assert torch.equal(whole_state["model"][name], values), (case, name)
            written = [
                piece
                for part in parts
                for _, piece in part.tensors.get(("model", name), (0, []))[1]
            ]
            assert sum(piece.numel() for piece in written) == values.numel(), (case, name)
        assert whole_state["optimizer"]["param_groups"] == state["optimizer"]["param_groups"]
        assert whole_state["optimizer"]["state"].keys() == state["optimizer"]["state"].keys()
        for number, values in state["optimizer"]["state"].items():
            for name, value in values.items():
                assert torch.equal(whole_state["optimizer"]["state"][number][name], value), (
                    case,
                    number,
                    name,
                )


def test_no_worker_writes_more_than_it_holds(together: list[Any]) -> None:
    for (name, shard), (state, parts, _) in zip(CASES, together, strict=True):
        whole = sum(each.numel() for each in state["model"].values())
        most = max(
            sum(p.numel() for _, ps in each.tensors.values() for _, p in ps) for each in parts
        )
        assert most < 3 * whole * (0.95 if name == "tensor" and not shard else 0.75), (name, shard)


def test_any_strategy_continues_from_parts(together: list[Any]) -> None:
    for case, (state, parts, continued) in zip(CASES, together, strict=True):
        alone = make("single", Worker())
        kept = io.BytesIO()
        torch.save([vars(part) for part in parts], kept)
        kept.seek(0)
        alone.load(state_of([StateParts(**part) for part in torch.load(kept, weights_only=True)]))
        assert torch.equal(
            alone.state()["optimizer"]["state"][0]["exp_avg"],
            state["optimizer"]["state"][0]["exp_avg"],
        )
        train(alone, Worker())
        for other, reached in continued.items():
            for name, values in alone.state()["model"].items():
                torch.testing.assert_close(
                    reached[name], values, rtol=1e-4, atol=1e-5, msg=f"{case} {other}: {name}"
                )
