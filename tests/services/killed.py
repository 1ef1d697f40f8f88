"""A process that is killed at an exact place: before it renames a file for the n-th time."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable


def kill_at_rename(number: int, copy: Callable[[], None]) -> bool:
    """Copy in a process that is killed before its n-th rename; return whether it was."""
    pid = os.fork()
    if pid == 0:
        left = number

        def watch(event: str, _: tuple[object, ...]) -> None:
            nonlocal left
            if event == "os.rename":
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(watch)
        copy()
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status)
