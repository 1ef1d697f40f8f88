"""A machine whose disk fills up, and whose files are removed or replaced, while a sweep is going
on.

The artifacts lie on a small file system of their own, which is filled with bytes or with files for
a while. The checkpoints of all trials are removed, the store's write-ahead log is, or another store
takes the place of the store for a while, after which the run is resumed. Mounting takes the rights
of an administrator.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults.house import CHECKPOINTS_REMOVED, House
from workbench.store.database import Store

PASSES_S = 15.0
_SIZE = "size=48m,nr_inodes=4000"
_FULL, _NO_INODES, _REMOVED = "full disk", "no inodes", CHECKPOINTS_REMOVED
_LOG, _REPLACED = "log removed", "store replaced"


class StorageHouse(House):
    """One machine, its disk, and the files of its store."""

    victims = (_FULL, _NO_INODES, _REMOVED, _LOG, _REPLACED)
    ends_all = frozenset({_REPLACED})

    def __init__(self, folder: Path) -> None:
        """Open a house whose artifacts have a disk of their own."""
        artifacts = folder / "artifacts"
        artifacts.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", _SIZE, "tmpfs", str(artifacts)], check=True)
        super().__init__(folder)

    def find(self, victim: str) -> list[Any]:
        """Files are there once there is a driver, checkpoints a little later."""
        if not super().find("driver"):
            return []
        return (
            list(self.artifacts.glob("*/trials/*/checkpoints"))
            if victim == _REMOVED
            else [self.folder]
        )

    def strike(self, victim: str, target: Any) -> Callable[[], None] | None:
        """Do it, and return how it passes."""
        match victim:
            case "full disk":
                return self._fill_bytes()
            case "no inodes":
                return self._fill_inodes()
            case "checkpoints removed":
                for folder in self.find(victim):
                    shutil.rmtree(folder, ignore_errors=True)
            case "log removed":
                Path(f"{self._database}-wal").unlink(missing_ok=True)
            case _:
                return self._replace_store()
        return None

    def lasts_s(self, fault: Any) -> float:
        """For how long the disk is full, or another store is there."""
        return 0.0 if fault.victim in (_REMOVED, _LOG) else PASSES_S * (0.2 + 0.8 * fault.patience)

    def tidy(self) -> None:
        """Remove what the runs have left, so that the disk has room for the next."""
        for folder in self.artifacts.iterdir():
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """End the head and unmount the disk."""
        super().close()
        subprocess.run(["umount", "--lazy", str(self.artifacts)], check=True)

    @property
    def _database(self) -> Path:
        return self.folder / "store.sqlite"

    def _fill_bytes(self) -> Callable[[], None]:
        filler = self.artifacts / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        return filler.unlink

    def _fill_inodes(self) -> Callable[[], None]:
        filler = self.artifacts / "fillers"
        with contextlib.suppress(OSError):
            filler.mkdir()
            for number in range(1_000_000):
                (filler / str(number)).touch()
        return lambda: shutil.rmtree(filler, ignore_errors=True)

    def _replace_store(self) -> Callable[[], None]:
        files = [Path(f"{self._database}{end}") for end in ("", "-wal", "-shm")]
        for path in files:
            if path.exists():
                path.rename(path.with_name(f"kept-{path.name}"))
        Store.open(str(self._database)).close()

        def put_back() -> None:
            for path in files:
                path.unlink(missing_ok=True)
                kept = path.with_name(f"kept-{path.name}")
                if kept.exists():
                    kept.rename(path)

        return put_back
