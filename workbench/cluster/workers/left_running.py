"""Ends the processes that a trial left running, and finds its threads.

Some libraries keep services after a trial. They are asked to end them, as at the end of a process,
and start them again when they are used. All other processes are killed. The worker is then
replaced, because a library may expect that its process still answers.

A thread cannot be ended from outside. If it continues, it may report, train or hold memory during
the next trial. Threads that only wait inside a library are ignored. The worker decides whether it
can be used again.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
import time
from types import FrameType
from typing import Any

import psutil

from workbench.cluster.remote.code_origin import is_user_file

GRACE_S = 1.0
_TRACKERS = (
    "multiprocessing.resource_tracker",
    "loky.backend.resource_tracker",
    "joblib.externals.loky.backend.resource_tracker",
)
_EXECUTORS = ("loky.reusable_executor", "joblib.externals.loky.reusable_executor")
PATIENCE_S = 0.5
"""How long threads may take to notice that their trial is over."""


def end_services() -> list[str]:
    """Have libraries end the services that they keep, and finish what they have open.

    Returns:
        A sentence on each that failed.
    """
    failed = []
    services = (
        ("wandb", _end_wandb),
        ("mlflow", _end_mlflow),
        *((name, _end_loky) for name in _EXECUTORS),
    )
    for name, end in services:
        module = sys.modules.get(name)
        try:
            if module is not None:
                end(module)
        except Exception as error:  # whatever a library raises: its processes are killed next
            failed.append(f"{name} could not be ended: {type(error).__name__}: {error}")
    return failed


def end_child_processes() -> list[str]:
    """Terminate every process below this one, and kill those that are still alive after `GRACE_S`.

    Helpers with which Python itself frees shared memory and starts processes are kept.

    Returns:
        The names of those that something may still need: they were alive although unused objects,
        such as data loaders, had been freed.
    """
    if not _has_children() or not _find():
        return []
    gc.collect()  # a data loader that nobody uses ends its workers
    left = _find()
    names = [name for process in left if (name := _name(process))]
    for kill in (False, True):
        for process in left:
            _signal(process, kill=kill)
        left = psutil.wait_procs(left, timeout=GRACE_S)[1]
    return names


def _end_wandb(wandb: Any) -> None:
    if _has_children() or wandb.run is not None:
        wandb.teardown()  # what it does at the end of a process: finish runs, end its service


def _end_mlflow(mlflow: Any) -> None:
    while mlflow.active_run() is not None:  # runs can be nested
        mlflow.end_run()


def _end_loky(module: Any) -> None:
    if module._executor is not None:
        module._executor.shutdown(wait=True, kill_workers=True)


def _find() -> list[psutil.Process]:
    kept_pids = _kept_pids()
    return [
        process
        for process in psutil.Process().children(recursive=True)
        if process.pid not in kept_pids
    ]


def _has_children() -> bool:
    if not hasattr(os, "waitid"):
        return True
    try:  # done after every trial, and much cheaper than listing all processes of the machine
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _kept_pids() -> set[int | None]:
    """Return the helpers of Python itself, which belong to no trial."""
    modules = [sys.modules.get(name) for name in _TRACKERS]
    pids = {module._resource_tracker._pid for module in modules if module is not None}
    forkserver = sys.modules.get("multiprocessing.forkserver")
    return pids | ({forkserver._forkserver._forkserver_pid} if forkserver is not None else set())


def _name(process: psutil.Process) -> str | None:
    """Return the name of a process, or None if it has ended."""
    try:
        return None if process.status() == psutil.STATUS_ZOMBIE else process.name()
    except psutil.Error:
        return None


def _signal(process: psutil.Process, *, kill: bool) -> None:
    with contextlib.suppress(psutil.Error):  # it has ended already, or belongs to another user now
        process.kill() if kill else process.terminate()


def left_threads(before: frozenset[int | None]) -> list[str]:
    """Return the names of the threads that run user code and were not there before.

    Args:
        before: What `thread_ids` returned when the trial started.
    """
    until_s = time.monotonic() + PATIENCE_S
    while (left := _find_threads(before)) and time.monotonic() < until_s:
        time.sleep(0.02)  # threads that a library started outside of Python cannot be joined
    return sorted(thread.name for thread in left)


def thread_ids() -> frozenset[int | None]:
    """Return the threads of this process."""
    return frozenset(thread.ident for thread in threading.enumerate())


def _find_threads(before: frozenset[int | None]) -> list[threading.Thread]:
    ignored = before | {threading.get_ident()}
    threads = [thread for thread in threading.enumerate() if thread.ident not in ignored]
    if not threads:
        return []
    frames = sys._current_frames()
    return [thread for thread in threads if _runs_user_code(frames.get(thread.ident or 0))]


def _runs_user_code(frame: FrameType | None) -> bool:
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            return True
        frame = frame.f_back
    return False
