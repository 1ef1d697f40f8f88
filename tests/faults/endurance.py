"""Thousands of trials, and dozens of browsers that come and go: memory and descriptors.

`python -m tests.faults endurance`: one sweep of 10,000 quick trials, while the memory and the open
files of its driver are read, and the processor time that a trial costs it; then 50 pages that
follow a run are opened and closed again and again, and those of the server are read. A driver
remembers each trial, so its memory may grow by a little for each; nothing else may.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from tests.faults.house import House, finish, write_experiment

MAX_BYTES_PER_TRIAL = 16_000
MAX_GROWTH = 1.1
MAX_SLOWDOWN = 1.5
"""How many times the processor time of a trial of the second quarter one of the last quarter may
cost.
"""
MAX_NEW_FILES = 8
LOOKS = 40
_ENDED = ("complete", "failed", "stopped", "lost")


def try_trials(house: House, num_trials: int) -> list[str]:
    """Run a sweep of quick trials.

    Print what its driver takes, and return what is wrong with it.
    """
    fields = {
        "name": "quick",
        "train": {"name": "trained_function:descend", "steps": 1, "pause_s": 0.0},
        "objectives": [{"metric": "loss", "goal": "minimize"}],
        "search": {"x": {"low": 0.0, "high": 1.0}, "y": {"low": 1, "high": 9}},
        "sampler": "random",
        "budget": {"trials": num_trials},
    }
    path = write_experiment(house, fields)
    code, said = finish(house.begin("sweep", str(path), "--detach"))
    if code != 0:
        return [f"sweep --detach: {code}: {said.strip()[-500:]}"]
    run_id = house.store.run("last").run_id
    looks: list[_Look] = []
    ended = last_seq = 0
    while True:
        state = house.store.run(run_id).state
        for stored in house.store.events(run_id, after=last_seq):
            last_seq = stored.seq
            ended += stored.event.type == "trial_ended"
        if state in _ENDED:
            break
        if ended >= len(looks) * num_trials / LOOKS and (drivers := house.find("driver")):
            looks.append(_Look(ended, sum(drivers[0].cpu_times()[:2]), *_taken(drivers[0])))
            print(f"    {looks[-1]}", flush=True)
        time.sleep(1.0)
    wrong = [] if (state, ended) == ("complete", num_trials) else [f"{state} after {ended} trials"]
    return wrong + _judge(looks[len(looks) // 4 :])


class _Look(NamedTuple):
    """What a driver has taken after some trials."""

    trial: int
    cpu_s: float
    num_bytes: int
    num_files: int

    def __str__(self) -> str:
        return (
            f"{self.trial} trials: {self.cpu_s:.0f} s of CPU,"
            f" {_describe(self.num_bytes, self.num_files)}"
        )


def _judge(warm: Sequence[_Look]) -> list[str]:
    """Compare what a driver has taken, since it has everything loaded."""
    if len(warm) < 4:
        return ["the driver was seen too rarely"]
    first, last = warm[0], warm[-1]
    per_trial = (last.num_bytes - first.num_bytes) / (last.trial - first.trial)
    early_s, late_s = (
        (later.cpu_s - earlier.cpu_s) / (later.trial - earlier.trial)
        for earlier, later in ((first, warm[len(warm) // 3]), (warm[len(warm) * 2 // 3], last))
    )
    print(
        f"    {per_trial:.0f} bytes for each trial, {last.num_files - first.num_files:+d} files",
        flush=True,
    )
    print(
        f"    {1e3 * early_s:.1f} ms of CPU for an early trial, {1e3 * late_s:.1f} for a late one",
        flush=True,
    )
    wrong = [f"{per_trial:.0f} bytes for each trial"] if per_trial > MAX_BYTES_PER_TRIAL else []
    if late_s > MAX_SLOWDOWN * early_s:
        wrong.append(f"a late trial costs {late_s / early_s:.1f} times as much")
    return wrong + _new_files(first.num_files, last.num_files)


def open_browsers(folder: Path, num_pages: int, rounds: int) -> list[str]:
    """Let pages follow a run and go again.

    Print what the server takes, and return what is wrong with it.
    """
    from tests.builders.recorded_runs import record_run
    from tests.services.jupyter_lab import TOKEN, Jupyter, chromium

    server = Jupyter(folder / "server").start()
    try:
        run_id = record_run(server.store_url, name="followed")
        url = f"{server.url}workbench?token={TOKEN}#run={run_id}"
        [process] = [
            child
            for child in psutil.Process().children()
            if f"--port={server.port}" in child.cmdline()
        ]
        counts: list[tuple[int, int]] = []
        with chromium() as browser:
            for number in range(rounds):
                _follow(browser, url, num_pages)
                time.sleep(5.0)
                counts.append(_taken(process))
                print(f"    {(number + 1) * num_pages} pages: {_describe(*counts[-1])}", flush=True)
    finally:
        server.stop()
    (from_bytes, from_files), (to_bytes, to_files) = counts[min(2, len(counts) - 1)], counts[-1]
    wrong = (
        [f"{to_bytes / from_bytes:.2f} times the memory"]
        if to_bytes > MAX_GROWTH * from_bytes
        else []
    )
    return wrong + _new_files(from_files, to_files)


def _follow(browser: Any, url: str, num_pages: int) -> None:
    context = browser.new_context()
    for _ in range(num_pages):
        page = context.new_page()
        page.goto(url)
        page.locator(".workbench-head .workbench-run-title").wait_for(timeout=120_000)
    context.close()


def _taken(process: psutil.Process) -> tuple[int, int]:
    """Return the bytes and the open files of a process."""
    return process.memory_info().rss, process.num_fds()


def _describe(num_bytes: int, num_files: int) -> str:
    return f"{num_bytes / 2**20:.0f} MiB, {num_files} files"


def _new_files(before: int, after: int) -> list[str]:
    return [f"{after - before} more open files"] if after - before > MAX_NEW_FILES else []


def main(words: list[str]) -> int:
    """Run the campaign and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults endurance", description=__doc__)
    parser.add_argument("--trials", type=int, default=10_000, help="0 for none.")
    parser.add_argument("--pages", type=int, default=50, help="At once; 0 for none.")
    parser.add_argument("--rounds", type=int, default=8, help="Of pages that come and go.")
    given = parser.parse_args(words)
    folder = Path(tempfile.mkdtemp(prefix="workbench-endurance-"))
    house = House(folder / "house")
    parts: dict[str, Callable[[], list[str]]] = {}
    if given.trials:
        parts[f"driver, {given.trials} trials"] = lambda: try_trials(house, given.trials)
    if given.pages:
        parts[f"server, {given.pages} pages at once"] = lambda: open_browsers(
            folder, given.pages, given.rounds
        )
    wrong: list[str] = []
    try:
        for name, part in parts.items():
            print(name, flush=True)
            wrong += (problems := part())
            print("    well" if not problems else f"    WRONG: {problems}", flush=True)
    finally:
        house.close()
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
