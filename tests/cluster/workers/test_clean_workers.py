"""A trial finds its process as if it were a new one, whatever another trial did there."""

from __future__ import annotations

import dataclasses
from typing import Any

import psutil
import pytest
import ray

from tests.services.waiting import wait_until
from workbench.cluster.workers import caller_environment
from workbench.cluster.workers.admission import Request
from workbench.cluster.workers.gang import Gang
from workbench.cluster.workers.pool import connect_pool

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_head")]
ONE = Request("run")


def is_nothing_leased() -> bool:
    status: Any = ray.get(connect_pool().status.remote())
    return not status.leased


def run(task, origin, request: Request = ONE) -> tuple[dict[str, float], int, Any]:
    """Run one trial on a leased worker; return its values, the process, and why it was given up."""
    gang = Gang.lease(request, timeout_s=120)
    try:
        gang.start(task, origin=origin)
        values: dict[str, float] = {}
        while True:
            progress = gang.next(timeout_s=120)
            events: list[Any] = progress.events
            values |= {name: value for event in events for name, value in event.values.items()}
            if progress.ended is not None:
                assert progress.ended.state == "complete", progress.ended.traceback
                return values, gang.workers[0].pid, progress.unfit
    finally:
        gang.release()
        wait_until(is_nothing_leased)


def test_a_trial_finds_nothing_of_another_one_in_its_process_but_what_its_own_modules_set(
    make_task, origin
):
    ray.kill(connect_pool())
    clean = {"variable": 0.0, "folder": 0.0, "path": 0.0, "logging": 0.0, "by_import": 1.0}

    first, pid, unfit = run(make_task("look_for_changes"), origin)
    assert (first, unfit) == ({"loss": 1.0, **clean}, None)
    # The module was imported in the middle of the trial, so its changes are made again by another
    # import.
    second, *worker = run(make_task("look_for_changes", trial=1), origin)
    assert (second, worker) == ({"loss": 1.0, **clean}, [pid, None])
    other = dataclasses.replace(make_task("look_for_changes", trial=2), run_id="other")
    assert run(other, origin)[:2] == (first, pid)


@pytest.mark.slow
def test_a_worker_is_replaced_where_a_library_chose_its_backend_at_its_import(make_task, origin):
    _, pid, unfit = run(make_task("choose_backend"), origin)

    assert "set KERAS_BACKEND, which keras reads only when it is imported" in unfit
    assert run(make_task("constant"), origin)[1] != pid


@pytest.mark.slow
def test_a_worker_is_replaced_where_a_trial_left_a_thread(make_task, origin):
    _, pid, unfit = run(make_task("leave_a_thread"), origin)

    assert unfit.endswith("still ran threads of the trial: poller")
    assert run(make_task("constant", trial=1), origin)[1] != pid


@pytest.mark.slow
def test_a_trial_that_shuts_ray_down_ends_and_keeps_its_worker(make_task, origin):
    values, pid, unfit = run(make_task("shut_ray_down"), origin)

    assert (values, unfit) == ({"loss": 0.5}, None)
    assert run(make_task("constant", trial=1), origin)[1] == pid


@pytest.mark.slow
def test_what_a_trial_leaves_running_ends_and_the_next_one_can_start_it_again(make_task, origin):
    first, pid, unfit = run(make_task("keep_a_manager"), origin)
    assert "had processes left, which were ended" in unfit
    assert not psutil.pid_exists(int(first["pid"]))

    second, other_pid, _ = run(make_task("keep_a_manager", trial=1), origin)
    assert (second["loss"], other_pid != pid) == (1.0, True)


@pytest.mark.slow
def test_helpers_of_libraries_that_start_again_end_and_leave_the_worker_warm(make_task, origin):
    runs = [run(make_task("use_helpers", trial=trial), origin) for trial in range(2)]

    assert [values["loss"] for values, _, _ in runs] == [7.0, 7.0]
    assert runs[0][1:] == runs[1][1:] == (runs[0][1], None)
    assert not [
        child
        for child in psutil.Process(runs[0][1]).children(recursive=True)
        if "loky" in child.name()
    ]


@pytest.mark.slow
def test_workers_have_the_variables_of_the_caller_and_are_not_shared_with_another_one(
    make_task, origin, monkeypatch
):
    pids = {}
    for value in ("1", "2", "1"):
        monkeypatch.setenv("GIVEN_BY_CALLER", value)
        request = dataclasses.replace(ONE, environment=caller_environment.publish())
        values, pid, _ = run(make_task("show_variable", name="GIVEN_BY_CALLER"), origin, request)
        assert values["loss"] == float(value)
        assert pids.setdefault(value, pid) == pid
    assert len(set(pids.values())) == 2
    monkeypatch.delenv("GIVEN_BY_CALLER")
    request = dataclasses.replace(ONE, environment=caller_environment.publish())
    assert (
        run(make_task("show_variable", name="GIVEN_BY_CALLER"), origin, request)[0]["loss"] == 0.0
    )


@pytest.mark.slow
def test_fresh_workers_run_one_trial_each(make_task, origin):
    fresh = dataclasses.replace(ONE, fresh=True)
    pids = [run(make_task("constant"), origin, request)[1] for request in (fresh, fresh, ONE)]
    assert len(set(pids)) == 3
