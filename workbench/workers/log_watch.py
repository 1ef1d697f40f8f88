"""Looks for patterns in what a worker prints, where it prints it: no log is read over nodes.

Each pattern is told once an attempt. What is read and what is searched of a line is bounded, and a pattern
that takes long is given up, so that looking costs a training next to nothing.
"""

from __future__ import annotations

import codecs
import re
import time
from collections.abc import Callable

LOOK_S = 1.0
MAX_BYTES = 2**20
"""What is read at most in one look; of more, the last part is."""
LINE_CHARS = 1000
SHOWN_CHARS = 300
SLOW_S = 0.5
"""A pattern that takes longer than this in one look is given up."""
_DECODER = codecs.getincrementaldecoder("utf-8")
_ENDS = re.compile(r"[\r\n]+")


class LogWatch:
    """Looks for patterns in one growing log."""

    def __init__(self, patterns: tuple[str, ...], size: Callable[[], int], read: Callable[[int, int], bytes]):
        """Begin at the end of the log.

        Args:
            patterns: Regular expressions that were checked.
            size: Returns how long the log is, in bytes.
            read: Returns bytes of the log: from where, and how many.
        """
        self._patterns = {pattern: re.compile(pattern) for pattern in patterns}
        self._size = size
        self._read = read
        self._place = size() if patterns else 0
        self._rest = ""
        self._decoder = _DECODER("replace")
        self._looked_s = time.monotonic()

    def look(self, *, at_end: bool = False) -> list[tuple[str, str]]:
        """Return what was found since the last look: each pattern, and the line.

        Args:
            at_end: Whether nothing more is printed, so that a last line without an end counts, too;
                else a look soon after another one finds nothing.
        """
        now_s = time.monotonic()
        if not self._patterns or (not at_end and now_s - self._looked_s < LOOK_S):
            return []
        self._looked_s = now_s
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
                    print(f"workbench: looking for {pattern!r} takes too long and is given up", flush=True)
                    break
        return found

    def _new_lines(self, at_end: bool) -> list[str]:
        size = self._size()
        if size - self._place > MAX_BYTES:
            self._place, self._rest = size - MAX_BYTES, ""
        text = self._rest + self._decoder.decode(self._read(self._place, size - self._place))
        self._place = size
        *lines, self._rest = _ENDS.split(text)
        if at_end:
            lines, self._rest = [*lines, self._rest], ""
        self._rest = self._rest[:LINE_CHARS]
        return [line[:LINE_CHARS] for line in lines]
