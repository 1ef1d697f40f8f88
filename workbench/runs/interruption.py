"""How a process that stays with a run takes being ended.

Like Ctrl-C, whatever Ray would make of it.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def ended_like_interrupted() -> Iterator[None]:
    """Let SIGTERM do what Ctrl-C does.

    Ray, where it was used, would write its stack to the terminal.

    Only a process's first thread receives signals: in others nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
