"""Drivers that are frozen and clocks that jump, at the level of the lease.

One writer, nothing twice.

`python -m tests.faults leases`: two processes write the events of one run. In every round the one
that holds the lease is frozen past its end, or the clock of one of them jumps by an hour, or it is
killed; the other one takes over as soon as it may. Frozen ones are thawed in the middle of the
other's writing. Whatever happens, each number that a writer was confirmed must be stored, none may
be stored twice, and no event of a writer may follow the first of its successor. A writer that is
frozen in a commit holds SQLite's lock: nobody can write until it is thawed or ended, and then
writing must go on. No Ray: what the driver does after losing its lease, and that a resume ends a
frozen driver, is left to `machine`.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.services.waiting import try_until
from workbench.experiment import Experiment
from workbench.foundation.errors import LeaseError, StoreError
from workbench.foundation.events import Noted
from workbench.store.database import Store

LEASE_S = 1.0
HOUR_S = 3600.0
FAULTS = ("freeze", "clock ahead", "clock behind", "kill", "freeze and clock ahead")
PATIENCE_S = 120.0
LOCKED_S = 10.0
"""How long SQLite's lock is waited for: nobody who writes here holds it longer."""


def write(url: str, run_id: str, name: str, clock: Path) -> int:
    """Write numbered events until the lease is lost; print each number that was confirmed."""
    real_time = time.time

    def jumping() -> float:
        with contextlib.suppress(OSError, ValueError):
            return real_time() + float(clock.read_text())
        return real_time()

    time.time = jumping
    with Store.open(url) as store:
        while True:
            with contextlib.suppress(LeaseError, StoreError):
                host = socket.gethostname() if "kill" in name else f"host-of-{name}"
                writer = store.writer(
                    run_id, owner_pid=os.getpid(), owner_host=host, lease_timeout_s=LEASE_S
                )
                break
            time.sleep(0.05)
        print("leased", flush=True)
        number = 0
        while True:
            number += 1
            try:
                writer.append(Noted(level="info", message=f"{name} {number}"))
            except LeaseError:
                print("lost", flush=True)
                return 0
            except StoreError:  # locked for a moment
                number -= 1
                continue
            print(number, flush=True)
            time.sleep(0.005)


class Writer:
    """One writing process."""

    def __init__(self, folder: Path, url: str, run_id: str, name: str) -> None:
        self.name = name
        self.clock = folder / f"clock-{name}"
        self.output = folder / f"output-{name}"
        with self.output.open("w") as output:
            words = [
                sys.executable,
                "-m",
                "tests.faults.leases",
                "write",
                url,
                run_id,
                name,
                str(self.clock),
            ]
            self.process = subprocess.Popen(words, stdout=output)

    def lines(self) -> list[str]:
        return self.output.read_text().split("\n")[:-1]

    def has_leased(self) -> bool:
        return "leased" in self.lines()

    def has_lost(self) -> bool:
        return "lost" in self.lines()

    def confirmed(self) -> list[int]:
        return [int(line) for line in self.lines() if line.isdigit()]

    def jump(self, seconds: float) -> None:
        unfinished = self.clock.with_suffix(".unfinished")
        unfinished.write_text(str(seconds))
        unfinished.replace(self.clock)


