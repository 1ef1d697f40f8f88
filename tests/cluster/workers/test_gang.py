from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from ray.exceptions import RayActorError

from tests.services.waiting import wait_until
from workbench.cluster.remote.code_origin import Origin
from workbench.cluster.workers import gang as gang_module
from workbench.cluster.workers import pool as pool_module
from workbench.cluster.workers.admission import Request, Shape
from workbench.cluster.workers.gang import Gang
from workbench.cluster.workers.pool import START_ATTEMPTS, Lease, Owner, Pool, connect_pool
from workbench.cluster.workers.pool_client import cancel
from workbench.cluster.workers.pool_workers import start_worker
from workbench.foundation.errors import ResourcesError

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_head")]
ONE = Request("run")


def run(task, origin: Origin, request: Request = ONE):
    """Run one trial on a leased worker.

    Return all its events, its end, and the worker, given back.
    """
    gang = Gang.lease(request, timeout_s=120)
    try:
        gang.start(task, origin=origin)
        events = []
        while True:
            progress = gang.next(timeout_s=120)
            events += progress.events
            if progress.ended is not None:
                worker = gang.workers[0]
                gang.release()
                # An actor may take up calls in another order than they were sent: releases never
                # wait.
                wait_until(is_pool_free)
                return events, progress.ended, worker
    finally:
        gang.release()


def pool_status() -> Any:
    return ray.get(connect_pool().status.remote())


def is_pool_free() -> bool:
    status = pool_status()
    return not status.leased and status.num_waiting == 0


@pytest.fixture(autouse=True)
def _no_test_leaves_a_lease():
    yield
    try:
        wait_until(is_pool_free)
    except TimeoutError:
        ray.kill(connect_pool())
        raise


def test_a_trial_runs_on_a_worker_and_the_next_one_finds_it_warm(make_task, origin):
    events, ended, worker = run(make_task("constant", x=0.25), origin)
    assert [event.values for event in events] == [{"loss": 0.25}]
    assert ended.state == "complete"
    assert worker.pid != os.getpid()
    assert run(make_task("constant", trial=1), origin)[2] == worker


def test_a_function_trial_loads_no_torch_sees_no_gpu_and_its_prints_land_in_its_log(
    make_task, origin
):
    ray.kill(connect_pool())  # its workers may have torch loaded, from other trials
    task = make_task("look_around")
    events, _, _ = run(task, origin)
    assert events[0].values == {
        "loss": 0.0,
        "torch_loaded": 0.0,
        "num_threads": 1.0,
        "sees_gpu": 0.0,
    }
    log = (Path(task.folder) / "log.txt").read_text()
    assert log == "printed by the trial\nprinted by a child\n"
    run(task, origin)
    assert (Path(task.folder) / "log.txt").read_text() == 2 * log


def test_a_silent_trial_leaves_no_file(make_task, origin):
    task = make_task("constant")
    run(task, origin)
    assert not Path(task.folder).exists()


def test_a_failing_trial_has_its_traceback_in_its_log_and_leaves_its_worker_usable(
    make_task, origin
):
    task = make_task("give_up")
    _, ended, worker = run(task, origin)
    assert (ended.state, ended.reason) == ("failed", "error")
    assert (Path(task.folder) / "log.txt").read_text() == ended.traceback
    assert run(make_task("constant"), origin)[2] == worker


def test_a_blocking_trial_stops_at_exactly_the_report_that_was_answered_with_stop(
    make_task, origin, tmp_path
):
    note = tmp_path / "note"
    gang = Gang.lease(ONE)
    gang.start(make_task("count", note=str(note)), blocking=True, origin=origin)
    for step in range(1, 6):
        progress: Any = gang.next(timeout_s=120)
        assert [event.step for event in progress.events] == [step]
        time.sleep(0.05)
        assert note.read_text() == str(step), "training goes on before it was allowed to"
    progress = gang.next(stop=True, timeout_s=120)
    assert progress.ended is not None
    assert (progress.ended.state, progress.ended.step, progress.events) == ("stopped", 5, [])
    assert note.read_text() == "5"
    gang.release()


