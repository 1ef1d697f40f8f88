"""A house of the campaign's own.

Store, Ray head and files, with the ways to look at its processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import psutil

from workbench.experiment import Experiment
from workbench.store.database import Store
from workbench.store.database.store import LEASE_TIMEOUT_S

ROOT = Path(__file__).parents[2]
DEADLINE_S = 1200.0
"""Only ends what hangs, as all limits here: machines that run campaigns are shared."""
FUNCTION = "trained_function.py"
_TITLES = {
    "driver": "ray::DriverActor",
    "worker": "ray::Worker",
    "pool": "ray::Pool",
}
_NAMES = {"raylet": "raylet", "head": "gcs_server"}
_FROZEN = "frozen "
REPLACED = "replaced driver"
CHECKPOINTS_REMOVED = "checkpoints removed"
VICTIMS = (*_TITLES, *_NAMES, "cluster", *(_FROZEN + victim for victim in _TITLES), REPLACED)
FROZEN_S = 2.0 * LEASE_TIMEOUT_S


class House:
    """One machine; everything that the campaign starts there belongs to one folder."""

    victims: tuple[str, ...] = VICTIMS
    others: tuple[str, ...] = ()
    """Whom a second fault may hit."""
    ends_all: frozenset[str] = frozenset({"raylet", "head", "cluster"})
    """Victims without which no driver comes back by itself: somebody resumes the run."""
    more_resources: Mapping[str, Any] = {}
    """What sweeps ask for here."""

    def __init__(
        self,
        folder: Path,
        *,
        store: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Open a house in a folder.

        With a store of its own there, and a Ray that starts when it is needed.

        Args:
            folder: Where everything lies.
            store: URL of another store.
            environment: By which another Ray is found.
        """
        self.folder = folder
        self.home = folder / "home"
        self.artifacts = folder / "artifacts"
        kept = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("RAY_", "WORKBENCH_"))
        }
        self.environment = {
            **kept,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
            "RAY_USAGE_STATS_ENABLED": "0",
            **(environment or {}),
            "WORKBENCH_HOME": str(self.home),
            "WORKBENCH_STORE": store or f"sqlite:///{folder / 'store.sqlite'}",
            "WORKBENCH_ARTIFACTS": str(self.artifacts),
        }
        # With the function alone. A run that is started in the folder of this repository, or whose
        # function is in a package of it, keeps all of its files, which takes seconds.
        self.work = folder / "work"
        self.work.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(__file__).with_name(FUNCTION), self.work)
        self.store = Store.open(self.environment["WORKBENCH_STORE"])
        self.seen: set[psutil.Process] = set()
        self._folders: dict[str, str] = {}  # by the address of each head that there was

    def begin(self, *words: str, cwd: Path | None = None) -> subprocess.Popen[str]:
        """Start a command of the workbench, as a person would, in `work` or another folder."""
        return subprocess.Popen(
            [sys.executable, "-m", "workbench", *words],
            env=self.environment,
            cwd=cwd or self.work,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def command(self, *words: str) -> tuple[int, str]:
        """Run a command of the workbench to its end.

        Return its exit code and all that it printed.
        """
        return finish(self.begin(*words))

    def processes(self) -> list[psutil.Process]:
        """The keeper of the living head and everything below it."""
        record = self._record()
        with contextlib.suppress(psutil.NoSuchProcess):
            if record is not None:
                self._folders[record["address"]] = record["temp_dir"]
                keeper = psutil.Process(record["pid"])
                return self._remember([keeper, *keeper.children(recursive=True)])
        return []

    def find(self, victim: str) -> list[Any]:
        """What a fault of this kind could hit now; `cluster` hits all processes."""
        if victim == "cluster":
            return [processes] if (processes := self.processes()) else []
        return [process for process in self.processes() if _is(victim, process)]

    def strike(self, victim: str, target: Any) -> Callable[[], None] | None:
        """Let a fault happen to what `find` returned; return how it passes, if it does."""
        if victim == REPLACED or victim.startswith(_FROZEN):
            return freeze(target)
        for process in target if isinstance(target, list) else [target]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)

    def lasts_s(self, fault: Any) -> float:
        """Say how long a fault lasts that passes."""
        if fault.victim == REPLACED:
            return FROZEN_S
        return FROZEN_S * fault.patience if fault.victim.startswith(_FROZEN) else 0.0

    def titles(self) -> dict[int, str]:
        """What each living process below the keeper calls itself."""
        found = {}
        for process in self.processes()[1:]:
            with contextlib.suppress(psutil.Error):
                if process.status() != psutil.STATUS_ZOMBIE:
                    found[process.pid] = " ".join(process.cmdline())[:60] or process.name()
        return found

    def outlived(self) -> list[str]:
        """Processes and addresses of earlier heads that are still there."""
        now = set(self.processes())
        earlier = {
            address: folder
            for address, folder in self._folders.items()
            if folder not in self._sessions()
        }
        lives = [
            str(process) for process in self.seen - now if process.is_running() and _lives(process)
        ]
        return lives + [
            f"somebody at {address}"
            for address, folder in earlier.items()
            if _answers(address, folder)
        ]

    def left_files(self) -> Iterable[str]:
        """Files that should be there only for a moment."""
        for folder in [self.artifacts, self.home, *self._sessions()]:
            for path in Path(folder).rglob("*"):
                if path.name.endswith((".tmp", ".unfinished")) or path.name.startswith(
                    "workbench-tune-"
                ):
                    yield str(path)
        known = {"head.json", "head.log", "last_used", "lock", "token"}
        if (self.home / "head").exists():
            yield from (
                str(path) for path in (self.home / "head").iterdir() if path.name not in known
            )

    def wrong_in(self, record: Any, lasted_s: float) -> list[str]:
        """Look for what only faults of this house could do to a run that lasted so long."""
        return []

    def tidy(self) -> None:
        """Make the house as it was before the round."""

    def close(self) -> None:
        """End the head and let the store go."""
        self.command("shutdown")
        self.store.close()

    def _remember(self, found: list[psutil.Process]) -> list[psutil.Process]:
        self.seen.update(found)
        return found

    def _record(self) -> dict[str, Any] | None:
        """What the living head has written down about itself."""
        with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
            return json.loads((self.home / "head" / "head.json").read_text())
        return None

    def _sessions(self) -> Iterable[str | Path]:
        """Folders of the Ray that is up."""
        record = self._record()
        return [] if record is None else [record["temp_dir"]]


