"""The files that describe the local head, in one folder that only its owner can read.

They say where the head is, which process is about to start one, and when it was used last. Starting
and ending a head is left to `local_head` and `keeper`.
"""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import filelock

from workbench.foundation.errors import ExperimentError
from workbench.foundation.files import write_atomically


class HeadFiles:
    """The files that describe the local head, in one folder that only its owner can read."""

    def __init__(self, folder: Path) -> None:
        """Prepare the folder of the files.

        Args:
            folder: The folder. It is created if it does not exist.

        Raises:
            ExperimentError: If it cannot be created or written.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as error:
            raise ExperimentError(
                f"the files of the local Ray head cannot be written to {folder}: {error.strerror}",
                field="WORKBENCH_HOME",
                allowed="a folder that you can create or write to",
            ) from error
        self.folder = folder
        self.token = folder / "token"
        self.record = folder / "head.json"
        self.starting = folder / "starting.json"
        self.last_used = folder / "last_used"
        self.log = folder / "head.log"

    def lock(self) -> filelock.BaseFileLock:
        """Return the lock that a process holds while it starts or ends the head."""
        return filelock.FileLock(self.folder / "lock")

    def try_lock(self) -> filelock.BaseFileLock | None:
        """Return that lock if this process can get it, or None if another process holds it."""
        lock = self.lock()
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            return None
        return lock

    def read_record(self) -> dict[str, Any] | None:
        """Return the record of the head, or None if there is none."""
        return _read(self.record)

    def write_record(self, record: dict[str, Any]) -> None:
        """Write the record of the head atomically."""
        _write(self.record, record)

    def read_starting(self) -> tuple[int, float] | None:
        """Return the process of the keeper that was started last, and when that was created."""
        keeper = _read(self.starting)
        return None if keeper is None else (keeper["pid"], keeper["created_unix_s"])

    def write_starting(self, pid: int, created_unix_s: float) -> None:
        """Write which process is a keeper that starts a head."""
        _write(self.starting, {"pid": pid, "created_unix_s": created_unix_s})


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return None


def _write(path: Path, content: dict[str, Any]) -> None:
    write_atomically(path, json.dumps(content))
