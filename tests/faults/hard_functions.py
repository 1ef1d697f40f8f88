"""The function of the campaign of hard trials.

What it does to its process is named by the configuration.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil

PRINTED_BYTES = 100 * 2**20
NUM_CHILDREN = 50
LEAKED_BYTES = 2 * 10**9
_leaked: list[bytearray] = []


def misbehave(config: dict[str, Any], report: Any) -> float:
    """Report once, do what `how` names, and return the value that a trial of its kind must have."""
    report(step=1, loss=1.0, resident_bytes=_resident_bytes())
    _WAYS[config["how"]](config, report)
    return 0.5


def _hold_the_gil(config: dict[str, Any], report: Any) -> None:
    re.match(r"(a+)+$", "a" * 60 + "b")  # one call of the interpreter that never releases it


def _ignore_signals(config: dict[str, Any], report: Any) -> None:
    subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 600 & wait", config["mark"]])
    while True:
        time.sleep(1.0)


def _shut_ray_down(config: dict[str, Any], report: Any) -> None:
    import ray

    ray.shutdown()
    time.sleep(2.0)


def _print_much(config: dict[str, Any], report: Any) -> None:
    line = "x" * 1023
    for _ in range(PRINTED_BYTES // 1024):
        print(line)


def _fork(config: dict[str, Any], report: Any) -> None:
    for _ in range(NUM_CHILDREN):
        subprocess.Popen(["sh", "-c", "sleep 600 & wait", config["mark"]], start_new_session=True)


def _leak(config: dict[str, Any], report: Any) -> None:
    _leaked.append(bytearray(b"x") * LEAKED_BYTES)
    report(step=2, loss=0.75, resident_bytes=_resident_bytes())


def _resident_bytes() -> float:
    return float(psutil.Process().memory_info().rss)


def _report_fast(config: dict[str, Any], report: Any) -> None:
    for step in range(2, 50_000):
        report(step=step, loss=1 / step)


def _leave_threads(config: dict[str, Any], report: Any) -> None:
    for _ in range(5):
        threading.Thread(target=_poll, daemon=True).start()


def _poll() -> None:
    while True:
        time.sleep(0.2)


def _close_output(config: dict[str, Any], report: Any) -> None:
    sys.stdout.close()
    os.close(2)


def _raise_in_a_thread(config: dict[str, Any], report: Any) -> None:
    thread = threading.Thread(target=lambda: 1 // 0)
    thread.start()
    thread.join()


def _hang(config: dict[str, Any], report: Any) -> None:
    threading.Event().wait()


_WAYS: dict[str, Callable[[dict[str, Any], Any], object]] = {
    "well": lambda config, report: None,
    "holds the GIL": _hold_the_gil,
    "ignores SIGTERM": _ignore_signals,
    "hangs": _hang,
    "segfaults": lambda config, report: ctypes.string_at(0),
    "exits": lambda config, report: os._exit(3),
    "shuts Ray down": _shut_ray_down,
    "prints much": _print_much,
    "forks": _fork,
    "leaks": _leak,
    "reports fast": _report_fast,
    "leaves threads": _leave_threads,
    "closes its output": _close_output,
    "raises in a thread": _raise_in_a_thread,
}