def test_a_blocking_trial_waits_only_at_reports_of_an_objective(make_task, origin, tmp_path):
    note = tmp_path / "note"
    gang = Gang.lease(ONE)
    gang.start(make_task("count_apart", note=str(note)), blocking=True, origin=origin)
    seen = []
    while True:
        progress: Any = gang.next(timeout_s=120)
        seen += [event.step for event in progress.events]
        if progress.ended is not None:
            break
        time.sleep(0.05)
        assert int(note.read_text()) == 2 * ((seen[-1] + 1) // 2)
    assert seen == [1, 2, 3, 4, 5, 6]
    gang.release()


@pytest.mark.slow
def test_a_trial_that_does_not_listen_is_ended_after_the_grace_and_its_worker_replaced(
    make_task, origin
):
    gang = Gang.lease(ONE)
    gang.start(make_task("sleep"), origin=origin)
    first: Any = gang.next(timeout_s=120)
    assert [event.step for event in first.events] == [1]
    assert gang.next(timeout_s=0.2).events == []
    progress = gang.stop(grace_s=0.5)
    assert progress.ended is None
    old = gang.workers[0]
    gang.release()
    assert run(make_task("constant"), origin)[2] != old
    wait_until(lambda: not psutil.pid_exists(old.pid))


@pytest.mark.slow
def test_a_killed_worker_is_reported_lost_and_replaced(make_task, origin, capfd):
    gang = Gang.lease(ONE)
    gang.start(make_task("sleep"), origin=origin)
    gang.next(timeout_s=120)
    os.kill(gang.workers[0].pid, signal.SIGKILL)
    progress = gang.next(timeout_s=120)
    assert (progress.lost, progress.ended) == ("lost", None)
    assert gang.next().lost == "lost"
    old = gang.workers[0]
    gang.release()
    assert run(make_task("constant"), origin)[2] != old
    time.sleep(1)
    assert capfd.readouterr() == ("", ""), "Ray is not to be heard"


@pytest.mark.slow
def test_an_idle_worker_that_was_killed_is_not_leased(make_task, origin):
    _, _, worker = run(make_task("constant"), origin)
    os.kill(worker.pid, signal.SIGKILL)
    time.sleep(5)  # the cluster hears of it within a moment, on a busy machine within seconds
    assert run(make_task("constant"), origin)[2] != worker


def start_coordinator() -> Any:
    """Start an actor that holds a gang, as the trial of a sweep does."""

    class Coordinator:
        def hold(self, task, origin):
            self.gang = Gang.lease(ONE)
            self.gang.start(task, origin=origin)
            self.gang.next()
            return os.getpid(), self.gang.workers[0].pid

    coordinators: Any = ray.remote(Coordinator)
    return coordinators.options(num_cpus=0.001).remote()


def test_what_a_killed_coordinator_held_comes_back(make_task, origin):
    coordinator = start_coordinator()
    pid, worker_pid = ray.get(coordinator.hold.remote(make_task("sleep"), origin))
    assert pool_status().leased == {"run": 1}
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not pool_status().leased)
    wait_until(lambda: not psutil.pid_exists(worker_pid))


