"""End the processes that a trial started and left behind."""

from __future__ import annotations

import contextlib
import os
import sys

import psutil

GRACE_S = 1.0


def end_child_processes() -> None:
    """Terminate every process below this one, and kill those that are still alive after `GRACE_S`."""
    if not _has_children():
        return
    found = [
        process
        for process in psutil.Process().children(recursive=True)
        if process.pid != _resource_tracker_pid()
    ]
    for kill in (False, True):
        for process in found:
            _signal(process, kill=kill)
        found = psutil.wait_procs(found, timeout=GRACE_S)[1]


def _has_children() -> bool:
    if not hasattr(os, "waitid"):
        return True
    try:  # after every trial; much cheaper than listing all processes of the machine
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _resource_tracker_pid() -> int | None:
    """Return the process with which Python itself frees shared memory; it belongs to no trial."""
    module = sys.modules.get("multiprocessing.resource_tracker")
    return None if module is None else module._resource_tracker._pid


def _signal(process: psutil.Process, *, kill: bool) -> None:
    with contextlib.suppress(psutil.Error):  # it has ended already, or belongs to another user now
        process.kill() if kill else process.terminate()
