"""Pause Python's search for garbage while many objects are made that all stay.

The search goes through all objects each time their number has grown by a quarter. While a long run
is read, it finds nothing and takes as long as the reading itself.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_num_pauses = 0
_was_on = False


@contextmanager
def no_garbage_search() -> Iterator[None]:
    """Pause the search until the end of the block, in all threads.

    Blocks may be nested, and may overlap in several threads. The search goes on after the last one,
    if it was on before the first.

    Example:
        >>> import gc
        >>> from workbench.foundation.garbage import no_garbage_search
        >>> with no_garbage_search():
        ...     gc.isenabled()
        False
        >>> gc.isenabled()
        True
    """
    global _num_pauses, _was_on
    with _lock:
        _num_pauses += 1
        if _num_pauses == 1:
            _was_on = gc.isenabled()
            gc.disable()
    try:
        yield
    finally:
        with _lock:
            _num_pauses -= 1
            if _num_pauses == 0 and _was_on:
                gc.enable()
