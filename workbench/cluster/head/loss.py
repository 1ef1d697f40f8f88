"""What happens to a process that needs the local head while that ends.

An error of ours, within seconds.

Ray tries for ten seconds to reach a head that has ended, and then ends the process with a message
of its own. A thread looks at the processes of the head instead. It interrupts the main thread with
the error; where the main thread is inside Ray and does not return, the error is printed and the
process ended before Ray does so.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from workbench.cluster.head.local_head import is_intact
from workbench.foundation.errors import RunError, Suggestion, WorkbenchError

_CHECK_S = 0.1
_PATIENCE_S = 4.0
"""How long the main thread may take to react: Ray writes its first message after 5 s."""
_FAILED = 1
"""The exit status of a command that fails."""
_AGAIN = "Run the command again: it starts a new head."


class _Guard:
    """Waits for the end of the head that the process needs."""

    def __init__(self, next_step: str | Suggestion) -> None:
        self.error = RunError("the local Ray head ended unexpectedly", next_step=next_step)
        self.needed: dict[str, Any] | None = None
        """The record of the head; None while another one may still be started."""
        self.is_lost = False
        self._is_over = threading.Event()
        self._before = signal.getsignal(signal.SIGINT)
        self._thread = threading.Thread(target=self._watch, name="head-guard", daemon=True)

    def begin(self) -> None:
        signal.signal(signal.SIGINT, self._on_interrupt)
        self._thread.start()

    def end(self) -> None:
        self._is_over.set()
        signal.signal(signal.SIGINT, self._before)

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.is_lost:
            raise self.error
        if callable(self._before):
            self._before(number, frame)
        elif self._before is signal.SIG_DFL:
            raise KeyboardInterrupt

    def _watch(self) -> None:
        while not self._is_over.wait(_CHECK_S):
            if self.needed is not None and not is_intact(self.needed):
                break
        else:
            return
        self.is_lost = True
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)
        if not self._is_over.wait(_PATIENCE_S):
            message = self.error.describe(
                lambda step: step.write(shlex.join(["workbench", *step.words]))
            )
            sys.stderr.write(f"error: {message}\n")
            sys.stderr.flush()
            os._exit(_FAILED)


_guard: _Guard | None = None


@contextlib.contextmanager
def guarded(next_step: str | Suggestion | None = None) -> Iterator[None]:
    """Raise a RunError within the block where the local head that it needs ends; see `need`.

    Blocks in other threads than the main one are left alone, and so are blocks within one.

    Args:
        next_step: What to do then; None to run the command again.

    Raises:
        RunError: If the head ends.
    """
    global _guard
    if _guard is not None or threading.current_thread() is not threading.main_thread():
        yield
        return
    guard = _guard = _Guard(next_step or _AGAIN)
    guard.begin()
    try:
        yield
    except Exception as error:
        is_own = isinstance(error, WorkbenchError) and not isinstance(error, RunError)
        if error is guard.error or is_own or not (guard.is_lost or _is_lost(guard)):
            raise
        raise guard.error from error  # what Ray raises then is not always an error of Ray
    finally:
        guard.end()
        _guard = None


def need(record: dict[str, Any]) -> None:
    """Let the block that is guarded, if one is, need the head with this record from now on."""
    if _guard is not None:
        _guard.needed = record


def _is_lost(guard: _Guard) -> bool:
    return guard.needed is not None and not is_intact(guard.needed)