def write_experiment(house: House, fields: dict[str, Any]) -> Path:
    """Write an experiment of `trained_function:descend` beside that file."""
    path = house.work / f"{fields['name']}.yaml"
    path.write_text(Experiment(**fields).to_yaml())
    return path


def finish(command: subprocess.Popen[str], timeout_s: float = DEADLINE_S) -> tuple[int, str]:
    """Wait for a command and return its exit code and all that it printed."""
    try:
        output, errors = command.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        command.kill()
        output, errors = command.communicate()
        return -1, f"it did not end within {timeout_s:g} s: {output}{errors}"
    return command.returncode, output + errors


def _answers(address: str, folder: str) -> bool:
    """Whether a head with its files in a folder listens at an address, whose port others may have
    by now.
    """
    port = int(address.rpartition(":")[2])
    listening = [
        net_connection
        for net_connection in psutil.net_connections("tcp")
        if net_connection.status == psutil.CONN_LISTEN
    ]
    with contextlib.suppress(psutil.NoSuchProcess):
        owners = [
            psutil.Process(connection.pid)
            for connection in listening
            if connection.laddr and connection.laddr.port == port
        ]
        return any(folder in " ".join(owner.cmdline()) for owner in owners)
    return False


def freeze(process: psutil.Process) -> Callable[[], None]:
    """Stop a process as SIGSTOP does; return how it goes on, where nobody has ended it."""

    def thaw() -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()

    with contextlib.suppress(psutil.NoSuchProcess):
        process.suspend()
    return thaw


def _is(victim: str, process: psutil.Process) -> bool:
    victim = "driver" if victim == REPLACED else victim.removeprefix(_FROZEN)
    with contextlib.suppress(psutil.Error):
        if victim in _NAMES:
            return process.name() == _NAMES[victim]
        return "".join(process.cmdline()[:1]).startswith(_TITLES[victim])
    return False


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.status() != psutil.STATUS_ZOMBIE
    return False
