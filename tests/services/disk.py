"""A small disk that can be filled, or refuse to be written."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


class Disk:
    """A small file system of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    def fill(self, but_bytes: int = 0) -> None:
        with self._filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                file.truncate(file.tell() - but_bytes)

    def make_room(self) -> None:
        self._filler.unlink()

    def close_for_writing(self) -> None:
        # A view that is read-only, over the same files: the disk itself has files open and refuses.
        path = str(self.path)
        subprocess.run(["mount", "--bind", path, path], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", path], check=True)

    def open_for_writing(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.path)], check=True)


@contextlib.contextmanager
def mounted_disk(path: Path) -> Iterator[Disk]:
    """Mount a small disk in an empty folder; skip the test where that is not allowed."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"a file system of its own cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield Disk(path)
    finally:
        while path.is_mount():
            subprocess.run(["umount", "--lazy", str(path)], check=True)