def play(folder: Path, fault: str, chance: random.Random) -> list[str]:
    """Play one round, and return what is wrong."""
    url = str(folder / "store.sqlite")
    wrong: list[str] = []
    with Store.open(url) as store:
        run_id = store.create_run(
            Experiment(train="a:b", objectives=[{"metric": "loss", "goal": "minimize"}])
        )
        first = Writer(folder, url, run_id, f"first-{fault.replace(' ', '-')}")
        second: Writer | None = None
        try:
            if not try_until(lambda: len(first.confirmed()) > 5, PATIENCE_S):
                return ["the first writer never began"]
            second = Writer(folder, url, run_id, f"second-{fault.replace(' ', '-')}")
            time.sleep(chance.random())
            _strike(fault, first, second)
            is_alive = fault in ("clock ahead", "clock behind")
            is_locked = "freeze" in fault and _is_locked(url)
            if is_locked:
                print("    frozen in the middle of a commit", flush=True)
            elif (
                try_until(lambda: second.has_leased(), 5.0 if is_alive else PATIENCE_S) == is_alive
            ):
                wrong.append("a live writer was replaced" if is_alive else "nobody took over")
            try_until(lambda: len(second.confirmed()) > 20, 5.0)
            num_confirmed = len(first.confirmed())
            first.process.send_signal(signal.SIGCONT)
            if is_locked:
                wrong += _continue(first, second, num_confirmed)
            if (
                second.has_leased()
                and fault != "kill"
                and not try_until(first.has_lost, PATIENCE_S)
            ):
                wrong.append("the first writer never noticed that it had lost the lease")
            time.sleep(0.3)
        finally:
            for writer in filter(None, (first, second)):
                with contextlib.suppress(ProcessLookupError):
                    writer.process.send_signal(signal.SIGCONT)
                    writer.process.kill()
                writer.process.wait()
        texts = [
            stored.event.message
            for stored in store.events(run_id)
            if isinstance(stored.event, Noted)
        ]
    assert second is not None
    return wrong + _judge(texts, [first, second])


def _continue(first: Writer, second: Writer, num_confirmed: int) -> list[str]:
    """Wait until one of the writers writes, once the database is no longer locked."""

    def has_continued() -> bool:
        return second.has_leased() or len(first.confirmed()) > num_confirmed

    return [] if try_until(has_continued, PATIENCE_S) else ["nobody wrote after the thaw"]


def _is_locked(url: str) -> bool:
    """Return whether a process that does not go on holds the lock of the database."""
    with contextlib.closing(
        sqlite3.connect(url, timeout=LOCKED_S, isolation_level=None)
    ) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return True
    return False


def _strike(fault: str, first: Writer, second: Writer) -> None:
    if "freeze" in fault:
        first.process.send_signal(signal.SIGSTOP)
    if fault == "kill":
        first.process.kill()
    if "ahead" in fault:
        second.jump(HOUR_S)
    if "behind" in fault:
        first.jump(-HOUR_S)


def _judge(texts: list[str], writers: list[Writer]) -> list[str]:
    wrong = [
        f"stored {count} times: {text}"
        for text, count in collections.Counter(texts).items()
        if count > 1
    ]
    stored = set(texts)
    for writer in writers:
        lost = [number for number in writer.confirmed() if f"{writer.name} {number}" not in stored]
        wrong += [f"{writer.name} was confirmed {lost}, which are not stored"] if lost else []
    turns = [name for name, _ in _runs_of(text.partition(" ")[0] for text in texts)]
    if len(turns) != len(set(turns)):
        wrong.append(f"they took turns: {turns}")
    return wrong


def _runs_of(names: Iterator[str]) -> list[tuple[str, int]]:
    runs: list[tuple[str, int]] = []
    for name in names:
        if not runs or runs[-1][0] != name:
            runs.append((name, 0))
    return runs


def main(words: list[str]) -> int:
    """Run the campaign and return the exit status."""
    if words[:1] == ["write"]:
        return write(words[1], words[2], words[3], Path(words[4]))
    parser = argparse.ArgumentParser(prog="python -m tests.faults leases", description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(words)
    counts: collections.Counter[tuple[str, bool]] = collections.Counter()
    for number in range(given.rounds):
        fault = FAULTS[number % len(FAULTS)]
        with tempfile.TemporaryDirectory(prefix="workbench-leases-") as folder:
            wrong = play(Path(folder), fault, random.Random(f"{given.seed}/{number}"))
        counts[fault, not wrong] += 1
        print(
            f"{number:3d} {'WRONG' if wrong else 'well '} {fault}", *wrong, sep="\n    ", flush=True
        )
    for fault in FAULTS:
        print(
            f"| {fault} | {counts[fault, True] + counts[fault, False]} | {counts[fault, False]} |"
        )
    return 1 if any(not well for _, well in counts) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
