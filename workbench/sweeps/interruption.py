"""How a process that drives a run takes being interrupted: the run stops first, as if by its user.

So the last reports of its trials are stored, and no trial stands as running that has ended.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType

from typing_extensions import Self

ONE_INTERRUPTION_S = 0.5
"""A program that starts others may send the same signal to a process and to its group."""


class Interruptions:
    """Lets the first interruption within the block stop a run, and the second end the process's
    work at once.

    An interruption is a signal whose handler raises KeyboardInterrupt; other handlers keep what
    they do. Threads other than the main one receive no signals.
    """

    def __init__(self) -> None:
        """Prepare to receive SIGINT, and SIGTERM where it interrupts too."""
        self._before: dict[int, Callable[[int, FrameType | None], object]] = {}
        self._stop: Callable[[], object] | None = None
        self._first_s: float | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                if callable(before := signal.getsignal(number)):
                    self._before[number] = before
                    signal.signal(number, self._receive)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        if error is None and self._first_s is not None:
            raise KeyboardInterrupt

    def stop_by(self, stop: Callable[[], object]) -> None:
        """Call `stop` at the first interruption; until then, interruptions are raised.

        Args:
            stop: Requests that the run stop; called in the middle of anything.
        """
        self._stop = stop

    def _receive(self, number: int, frame: FrameType | None) -> None:
        try:
            self._before[number](number, frame)
        except KeyboardInterrupt:
            now_s = time.monotonic()
            is_repeated = self._first_s is not None and now_s - self._first_s > ONE_INTERRUPTION_S
            if self._stop is None or is_repeated:
                raise
            self._first_s = self._first_s or now_s
            self._stop()
