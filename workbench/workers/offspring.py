"""The processes that a trial started and left behind: they end when the trial does."""

from __future__ import annotations

import contextlib
import os
import sys

import psutil

GRACE_S = 1.0


def end_offspring() -> None:
    """End every process below this one, those that ignore a polite request after `GRACE_S`."""
    if not _has_children():
        return
    found = [process for process in psutil.Process().children(recursive=True) if process.pid != _tracker()]
    for politely in (True, False):
        for process in found:
            _send(process, politely=politely)
        found = psutil.wait_procs(found, timeout=GRACE_S)[1]


def _has_children() -> bool:
    if not hasattr(os, "waitid"):
        return True
    try:  # much cheaper than a walk over all processes of the machine, after every trial
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _tracker() -> int | None:
    """Return the process by which Python itself frees shared memory; it belongs to no trial."""
    module = sys.modules.get("multiprocessing.resource_tracker")
    return None if module is None else module._resource_tracker._pid


def _send(process: psutil.Process, *, politely: bool) -> None:
    with contextlib.suppress(psutil.Error):  # gone already, or no longer this user's
        process.terminate() if politely else process.kill()