@pytest.mark.slow
def test_the_next_trial_keeps_the_workers_and_is_cancelled_by_its_own_number(
    make_task, origin, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(gang_module, "KEPT_S", 600.0)
    gang = Gang.lease(Request("run", trial=0), timeout_s=120)
    assert not gang.continue_with(Request("run", trial=1, num_workers=2)), "those are other workers"
    gang.start(make_task("constant"), origin=origin)
    assert not gang.continue_with(Request("run", trial=1)), "trial 0 still runs"
    while gang.next(timeout_s=120).ended is None:
        pass
    [kept] = gang.workers
    assert gang.continue_with(Request("run", trial=1))
    gang.start(make_task("sleep", trial=1), origin=origin)
    assert gang.next(timeout_s=120).events
    gang.announce()
    ray.get(cancel("run", 0))  # comes late
    assert psutil.pid_exists(kept.pid)
    assert pool_status().leased == {"run": 1}
    ray.get(cancel("run", 1))
    assert pool_status().leased == {}
    wait_until(lambda: not psutil.pid_exists(kept.pid))  # it does not listen


@pytest.mark.slow
def test_workers_are_kept_for_a_while_only_and_never_where_each_trial_has_its_own(
    make_task, origin, monkeypatch: pytest.MonkeyPatch
):
    for kept_s, request in (
        (0.0, Request("run", trial=0)),
        (600.0, Request("run", trial=0, fresh=True)),
    ):
        monkeypatch.setattr(gang_module, "KEPT_S", kept_s)
        gang = Gang.lease(request, timeout_s=120)
        gang.start(make_task("constant"), origin=origin)
        while gang.next(timeout_s=120).ended is None:
            pass
        assert not gang.continue_with(dataclasses.replace(request, trial=1))
        gang.release()


@pytest.mark.parametrize(("given", "idle_s"), [("", 60.0), ("900", 900.0), ("soon", 60.0)])
def test_how_long_workers_stay_warm_is_set_by_a_variable(
    monkeypatch: pytest.MonkeyPatch, given: str, idle_s: float
) -> None:
    monkeypatch.setenv("WORKBENCH_WORKER_IDLE_S", given)
    assert Pool()._idle._idle_s == idle_s


@pytest.mark.slow
def test_a_new_coordinator_first_ends_what_a_dead_one_held_for_a_trial_unknown_to_the_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ray.kill(connect_pool())  # its idle workers hold the room
    monkeypatch.setattr(pool_module, "OWNER_CHECK_S", 600.0)  # no periodic check
    dead, living = Owner("job", 1, "dead"), Owner("job", 2, "living")
    monkeypatch.setattr(pool_module, "find_dead", lambda owners: owners & {dead})

    async def leases() -> tuple[Lease, Lease, dict[str, int]]:
        pool = Pool()
        first = await pool.lease(Request("run", trial=0), dead)
        second = await pool.lease(
            Request("run", trial=1), living
        )  # the dead one may have continued with it
        leased = (await pool.status()).leased
        await pool.release(second.lease_id, unhealthy=(0,))
        return first, second, leased

    first, second, leased = asyncio.run(leases())
    assert leased == {"run": 1}
    assert first.infos != second.infos
    wait_until(lambda: not psutil.pid_exists(first.infos[0].pid))


def test_a_request_that_is_withdrawn_while_its_workers_start_leaves_no_lease() -> None:
    async def leased_after_withdrawal() -> dict[str, int]:
        pool = Pool()
        lease = asyncio.create_task(pool.lease(Request("run", trial=0)))
        while not (await pool.status()).leased:
            await asyncio.sleep(0)
        lease.cancel()
        await asyncio.wait([lease])
        leased = (await pool.status()).leased
        for lease_id in list(pool._leased):
            await pool.release(lease_id, unhealthy=(0,))
        await pool.give_way()
        return leased

    assert asyncio.run(leased_after_withdrawal()) == {}


@pytest.mark.slow
def test_what_a_killed_coordinator_waited_for_is_not_leased(make_task, origin):
    both = [Gang.lease(ONE), Gang.lease(ONE)]
    coordinator = start_coordinator()
    waiting = coordinator.hold.remote(make_task("sleep"), origin)
    wait_until(lambda: pool_status().num_waiting == 1)
    ray.kill(coordinator)
    wait_until(lambda: pool_status().num_waiting == 0)
    with pytest.raises(RayActorError):
        ray.get(waiting)
    for gang in both:
        gang.release()


@pytest.mark.slow
def test_what_a_process_held_that_is_no_actor_comes_back_when_it_ends(ray_head):
    code = (
        "from workbench.cluster.head import attachment; attachment.connect()\n"
        "from workbench.cluster.workers.gang import Gang, Request\n"
        "gang = Gang.lease(Request('other')); print(gang.workers[0].pid, flush=True)\n"
        "import time; time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert int(process.stdout.readline()) > 0
    assert pool_status().leased == {"other": 1}
    process.kill()
    process.wait()
    wait_until(lambda: not pool_status().leased)


def test_a_gang_that_can_never_run_is_refused_and_does_not_wait():
    for request in (
        Request("run", num_workers=3),
        Request("run", shape=Shape(gpus=1)),
        Request("run", shape=Shape(3)),
    ):
        with pytest.raises(ResourcesError, match="can never run here"):
            Gang.lease(request)
    assert pool_status().num_waiting == 0


@pytest.mark.slow
def test_a_gang_is_admitted_whole_and_nobody_passes_it(make_task, origin):
    first = Gang.lease(ONE)
    pair = Gang(Request("pair", num_workers=2))
    late = Gang(Request("late"))
    assert not pair.ready(0.5)
    assert not late.ready(0.5)
    first.release()
    assert pair.ready(60)
    assert len({worker.pid for worker in pair.workers}) == 2
    pair.start(make_task("constant"), origin=origin)
    progress = pair.next(timeout_s=120)
    while progress.ended is None:
        progress = pair.next(timeout_s=120)
    assert progress.ended.state == "complete", progress.ended.traceback
    pair.release()
    assert late.ready(60)
    late.release()


@pytest.mark.slow
def test_nobody_trains_a_trial_while_its_last_attempt_has_not_ended(make_task, origin):
    request = Request("run", trial=3)
    first = Gang.lease(request, timeout_s=120)
    first.start(make_task("sleep"), origin=origin)
    assert first.next(timeout_s=120).events
    [old] = first.workers
    first.release()  # it does not listen, so its process is ended after a grace
    again = Gang(request)
    assert not again.ready(0), "another worker is free, and yet"
    assert again.ready(60)
    wait_until(lambda: not psutil.pid_exists(old.pid))
    again.release()


@pytest.mark.slow
def test_a_worker_that_is_still_stopping_leaves_no_room_for_another(make_task, origin):
    """The next worker would wait until an idle one of the same node is ended after a minute."""
    num_cpus = int(ray.cluster_resources()["CPU"])
    slow = Gang.lease(Request("slow"), timeout_s=120)
    slow.start(make_task("report_slowly"), origin=origin)
    assert slow.next(timeout_s=120).events
    others = Gang.lease(Request("run", num_workers=num_cpus - 1), timeout_s=120)
    others.start(make_task("constant", trial=1), origin=origin)
    while others.next(timeout_s=120).ended is None:
        pass
    others.release()
    wait_until(lambda: len(pool_status().idle_pids) == num_cpus - 1)
    slow.release()  # its trial ends at its next report
    begun_s = time.monotonic()
    # No worker that has run a trial may serve it, so that it needs a new one.
    late = Gang.lease(Request("late", fresh=True), timeout_s=120)
    took_s = time.monotonic() - begun_s
    late.release()
    assert took_s < pool_module.WORKER_IDLE_S / 2


def test_the_death_of_any_rank_ends_the_gang(make_task, origin):
    gang = Gang.lease(Request("run", num_workers=2))
    gang.start(make_task("sleep"), origin=origin)
    gang.next(timeout_s=120)
    os.kill(gang.workers[1].pid, signal.SIGKILL)
    progress = gang.next(timeout_s=120)
    assert progress.lost == "lost"
    assert str(gang.workers[1].pid) in str(progress.message)
    gang.release()


def test_two_runs_get_their_turns_evenly():
    holding = [Gang.lease(Request("a")), Gang.lease(Request("a"))]
    waiting = [Gang(Request("a")) for _ in range(6)] + [Gang(Request("b")) for _ in range(6)]
    turns = []
    while waiting:
        holding.pop(0).release()
        wait_until(lambda: any(gang.ready(0) for gang in waiting))
        gang = next(gang for gang in waiting if gang.ready(0))
        waiting.remove(gang)
        holding.append(gang)
        turns.append(gang._request.run_id)
    assert turns[:10].count("b") == 5
    for gang in holding:
        gang.release()


@pytest.mark.slow
def test_a_worker_of_another_shape_takes_the_place_of_idle_ones(make_task, origin):
    run(make_task("constant"), origin)
    large = Gang.lease(Request("run", shape=Shape(cpus=2)), timeout_s=120)
    large.release()
    run(make_task("constant"), origin)


def test_a_trial_runs_the_code_that_is_on_the_disk_when_it_starts(make_task, origin, tmp_path):
    def place(name: str, value: float) -> Origin:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "edited_module.py").write_text(f"VALUE = {value}\n")
        (folder / "relative.txt").write_text(name)
        return Origin(str(folder), (*origin.search_path, str(folder)))

    worker_pids = set()

    def loss(trial: int, here: Origin) -> float:
        task = make_task("import_here", trial=trial)
        _, ended, worker = run(task, here)
        worker_pids.add(worker.pid)
        assert (Path(task.folder) / "log.txt").read_text() == f"{Path(here.directory).name}\n"
        return ended.values["loss"]

    here = place("here", 1.0)
    assert loss(0, here) == 1.0
    place("here", 2.0)
    assert loss(1, here) == 2.0
    place("here", 3.0)
    assert loss(2, here) == 3.0
    there = place("there", 4.0)
    assert loss(3, there) == 4.0
    assert loss(4, here) == 3.0
    assert len(worker_pids) == 1, "the worker stays warm"


@pytest.mark.slow
def test_a_pool_that_dies_takes_its_workers_along_and_another_opens(make_task, origin):
    gang = Gang.lease(ONE)
    gang.start(make_task("sleep"), origin=origin)
    gang.next(timeout_s=120)
    ray.kill(connect_pool())
    progress = gang.next(timeout_s=120)
    assert progress.lost == "lost"
    gang.release()
    assert run(make_task("constant"), origin)[1].state == "complete"


@pytest.mark.slow
def test_a_gang_that_has_waited_for_long_outlives_its_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang_module, "POOL_RESTART_S", 0.0)  # it has waited for longer than that
    held, gang = Gang.lease(Request("other", num_workers=2)), Gang(ONE)
    try:
        assert not gang.ready(0.1)
        ray.kill(connect_pool())
        assert gang.ready(120.0)
    finally:
        gang.release()
        held.release()


@pytest.mark.slow
def test_a_lease_waits_for_another_node_where_its_own_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in the moment in which a node is lost, or Ray is shut down: no trial fails for that."""
    gone = iter(["a" * 56] * START_ATTEMPTS)
    monkeypatch.setattr(
        "workbench.cluster.workers.pool_workers.start_worker",
        lambda node_id, request: start_worker(next(gone, node_id), request),
    )

    async def lease() -> Lease:
        pool = Pool()
        found = await pool.lease(ONE)
        await pool.release(found.lease_id, unhealthy=(0,))
        return found

    assert len(asyncio.run(lease()).workers) == 1
    assert next(gone, None) is None
