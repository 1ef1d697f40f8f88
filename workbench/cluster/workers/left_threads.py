"""Find the threads of a trial that still run its code after its end.

A thread cannot be ended from outside, and one that continues reports, trains or holds memory beside
the next trial. Threads that only wait inside a library are its own affair. What follows is left to
the worker.
"""

from __future__ import annotations

import sys
import threading
import time
from types import FrameType

from workbench.cluster.remote.code_origin import is_user_file

PATIENCE_S = 0.5
"""How long threads may take to notice that their trial is over."""


def left_threads(before: frozenset[int | None]) -> list[str]:
    """Return the names of the threads that run user code and were not there before.

    Args:
        before: What `thread_ids` returned when the trial started.
    """
    until_s = time.monotonic() + PATIENCE_S
    while (found := _find(before)) and time.monotonic() < until_s:
        time.sleep(0.02)  # threads that a library started outside of Python cannot be joined
    return sorted(thread.name for thread in found)


def thread_ids() -> frozenset[int | None]:
    """Return the threads of this process."""
    return frozenset(thread.ident for thread in threading.enumerate())


def _find(before: frozenset[int | None]) -> list[threading.Thread]:
    known = before | {threading.get_ident()}
    threads = [thread for thread in threading.enumerate() if thread.ident not in known]
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
