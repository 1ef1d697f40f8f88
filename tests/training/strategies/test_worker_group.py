"""Workers join and leave a group, and send each other what may take as long as they compute.

A worker that fails leaves its group, and the others fail as well instead of waiting for it.
"""

from __future__ import annotations

import datetime
import functools
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.builders.ways import OF_SEVERAL, worker_of
from tests.services.process_group import run_together
from workbench.experiment.plan import Plan
from workbench.training.exchanges.exchange import exchange_of
from workbench.training.strategies import STRATEGIES
from workbench.training.strategies import worker_group as groups
from workbench.training.strategies.strategy import MicroBatch, StepSettings, Strategy, Worker
from workbench.training.strategies.worker_group import Group, let_go

CONNECT_S = 3.0


def fail_on_one_rank(
    rank: int,
    num_workers: int,
    meeting: str,
    name: str,
    *,
    exchange: Plan | None = None,
    failing_rank: int = 1,
) -> str:
    group = Group(rank, num_workers, None, meeting)
    try:
        try:
            train(name, worker_of(name, rank, num_workers, group), exchange, failing_rank)
        finally:
            group.close()
    except Exception as error:
        traceback.clear_frames(error.__traceback__)
        let_go()
        return type(error).__name__
    return "nothing"


def train(name: str, worker: Worker, exchange: Plan | None, failing_rank: int) -> None:
    made = None if exchange is None else exchange_of(exchange, worker.num_replicas)
    strategy: Strategy = STRATEGIES.load(name)(
        StepSettings(loss=functional.cross_entropy, exchange=made)
    )
    model = nn.Sequential(nn.Linear(64, 300), nn.Tanh(), nn.Linear(300, 10))
    strategy.setup(model, lambda parameters: torch.optim.SGD(parameters, lr=0.1), worker)
    batch: Any = [MicroBatch(torch.ones(8, 64), torch.zeros(8, dtype=torch.long), 0.5)]
    try:
        strategy.forward_backward(batch)
        if worker.rank == failing_rank:
            raise ValueError("this batch is not for me")
        strategy.update(0.1)
        strategy.forward_backward(batch)
    finally:
        strategy.close()


def train_and_leave(rank: int, num_workers: int, meeting: str, name: str) -> list[str]:
    group = Group(rank, num_workers, None, meeting)
    try:
        train(name, worker_of(name, rank, num_workers, group), None, failing_rank=-1)
    finally:
        group.close()
    let_go()
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    return [key for key in names if "gloo" in key]


@pytest.mark.skipif(sys.platform != "linux", reason="reads the threads of a process from /proc")
@pytest.mark.parametrize("name", OF_SEVERAL)
def test_no_thread_of_a_group_stays_when_it_was_left(name: str) -> None:
    assert run_together(train_and_leave, 2, name) == [[], []]


# Torch keeps the shards or parts of a failed worker, and so its group: there the trial's
# coordinator ends the others.
@pytest.mark.parametrize("name", [name for name in OF_SEVERAL if name not in ("fsdp", "tensor")])
def test_a_failure_reaches_the_other_workers_again_and_again(name: str) -> None:
    for _ in range(5):
        assert run_together(fail_on_one_rank, 2, name) == ["RuntimeError", "ValueError"]


@pytest.mark.parametrize(("failing_rank", "servers"), [(0, 1), (1, 1), (1, 2)])
def test_a_failure_reaches_replicas_that_wait_for_a_parameter_server(
    failing_rank: int, servers: int
) -> None:
    plan = Plan(
        workers=2,
        micro_batch=1,
        accumulation=1,
        strategy="ddp",
        exchange="server",
        exchange_servers=servers,
    )
    expected = ["ServerLeft", "ServerLeft"]
    expected[failing_rank] = "ValueError"
    failing = functools.partial(fail_on_one_rank, exchange=plan, failing_rank=failing_rank)
    for _ in range(3):
        assert run_together(failing, 2, "ddp") == expected


def send_late(rank: int, num_workers: int, meeting: str) -> list[float]:
    """Send two tensors, the second of a known form, each after the time in which workers must
    connect.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups, "CONNECT_TIMEOUT", datetime.timedelta(seconds=CONNECT_S))
        group = Group(rank, num_workers, None, meeting)
    try:
        values = torch.arange(3.0)
        if rank == 1:
            time.sleep(CONNECT_S + 1.0)
            group.send(values, 0).wait()
            time.sleep(CONNECT_S + 1.0)
            group.send(values, 0, is_known=True).wait()
            return []
        return [*group.receive(1).tolist(), *group.receive(1, values).tolist()]
    finally:
        group.close()


@pytest.mark.slow
def test_a_worker_waits_longer_for_another_than_for_its_connection() -> None:
    assert run_together(send_late, 2) == [[0.0, 1.0, 2.0, 0.0, 1.0, 2.0], []]


STRANGER = """
import importlib, sys, types
from torch import distributed

torchs = distributed.init_process_group
earlier = types.ModuleType("earlier")
exec("from torch.distributed import init_process_group", vars(earlier))
sys.modules["earlier"] = earlier

from workbench.training.strategies import STRATEGIES
for name in STRATEGIES.names():
    STRATEGIES.load(name)
from workbench.training.strategies.worker_group import Group
assert distributed.init_process_group is torchs is distributed.distributed_c10d.init_process_group

group = Group()
group.torch_group()
distributed.init_process_group("gloo", world_size=1)
earlier.init_process_group("gloo", rank=0)
exec("from torch.distributed import init_process_group as kept")
group.close()
assert distributed.init_process_group is torchs is earlier.init_process_group
assert torchs is distributed.distributed_c10d.init_process_group

store = distributed.HashStore()
kept("gloo", store=store, rank=0, world_size=1)
try:
    kept("gloo", store=store, rank=0, world_size=1)
except ValueError as error:
    assert "twice" in str(error)
else:
    raise AssertionError("a group of one's own was joined twice")
"""


@pytest.mark.slow
def test_the_call_that_joins_a_group_is_torchs_own_outside_of_a_group() -> None:
    subprocess.run([sys.executable, "-c", STRANGER], check=True, cwd=Path(__file__).parents[3])


def test_workers_meet_on_one_address_of_this_machine_and_on_no_other() -> None:
    port = int(groups.open_meeting_point("127.0.0.1").rpartition(":")[2])
    addresses = [
        connection.laddr.ip
        for connection in psutil.Process().net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
    ]
    assert addresses == ["127.0.0.1"]
