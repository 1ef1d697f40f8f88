"""The one loop in which tests wait for something that another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def wait_until(
    find: Callable[[], Found | None],
    timeout_s: float = 500.0,
    *,
    what: str = "it",
    every_s: float = 0.02,
) -> Found:
    """Wait until something is true and return it.

    Args:
        find: What is called until it returns something true.
        timeout_s: A limit for what never happens, below the one that pytest sets: machines that
            run tests are shared.
        what: What is awaited, for the message.
        every_s: The pause between two calls.

    Raises:
        TimeoutError: It did not happen.
    """
    if not (value := try_until(find, timeout_s, every_s=every_s)):
        raise TimeoutError(f"{what} did not happen within {timeout_s:g} s")
    return value


def try_until(find: Callable[[], Found], timeout_s: float, *, every_s: float = 0.02) -> Found:
    """Return what is found as soon as it is true, or what is found when the time is over."""
    until_s = time.monotonic() + timeout_s
    while not (value := find()) and time.monotonic() < until_s:
        time.sleep(every_s)
    return value
