"""Replicas that share served parameters lose no update, and no read is staler than the bound
allows.
"""

from __future__ import annotations

import functools
import random
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.builders.examples import examples
from tests.services.process_group import run_together
from workbench.experiment.plan import Plan
from workbench.training.exchanges.parameter_server import Asynchronous, ParameterServer
from workbench.training.exchanges.served_parameters import (
    Address,
    OwnPart,
    Remote,
    Server,
    ServerLeft,
)
from workbench.training.strategies.worker_group import Group

NUM_STEPS = 12


def plan_of(exchange: str, servers: int = 1, staleness: int = 0) -> Plan:
    return Plan(
        workers=3,
        micro_batch=1,
        accumulation=1,
        strategy="ddp",
        exchange=exchange,
        exchange_servers=servers,
        exchange_staleness=staleness,
    )


def count_steps(
    rank: int,
    num_workers: int,
    meeting: str,
    *,
    servers: int,
    staleness: int | None,
    delays_s: list[list[float]],
) -> dict[str, Any]:
    """Make steps that count themselves in a parameter; return what was read after each."""
    group = Group(rank, num_workers, None, meeting)
    counts = nn.Parameter(torch.zeros(num_workers))
    more = nn.Parameter(torch.zeros(3, 2, dtype=torch.bfloat16))
    plan = plan_of("server", servers, staleness or 0)
    exchange = Asynchronous(plan) if staleness is None else ParameterServer(plan)
    exchange.setup({"counts": counts, "more": more}, group)
    group.gather(None)
    read = []
    for delay_s in delays_s[rank]:
        time.sleep(delay_s)
        with torch.no_grad():
            counts[rank] += num_workers  # the mean of the replicas counts one
            more += num_workers  # whole numbers, which bf16 holds whatever the others have added
        exchange.after_step()
        read.append(counts.tolist())
    exchange.agree()
    agreed = [*counts.tolist(), *more.flatten().tolist()]
    group.gather(None)
    exchange.close()
    group.close()
    return {"read": read, "agreed": agreed}


def counting(
    servers: int, staleness: int | None, delays_s: list[list[float]]
) -> Callable[..., dict[str, Any]]:
    return functools.partial(count_steps, servers=servers, staleness=staleness, delays_s=delays_s)


def drawn_delays_s(seed: int) -> list[list[float]]:
    drawn = random.Random(seed)
    return [[drawn.choice([0.0, 0.0, 0.05]) for _ in range(NUM_STEPS)] for _ in range(3)]


@pytest.mark.parametrize("servers", [1, 2, 3])
@pytest.mark.parametrize("staleness", [0, 2, None])
def test_every_read_holds_the_bound_and_in_the_end_no_update_is_missing(
    servers: int, staleness: int | None
) -> None:
    together = run_together(counting(servers, staleness, drawn_delays_s(servers)), 3)
    worst = 0.0
    for rank, replica in enumerate(together):
        for step, read in enumerate(replica["read"], start=1):
            assert read[rank] == pytest.approx(step), "its own update is missing"
            worst = max(worst, step - min(read))
        counted = [NUM_STEPS] * 3
        assert replica["agreed"] == pytest.approx([*counted, *[3 * NUM_STEPS] * 6])
    assert together[0]["agreed"] == together[1]["agreed"] == together[2]["agreed"]
    if staleness is not None:
        assert worst <= staleness + 1e-3


class Slow:
    """A served part whose values arrive when that is allowed, with one more in each of them."""

    def __init__(self) -> None:
        self.arrives = threading.Event()
        self.updates: list[Any] = []

    def begin(self, update: Any, num_steps: int) -> None:
        self.updates.append(update)

    def finish(self, values: torch.Tensor) -> None:
        self.arrives.wait(120)
        values.fill_(1.0).add_(sum(each for each in self.updates if each is not None))

    def close(self) -> None: ...


