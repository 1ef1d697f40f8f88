"""Threads and child processes that a trial leaves running are found and end with it."""

from __future__ import annotations

import concurrent.futures
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
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
        over.wait(120)

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


SCRIPT = """
import multiprocessing.shared_memory, subprocess, sys, psutil
from workbench.cluster.workers.left_running import end_child_processes
end_child_processes()
shared = multiprocessing.shared_memory.SharedMemory(create=True, size=8)
deaf = "trap '' TERM; sleep 99 & echo; wait"
subprocess.Popen(["sh", "-c", deaf], stdout=subprocess.PIPE).stdout.readline()
other = ["sh", "-c", "sleep 99 & echo; wait"]
subprocess.Popen(other, start_new_session=True, stdout=subprocess.PIPE).stdout.readline()
before = psutil.Process().children(recursive=True)
end_child_processes()
left = [process for process in before if process.is_running() and process.status() != "zombie"]
helper = multiprocessing.resource_tracker._resource_tracker._pid
print(len(before), *(process.pid - helper for process in left))
shared.close(); shared.unlink()
"""


def test_every_process_below_this_one_ends_but_pythons_own_helper() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=True
    )

    assert (done.stdout.split(), done.stderr) == (["5", "0"], "")


WANDB = """
import sys
sys.path.append(sys.argv[1])
import psutil, wandb
from workbench.cluster.workers.left_running import end_child_processes, end_services
for trial in range(2):
    settings = wandb.Settings(silent=True)
    wandb.init(mode="offline", dir=sys.argv[2], settings=settings).log({"loss": 0.5})
    print(end_services(), end_child_processes(), len(psutil.Process().children()))
"""


def test_wandb_can_be_used_in_every_trial(tmp_path: Path) -> None:
    wandb = pytest.importorskip("wandb")
    folder = str(Path(wandb.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", WANDB, folder, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.stdout.splitlines() == ["[] [] 0"] * 2, done.stderr
    assert len(list(tmp_path.glob("wandb/offline-run-*/*.wandb"))) == 2
