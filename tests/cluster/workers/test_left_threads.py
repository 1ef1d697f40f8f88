"""A thread that a trial leaves running is found.

One that ends, or waits inside a library, is not.
"""

from __future__ import annotations

import concurrent.futures
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

import pytest

from workbench.cluster.workers.left_running import end_services, left_threads, thread_ids


@pytest.fixture
def over() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_a_thread_that_runs_the_code_of_the_trial_is_named(over: threading.Event) -> None:
    def poll() -> None:
        over.wait(60)

    before = thread_ids()
    threading.Thread(target=poll, name="my poller", daemon=True).start()
    assert left_threads(before) == ["my poller"]
    assert left_threads(thread_ids()) == []


def test_a_thread_that_is_about_to_end_may_do_so(over: threading.Event) -> None:
    before = thread_ids()
    thread = threading.Thread(target=lambda: over.wait(0.05))
    thread.start()
    assert left_threads(before) == []
    assert not thread.is_alive()


def test_threads_of_libraries_that_wait_for_work_are_no_reason_to_replace_a_worker() -> None:
    before = thread_ids()
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        assert executor.submit(int, "1").result() == 1
        assert thread_ids() - before
        assert left_threads(before) == []


def test_runs_of_mlflow_that_a_trial_left_open_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = ["outer", "nested"]
    module = types.ModuleType("mlflow")
    module.active_run = lambda: opened[-1] if opened else None  # pyright: ignore[reportAttributeAccessIssue]
    module.end_run = opened.pop  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "mlflow", module)
    assert end_services() == []
    assert opened == []
