"""Search what a worker prints for patterns, on the node where it prints.

No log is sent between nodes.

Each pattern is reported once an attempt. How much is read, and how much of a line is searched, is
bounded, and a pattern that is slow to match is dropped, so that the search costs a training next to
nothing.
"""

from __future__ import annotations

import codecs
import re
import time
from collections.abc import Callable

SCAN_INTERVAL_S = 1.0
MAX_BYTES = 2**20
"""The most that one scan reads; of a longer part of the log it reads the end."""
LINE_CHARS = 1000
SHOWN_CHARS = 300
SLOW_S = 0.5
"""A pattern that takes longer than this in one scan is dropped."""
_DECODER = codecs.getincrementaldecoder("utf-8")
_ENDS = re.compile(r"[\r\n]+")


class LogWatch:
    """Searches one growing log for patterns."""

    def __init__(
        self, patterns: tuple[str, ...], size: Callable[[], int], read: Callable[[int, int], bytes]
    ):
        """Start at the end of the log.

        Args:
            patterns: Valid regular expressions.
            size: Returns the length of the log in bytes.
            read: Returns bytes of the log, given an offset and a number of bytes.
        """
        self._patterns = {pattern: re.compile(pattern) for pattern in patterns}
        self._size = size
        self._read = read
        self._offset = size() if patterns else 0
        self._rest = ""
        self._decoder = _DECODER("replace")
        self._scanned_s = time.monotonic()

    def scan(self, *, at_end: bool = False) -> list[tuple[str, str]]:
        """Return what was found since the last scan: each pattern, and the line it matched.

        Args:
            at_end: Whether nothing more will be printed, so that a last line without a line break
                counts, too. Without it, nothing is read within `SCAN_INTERVAL_S` of the last scan.
        """
        now_s = time.monotonic()
        if not self._patterns or (not at_end and now_s - self._scanned_s < SCAN_INTERVAL_S):
            return []
        self._scanned_s = now_s
        lines = self._new_lines(at_end)
        found: list[tuple[str, str]] = []
        for pattern, compiled in list(self._patterns.items()):
            began_s = time.monotonic()
            for line in lines:
                if compiled.search(line):
                    found.append((pattern, line[:SHOWN_CHARS].strip()))
                    del self._patterns[pattern]
                    break
                if time.monotonic() - began_s > SLOW_S:
                    del self._patterns[pattern]
                    print(
                        f"workbench: searching for {pattern!r} is too slow; it is dropped",
                        flush=True,
                    )
                    break
        return found

    def _new_lines(self, at_end: bool) -> list[str]:
        size = self._size()
        if size - self._offset > MAX_BYTES:
            self._offset, self._rest = size - MAX_BYTES, ""
        text = self._rest + self._decoder.decode(self._read(self._offset, size - self._offset))
        self._offset = size
        *lines, self._rest = _ENDS.split(text)
        if at_end:
            lines, self._rest = [*lines, self._rest], ""
        self._rest = self._rest[:LINE_CHARS]
        return [line[:LINE_CHARS] for line in lines]
