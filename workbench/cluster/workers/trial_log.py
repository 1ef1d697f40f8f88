"""Redirect what a trial prints to its own log file, and search it there for patterns.

The file exists once something was printed.

Output is redirected at the file descriptors, which also covers libraries and child processes. The
file has no name until it has content. If it stays empty, it is reused for the next trial, so that a
sweep of thousands of short, silent trials takes no disk space.

Logs are not sent between nodes. The output of a worker is searched on its node, and each pattern is
reported once per attempt. To slow down trainings as little as possible, the length that is read and
searched is limited, and a slow pattern is dropped.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

_CRASH = re.compile(rb"\*\*\* (SIG[A-Z]+) received at time=(\d+) ")  # as Ray prints it
_CRASH_BYTES = 65_536
"""How far before the end of a log the last crash is searched for. Its stacks follow it."""
SCAN_INTERVAL_S = 1.0
MAX_BYTES = 2**20
"""The most that one scan reads. If the log has grown by more, only the end is read."""
LINE_CHARS = 1000
SHOWN_CHARS = 300
SLOW_S = 0.5
"""A pattern that takes longer than this in one scan is dropped."""
_DECODER = codecs.getincrementaldecoder("utf-8")
_ENDS = re.compile(r"[\r\n]+")


def log_name(rank: int) -> str:
    """Return the name of the log of one worker of a trial, in the trial's folder."""
    return "log.txt" if rank == 0 else f"log-{rank}.txt"


def crash_in(path: Path, since_unix_s: float) -> str | None:
    """Return the name of the signal by which a process crashed, or None if its log shows no crash.

    Args:
        path: The log. It need not exist.
        since_unix_s: When the process began with its trial: the log may contain earlier crashes.
    """
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _CRASH_BYTES))
            crashes = [
                match
                for match in _CRASH.finditer(file.read())
                if int(match[2]) >= int(since_unix_s)
            ]
    except OSError:
        return None
    return crashes[-1][1].decode() if crashes else None


class TrialLog:
    """Redirects what a process prints while a trial runs. One trial at a time."""

    def __init__(self) -> None:
        """Redirect nothing yet."""
        self._file: int | None = None
        self._folder: Path | None = None  # in which the file without a name was made
        self._path: Path | None = None  # where it belongs
        self._has_name = False
        self._saved: list[int] = []

    def begin(self, path: Path) -> None:
        """Redirect what the process prints to a file from here on.

        Args:
            path: The file. If it exists, output is appended.
        """
        self._path = path
        if path.exists():
            self._forget_file()
            self._file, self._has_name = os.open(path, os.O_RDWR | os.O_APPEND), True
        elif self._file is None or self._folder != path.parent.parent:
            self._forget_file()
            self._open_without_name(path)
        assert self._file is not None
        _flush()
        self._saved = [os.dup(1), os.dup(2)]
        os.dup2(self._file, 1)
        os.dup2(self._file, 2)

    def show(self) -> None:
        """Give the file its name if something was printed, so that users can follow it."""
        _flush()
        if self._file is None or self._path is None or self._has_name or self._is_empty():
            return
        with contextlib.suppress(OSError):  # a full disk costs the log, not the trial
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # Only with a directory given does Python follow the link. An absolute source ignores
            # it.
            os.link(f"/proc/self/fd/{self._file}", self._path, src_dir_fd=self._file)
            self._has_name = True

    def write(self, text: str) -> None:
        """Append lines to the log of the current trial, after what was printed so far."""
        if self._file is None or self._path is None:
            return
        begin = self.size() - 1
        if begin >= 0 and self.read(begin, 1) != b"\n":
            text = f"\n{text}"
        with contextlib.suppress(OSError):  # a full disk costs the log, not the trial
            os.write(self._file, text.encode(errors="replace"))

    def size(self) -> int:
        """Return the size of the log in bytes, including earlier attempts."""
        _flush()
        return 0 if self._file is None else os.fstat(self._file).st_size

    def read(self, begin: int, num_bytes: int) -> bytes:
        """Return a part of the log."""
        return b"" if self._file is None else os.pread(self._file, num_bytes, begin)

    def end(self) -> None:
        """Restore the output of the process as it was before."""
        self.show()
        for number, original in enumerate(self._saved, start=1):
            os.dup2(original, number)
            os.close(original)
        self._saved, self._path = [], None
        if self._has_name or not self._is_empty():
            self._forget_file()

    def _is_empty(self) -> bool:
        return self._file is None or os.fstat(self._file).st_size == 0

    def _open_without_name(self, path: Path) -> None:
        self._folder = path.parent.parent
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._folder, os.O_RDWR | os.O_APPEND | os.O_TMPFILE, 0o644)
        except (OSError, AttributeError):  # not every file system or platform has unnamed files
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file, self._has_name = (
                os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644),
                True,
            )

    def _forget_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file, self._has_name = None, False


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(ValueError, OSError):
            stream.flush()


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
            at_end: Whether nothing more will be printed. Then a last line without a line break also
                counts. Otherwise, nothing is read within `SCAN_INTERVAL_S` of the last scan.
        """
        now_s = time.monotonic()
        if not self._patterns or (not at_end and now_s - self._scanned_s < SCAN_INTERVAL_S):
            return []
        self._scanned_s = now_s
        lines = self._new_lines(at_end)
        matches: list[tuple[str, str]] = []
        for pattern, compiled in list(self._patterns.items()):
            began_s = time.monotonic()
            for line in lines:
                if compiled.search(line):
                    matches.append((pattern, line[:SHOWN_CHARS].strip()))
                    del self._patterns[pattern]
                    break
                if time.monotonic() - began_s > SLOW_S:
                    del self._patterns[pattern]
                    print(
                        f"workbench: searching for {pattern!r} is too slow, so it is dropped",
                        flush=True,
                    )
                    break
        return matches

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