@pytest.mark.parametrize("staleness", [1, None])
def test_values_travel_while_the_next_step_is_computed(staleness: int | None) -> None:
    held = nn.Parameter(torch.zeros(3))
    plan = plan_of("server", 1, staleness or 0)
    exchange = Asynchronous(plan) if staleness is None else ParameterServer(plan)
    exchange.setup({"held": held}, Group())
    part = Slow()
    exchange._parts = [part]  # instead of that of this replica, which answers at once
    for step in (1, 2):
        with torch.no_grad():
            held += 10.0
        if step == 2:
            part.arrives.set()
        exchange.after_step()  # the first time before anything has arrived
    assert held.tolist() == [21.0] * 3, "what was read, and the own step since"
    exchange.agree()
    assert held.tolist() == [21.0] * 3
    exchange.close()


@pytest.mark.slow
def test_a_replica_waits_for_the_slowest_only_as_far_as_the_bound() -> None:
    """The first replica would be done at once, and the third sleeps before each step."""
    ahead = {}
    for staleness, slowest_s in ((0, 0.05), (4, 0.05), (None, 0.25)):
        delays_s = [[0.0] * NUM_STEPS, [0.0] * NUM_STEPS, [slowest_s] * NUM_STEPS]
        together = run_together(counting(1, staleness, delays_s), 3)
        ahead[staleness] = max(
            step - read[2] for step, read in enumerate(together[0]["read"], start=1)
        )
    assert ahead[0] == pytest.approx(0, abs=1e-3)
    assert ahead[4] == pytest.approx(4, abs=1e-3)
    assert ahead[None] > 4


@examples(20)
@given(st.integers(1, 4), st.integers(0, 3), st.integers(0, 2**32))
def test_a_served_part_never_shows_less_than_what_was_required_of_it(
    num_replicas: int, staleness: int, seed: int
) -> None:
    part = OwnPart(torch.zeros(num_replicas), num_replicas, in_order=staleness == 0)
    problems: list[str] = []

    def work(rank: int) -> None:
        drawn = random.Random(seed + rank)
        for step in range(1, 7):
            time.sleep(drawn.choice([0.0, 0.001]))
            update = torch.zeros(num_replicas)
            update[rank] = 1.0
            part.add(rank, update)
            read = part.read(max(0, step - staleness))
            if read[rank] != step or read.min() < step - staleness:
                problems.append(f"replica {rank} read {read.tolist()} after step {step}")

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(num_replicas)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not problems
    assert part.read(6).tolist() == [6.0] * num_replicas


def test_updates_of_a_synchronous_step_are_added_in_the_order_of_the_ranks() -> None:
    updates = [torch.tensor([1e8]), torch.tensor([-1e8]), torch.tensor([1.0])]
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        part = OwnPart(torch.zeros(1), 3, in_order=True)
        for rank in order:
            part.add(rank, updates[rank])
        assert part.read(1).item() == 1.0


def served(num_replicas: int = 2) -> tuple[OwnPart, Server]:
    part = OwnPart(torch.arange(5.0), num_replicas, in_order=False)
    return part, Server(part, "127.0.0.1", num_replicas - 1)


def test_who_does_not_know_the_key_is_refused_and_keeps_nobody_out() -> None:
    _, server = served()
    stranger = Remote(Address(server.address.host, server.address.port, bytes(32)), 1)
    silent = socket.create_connection(server.address[:2])
    silent.close()
    stranger.begin(None, 0)
    with pytest.raises(ServerLeft):
        stranger.finish(torch.zeros(5))
    known = Remote(server.address, 1)
    known.begin(torch.ones(5), 0)
    values = torch.zeros(5)
    known.finish(values)
    assert values.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    known.close()
    server.close()


def test_a_read_that_waits_fails_when_the_replica_that_it_waits_for_leaves() -> None:
    part, server = served()
    other = Remote(server.address, 1)
    part.add(0, torch.ones(5))
    ended: list[Exception] = []

    def wait() -> None:
        try:
            part.read(1)
        except ServerLeft as error:
            ended.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    other.close()
    waiting.join(120)
    assert len(ended) == 1
    server.close()


def test_a_server_that_leaves_ends_the_others() -> None:
    _, server = served()
    other = Remote(server.address, 1)
    other.begin(None, 0)
    other.finish(torch.zeros(5))
    other.begin(torch.ones(5), 1)  # which waits for a step of the other replica
    server.close()
    with pytest.raises(ServerLeft):
        other.finish(torch.zeros(5))
