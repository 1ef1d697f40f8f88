"""A sample of what was served, on disk: rows and answers as JSON lines, the oldest removed first.

The files lie in the bundle that answered, readable by their owner only. A disk that is full or slow
never delays or fails a request: samples are dropped then, and counted.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from workbench.foundation.errors import ArgumentError, DataError

FOLDER = "kept"
_NUM_FILES = 10
_MAX_PENDING = 1000


class KeptSamples:
    """The kept samples of one bundle, while it is served."""

    def __init__(self, bundle: Path, *, limit_bytes: int) -> None:
        """Prepare the folder.

        Args:
            bundle: The bundle, itself and not a link to it.
            limit_bytes: Size of all files together, at most.

        Raises:
            ArgumentError: If the folder cannot be written.
        """
        self.folder = bundle / FOLDER
        self._file_bytes = max(limit_bytes // _NUM_FILES, 1)
        self._limit_bytes = limit_bytes
        self._pending = 0
        self._file: Path | None = None
        self._size = 0
        self.num_dropped = 0
        """Samples that could not be written."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="keep")
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            (self.folder / ".writable").touch()
            (self.folder / ".writable").unlink()
        except OSError as error:
            raise ArgumentError(
                f"cannot write {self.folder}: {error.strerror}",
                field="--keep",
                next_step="Serve a copy of the bundle in a folder that you can write to.",
            ) from error

    def keep(self, row: Any, answer: Any, seconds: float) -> None:
        """Keep a row and its answer, soon.

        Args:
            row: As it was received.
            answer: As it was sent.
            seconds: How long the request took.
        """
        if self._pending >= _MAX_PENDING:
            self.num_dropped += 1
            return
        self._pending += 1
        sample = {
            "time_unix_s": round(time.time(), 3),
            "seconds": seconds,
            "row": row,
            "answer": answer,
        }
        self._thread.submit(self._write, sample)

    def close(self) -> None:
        """Write what is pending."""
        self._thread.shutdown()

    def _write(self, sample: dict[str, Any]) -> None:
        try:
            line = (json.dumps(sample, separators=(",", ":")) + "\n").encode()
            if self._file is None or self._size + len(line) > self._file_bytes:
                self._file, self._size = self.folder / f"{time.time_ns()}.jsonl", 0
                self._make_room(len(line))
            descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(descriptor, "wb", buffering=0) as file:
                file.write(line)
            self._size += len(line)
        except OSError:
            self.num_dropped += 1
        finally:
            self._pending -= 1

    def _make_room(self, num_bytes: int) -> None:
        """Remove the oldest files, so that a new one fits."""
        files = sorted(self.folder.glob("*.jsonl"))
        sizes = {path: path.stat().st_size for path in files}
        total = sum(sizes.values()) + max(self._file_bytes, num_bytes)
        for path in files:
            if total <= self._limit_bytes:
                return
            path.unlink(missing_ok=True)
            total -= sizes[path]


def read_samples(bundle: Path) -> Iterator[dict[str, Any]]:
    """Yield the kept samples of a bundle, the oldest first; a line that was cut off is left out.

    Raises:
        DataError: If there are none.
    """
    files = sorted((bundle.resolve() / FOLDER).glob("*.jsonl"))
    if not files:
        raise DataError(
            f"{bundle} has no kept samples",
            next_step="Serve it with --keep 0.1, which keeps a tenth of the rows.",
        )
    for path in files:
        with contextlib.suppress(FileNotFoundError), path.open(encoding="utf-8") as file:
            for line in file:
                with contextlib.suppress(ValueError):
                    yield json.loads(line)
