"""A worker is killed, whatever the way of making a step.

Training continues from its checkpoint, grown.
"""

from __future__ import annotations

import functools
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_gang_training import experiment, train, weights

from tests.builders.ways import OF_SEVERAL
from tests.services.process_group import run_together
from workbench.experiment.plan import PartialPlan
from workbench.training.exchanges import EXCHANGES
from workbench.training.exchanges.capabilities import USUAL
from workbench.training.exchanges.capabilities import capabilities_of as exchange_capabilities
from workbench.training.planning.equivalent_plans import with_workers
from workbench.training.strategies.capabilities import capabilities_of


def plans() -> Iterator[tuple[dict[str, Any], int]]:
    """Yield every strategy, with shards where it takes them, and every exchange, each on so many
    workers.
    """
    for name in OF_SEVERAL:
        able = capabilities_of(name)
        parts = {} if able.axis is None else {able.axis: 2}
        shard = {"shard": 2} if able.takes_shard else {}
        yield {"strategy": name, **shard, **parts}, 4 if shard and parts else 2
    for name in EXCHANGES.names():
        if name != USUAL:
            yield {"strategy": "ddp", "exchange": name}, 2


CASES = list(plans())


def text_of(**plan: Any) -> str:
    return experiment(
        model="mlp", plan=plan, training={"epochs": 8, "global_batch": 128, "optimizer": "adamw"}
    )


def train_and_die(rank: int, num_workers: int, meeting: str, text: str, folder: str) -> str:
    """Train; the last worker is killed once there is a checkpoint, the others then, as coordinators
    do it.
    """

    def die() -> None:
        while not Path(folder, "checkpoints", "last.pt").exists():
            time.sleep(0.001)
        time.sleep(0.0 if rank == num_workers - 1 else 0.5)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=die, daemon=True).start()
    return train(rank, num_workers, meeting, text, folder)[0].state


def continue_with(
    rank: int, num_workers: int, meeting: str, text: str, folder: str, *, plan: PartialPlan
) -> tuple[Any, bool]:
    events: list[Any]
    ended, events = train(rank, num_workers, meeting, text, folder, plan=plan)
    return ended, bool(events) and events[0].plan["workers"] == num_workers


@pytest.mark.slow
@pytest.mark.parametrize(("plan", "workers"), CASES, ids=str)
def test_a_killed_worker_costs_no_step_and_whole_copies_are_added(
    plan: dict[str, Any], workers: int, tmp_path: Path
) -> None:
    text, folder = text_of(workers=workers, **plan), str(tmp_path / "killed")
    with pytest.raises((EOFError, ConnectionError)):
        run_together(train_and_die, workers, text, folder)
    before = PartialPlan.of(workers=workers, micro_batch=64, **plan)
    before |= PartialPlan.of(accumulation=128 // (64 * (before.replicas or 1)))
    grown = with_workers(before, 4)
    assert grown is not None
    [(ended, is_grown), *_] = run_together(
        functools.partial(continue_with, plan=before | grown), 4, text, folder
    )
    assert ended.state == "complete", ended.traceback
    assert is_grown
    if not exchange_capabilities(plan.get("exchange", USUAL)).is_exact:
        assert ended.values["val_accuracy"] > 0.8
        return
    whole, _ = train(0, 1, None, text_of(workers=1), str(tmp_path / "whole"))
    assert (ended.step, ended.values) == (whole.step, pytest.approx(whole.values, rel=1e-3))
    expected = weights(tmp_path / "whole")
    for name, values in weights(tmp_path / "killed").items():
        assert values.sub(expected[name]).abs().max() < 1e-3
