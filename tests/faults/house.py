"""A house of the campaign's own: store, Ray head and files, with the ways to look at its processes."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from workbench.store import Store

ROOT = Path(__file__).parents[2]
DEADLINE_S = 180.0
_TITLES = {
    "driver": "ray::DriverActor",
    "coordinator": "ray::ResourceTrainable",
    "worker": "ray::Worker",
    "pool": "ray::Pool",
}
_NAMES = {"raylet": "raylet", "head": "gcs_server"}
VICTIMS = (*_TITLES, *_NAMES, "cluster")


def wait_until(
    is_true: Callable[[], Any], what: str, timeout_s: float = DEADLINE_S, *, or_not: bool = False
) -> Any:
    """Wait for something to become true and return it; where it need not, it may stay false."""
    deadline = time.monotonic() + timeout_s
    while not (found := is_true()):
        if time.monotonic() > deadline:
            if or_not:
                return found
            raise TimeoutError(f"{what} did not happen within {timeout_s:g} s")
        time.sleep(0.02)
    return found


class House:
    """Everything that the campaign starts belongs to one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.artifacts = folder / "artifacts"
        self.environment = os.environ | {
            "WORKBENCH_HOME": str(self.home),
            "WORKBENCH_STORE": f"sqlite:///{folder / 'store.sqlite'}",
            "WORKBENCH_ARTIFACTS": str(self.artifacts),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        for variable in ("RAY_ADDRESS", "WORKBENCH_RAY_ADDRESS", "RAY_AUTH_TOKEN_PATH"):
            self.environment.pop(variable, None)
        folder.mkdir(parents=True, exist_ok=True)
        self.store = Store.open(str(folder / "store.sqlite"))
        self.seen: set[psutil.Process] = set()

    def begin(self, *words: str) -> subprocess.Popen[str]:
        """Start a command of the workbench, as a person would."""
        return subprocess.Popen(
            [sys.executable, "-m", "workbench.cli", *words],
            env=self.environment, cwd=ROOT, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def command(self, *words: str) -> tuple[int, str]:
        """Run a command of the workbench to its end; return its exit code and all that it printed."""
        return finish(self.begin(*words))

    def record(self) -> dict[str, Any] | None:
        """What the living head has written down about itself."""
        with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
            return json.loads((self.home / "head" / "head.json").read_text())
        return None

    def processes(self) -> list[psutil.Process]:
        """The keeper of the living head and everything below it."""
        record = self.record()
        with contextlib.suppress(psutil.NoSuchProcess):
            if record is not None:
                keeper = psutil.Process(record["pid"])
                found = [keeper, *keeper.children(recursive=True)]
                self.seen.update(found)
                return found
        return []

    def find(self, victim: str) -> list[psutil.Process]:
        """The processes that a fault of this kind could hit now; `cluster` hits all of them."""
        if victim == "cluster":
            return self.processes()
        return [process for process in self.processes() if _is(victim, process)]

    def titles(self) -> dict[int, str]:
        """What each living process below the keeper calls itself."""
        found = {}
        for process in self.processes()[1:]:
            with contextlib.suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE:
                    found[process.pid] = " ".join(process.cmdline())[:60] or process.name()
        return found

    def outlived(self) -> list[str]:
        """Processes of earlier heads that are still there."""
        now = set(self.processes())
        return [str(process) for process in self.seen - now if process.is_running() and _lives(process)]

    def close(self) -> None:
        """End the head and let the store go."""
        self.command("shutdown")
        self.store.close()


def finish(command: subprocess.Popen[str], timeout_s: float = DEADLINE_S) -> tuple[int, str]:
    """Wait for a command and return its exit code and all that it printed."""
    try:
        output, errors = command.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        command.kill()
        output, errors = command.communicate()
        return -1, f"it did not end within {timeout_s:g} s: {output}{errors}"
    return command.returncode, output + errors


def answers(address: str) -> bool:
    """Whether somebody listens at an address."""
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1.0):
        return True
    return False


def _is(victim: str, process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        if victim in _NAMES:
            return process.name() == _NAMES[victim]
        return "".join(process.cmdline()[:1]).startswith(_TITLES[victim])
    return False


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.status() != psutil.STATUS_ZOMBIE
    return False
