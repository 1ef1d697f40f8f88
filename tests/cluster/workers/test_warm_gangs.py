from __future__ import annotations

import os
import signal
import time
from typing import Any

import psutil
import pytest
import ray

from tests.services.waiting import wait_until
from workbench.cluster.workers.admission import Request
from workbench.cluster.workers.gang import Gang
from workbench.cluster.workers.pool import connect_pool

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_head")]
NUM_TRIALS = 50
WARM_UP = 10
"""Trials after which a process has loaded all that its trials need."""


def pool_status() -> Any:
    return ray.get(connect_pool().status.remote())


def is_pool_free() -> bool:
    status = pool_status()
    return not status.leased and status.num_waiting == 0


def finish(gang: Gang):
    """Wait for the end of a gang's trial, give the workers back, and return how it ended."""
    deadline = time.monotonic() + 120
    progress = gang.next(timeout_s=120)
    events: list[Any] = list(progress.events)
    while progress.ended is None:
        assert progress.lost is None, progress.message
        assert time.monotonic() < deadline, "the trial did not end in time"
        progress = gang.next(timeout_s=120)
        events += progress.events
    gang.release()
    wait_until(is_pool_free)
    return events, progress.ended


def run(task, origin, num_workers: int):
    """Run one trial; return its pids by rank and what it reported last."""
    gang = Gang.lease(Request("run", num_workers=num_workers), timeout_s=120)
    pids = [worker.pid for worker in gang.workers]
    gang.start(task, origin=origin)
    events, ended = finish(gang)
    assert ended.state == "complete", ended.traceback
    return pids, events[-1].values


@pytest.fixture(autouse=True)
def _no_test_leaves_a_lease():
    yield
    wait_until(is_pool_free)


def test_a_trial_takes_a_worker_that_is_being_prepared_instead_of_starting_another():
    request, pool = Request("run", preload=("torch",)), connect_pool()
    ray.get(pool.give_way.remote())  # calls to a pool that still starts may overtake others
    prepared = pool.prepare.remote(request)
    ray.get(pool.status.remote())
    gang = Gang.lease(request, timeout_s=120)
    ray.get(prepared)
    pids = [worker.pid for worker in gang.workers]
    assert pool_status().idle_pids == ()
    gang.release()
    wait_until(is_pool_free)
    assert list(pool_status().idle_pids) == pids


@pytest.mark.slow
def test_another_number_of_workers_from_trial_to_trial_finds_them_warm(make_task, origin):
    pair, _ = run(make_task("add_up"), origin, 2)
    for trial, num_workers in enumerate((1, 2, 1, 2, 1, 2), start=1):
        pids, values = run(make_task("add_up", trial=trial), origin, num_workers)
        assert values["num_heard"] == num_workers
        assert len(set(pids)) == num_workers
        assert set(pids) <= set(pair)


@pytest.mark.slow
def test_nothing_of_a_gang_stays_behind_in_its_workers(make_task, origin):
    task, pids = make_task("add_up"), []
    for _ in range(WARM_UP):
        pids, _ = run(task, origin, 2)
    before = {pid: measure(pid) for pid in pids}
    for _ in range(NUM_TRIALS - WARM_UP):
        pids, _ = run(task, origin, 2)
    after = {pid: measure(pid) for pid in pids}
    assert after.keys() == before.keys(), "the workers stay the same"
    grown = {
        pid: {name: after[pid][name] - before[pid][name] for name in after[pid]} for pid in pids
    }
    for growth in grown.values():
        # Ray starts threads and opens files of its own now and then; a group leaves some at every
        # trial.
        assert growth["threads"] < NUM_TRIALS // 4, grown
        assert growth["files"] < NUM_TRIALS // 4, grown
        assert growth["bytes"] < 32 * 2**20, grown


def measure(pid: int) -> dict[str, int]:
    process = psutil.Process(pid)
    return {
        "threads": process.num_threads(),
        "files": process.num_fds(),
        "bytes": process.memory_info().rss,
    }


def start_coordinator() -> Any:
    """Start an actor that holds two workers which wait for each other, as the trial of a sweep
    does.
    """

    class Coordinator:
        def hold(self, task, origin):
            self.gang = Gang.lease(Request("run", num_workers=2), timeout_s=120)
            self.gang.start(task, origin=origin)
            self.gang.next()
            return os.getpid(), [worker.pid for worker in self.gang.workers]

    coordinators: Any = ray.remote(Coordinator)
    return coordinators.options(num_cpus=0.001).remote()


@pytest.mark.parametrize("ending", ["killed by the system", "ended by Ray", "dropped"])
@pytest.mark.slow
def test_a_gang_that_trains_ends_with_its_coordinator(ending, make_task, origin):
    coordinator = start_coordinator()
    pid, worker_pids = ray.get(coordinator.hold.remote(make_task("exchange_for_ever"), origin))
    if ending == "ended by Ray":
        ray.kill(coordinator)
    elif ending == "dropped":
        del coordinator
    else:
        os.kill(pid, signal.SIGKILL)
    wait_until(is_pool_free)
    wait_until(lambda: not any(psutil.pid_exists(worker) for worker in worker_pids))
    pids, _ = run(make_task("add_up", trial=1), origin, 2)
    assert not set(pids) & set(worker_pids)


@pytest.mark.slow
def test_a_rank_that_fails_leaves_the_gang_warm_and_says_why(make_task, origin):
    gang = Gang.lease(Request("run", num_workers=2), timeout_s=120)
    pids = [worker.pid for worker in gang.workers]
    gang.start(make_task("fail_on_rank_1"), origin=origin)
    _, ended = finish(gang)
    assert (ended.state, ended.reason) == ("failed", "error")
    assert "rank 1 has enough" in str(ended.message)
    assert sorted(run(make_task("add_up", trial=1), origin, 2)[0]) == sorted(pids)
