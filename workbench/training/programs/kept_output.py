"""What a program prints.

Passed on to the log of its trial up to a limit, and its end remembered.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Iterator

from workbench.foundation.formatting import format_bytes

TAIL_BYTES = 65536


class KeptOutput:
    """The output of one attempt; what this process prints is the log of the trial."""

    def __init__(self, max_bytes: int) -> None:
        """Keep nothing yet.

        Args:
            max_bytes: How much of the output the log takes.
        """
        self._left_bytes = max_bytes
        self._num_dropped = 0
        self._parts: deque[bytes] = deque()
        self._num_bytes = 0
        self.errors = b""
        """The end of the standard error."""

    def write(self, data: bytes, *, is_error: bool) -> None:
        """Take what was printed.

        Args:
            data: The bytes.
            is_error: Whether they were printed to the standard error.
        """
        if is_error:
            self.errors = (self.errors + data)[-TAIL_BYTES:]
        kept = data[: self._left_bytes]
        self._left_bytes -= len(kept)
        self._num_dropped += len(data) - len(kept)
        _write_log(kept)
        self._parts.append(data)
        self._num_bytes += len(data)
        while self._num_bytes - len(self._parts[0]) >= TAIL_BYTES:
            self._num_bytes -= len(self._parts.popleft())

    def tail(self) -> str:
        """Return the end of the output."""
        return b"".join(self._parts)[-TAIL_BYTES:].decode(errors="replace")

    def close(self) -> None:
        """Add the end of an output that was too long."""
        if self._num_dropped:
            end = b"".join(self._parts)[-min(TAIL_BYTES, self._num_dropped) :]
            dropped = format_bytes(self._num_dropped - len(end))
            _write_log(
                f"\nworkbench: {dropped} of output are not kept here; it ends with\n".encode() + end
            )


def _write_log(data: bytes) -> None:
    for part in _parts_of(data):
        with contextlib.suppress(OSError):  # a full disk costs the log, not the trial
            os.write(1, part)


def _parts_of(data: bytes) -> Iterator[bytes]:
    for begin in range(0, len(data), TAIL_BYTES):
        yield data[begin : begin + TAIL_BYTES]
