"""Run a command on one processor, and measure what all of its processes used.

Called as `python one_core.py PROCESSOR SECONDS COMMAND...`. Everything that the command leaves
behind, such as a Ray head, is adopted, ended and counted. The last line is JSON.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from typing import Any

_PR_SET_CHILD_SUBREAPER = 36
_GRACE_S = 10.0


def run(processor: int, limit_s: float, command: list[str]) -> dict[str, Any]:
    """Run a command, and return its exit code, its seconds, and those of the processor."""
    os.sched_setaffinity(0, {processor})
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    began_s = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            output = process.communicate(timeout=limit_s)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            output = process.communicate()[0]
    wall_s = time.monotonic() - began_s
    _end_adopted()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "returncode": process.returncode,
        "output": output,
        "wall_s": wall_s,
        "processor_s": used.ru_utime + used.ru_stime,
        "peak_bytes": used.ru_maxrss * 1024,
    }


def _end_adopted() -> None:
    """End the processes that the command has left, and wait for them so that they are counted."""
    until_s = time.monotonic() + _GRACE_S
    while children := _children():
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM if time.monotonic() < until_s else signal.SIGKILL)
        time.sleep(0.1)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _children() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        return [int(pid) for pid in file.read().split()]


if __name__ == "__main__":
    print(json.dumps(run(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:])))
