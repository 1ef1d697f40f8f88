"""Trials that do to their process what no trial should, in one sweep beside trials that behave.

`python -m tests.faults trials`: every trial of the sweep misbehaves in another way. The run must
end, each trial in the way that is expected of it, the ones that behave as in an undisturbed run,
and nothing that a trial started, or holds in memory, may be left.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from tests.faults.evidence import Record
from tests.faults.hard_functions import LEAKED_BYTES
from tests.faults.house import DEADLINE_S, House, finish
from tests.services.waiting import try_until

MARK = "workbench-hard-trial"
"""An argument of every process that these trials start, by which they are found."""
TRIAL_TIME_S = 20
EXPECTED: dict[str, set[tuple[str, str | None]]] = {
    "well": {("complete", None)},
    "holds the GIL": {("failed", "timeout")},
    "ignores SIGTERM": {("failed", "timeout")},
    "hangs": {("failed", "timeout")},
    "segfaults": {("failed", "lost")},
    "exits": {("failed", "lost")},
    "shuts Ray down": {("complete", None)},
    "prints much": {("complete", None)},
    "forks": {("complete", None)},
    "leaks": {("complete", None)},
    "reports fast": {("complete", None)},
    "leaves threads": {("complete", None)},
    "closes its output": {("complete", None)},
    "raises in a thread": {("complete", None)},
}
"""How a trial may end, by what it does."""


def make_fields(ways: list[str]) -> dict[str, Any]:
    """The experiment: one trial for each way."""
    return {
        "name": "hard-trials",
        "train": {"name": "tests.faults.hard_functions:misbehave", "mark": MARK},
        "objectives": [{"metric": "loss", "goal": "minimize"}],
        "search": {"how": {"choices": ways}},
        "sampler": "grid",
        "budget": {"trials": len(ways)},
        "resources": {"concurrency": 1, "trial_time": TRIAL_TIME_S, "max_retries": 0},
    }


def main(words: list[str]) -> int:
    """Run the campaign, print what came of each way, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults trials", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=EXPECTED, default=[*EXPECTED])
    given = parser.parse_args(words)
    folder = Path(tempfile.mkdtemp(prefix="workbench-trials-"))
    house = House(folder)
    wrong: list[str] = []
    try:
        for number in range(given.rounds):
            began_s = time.monotonic()
            found = play(house, given.only)
            wrong += found
            verdict = "well" if not found else "WRONG"
            print(
                f"{number:3d} {verdict}: {len(given.only)} trials in"
                f" {time.monotonic() - began_s:.0f} s"
            )
            for line in found:
                print(f"    wrong: {line}", flush=True)
    finally:
        house.close()
        wrong += (left := _left_processes())
        print("\n".join(left))
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if wrong else 0


def play(house: House, ways: list[str]) -> list[str]:
    """Run one sweep of these ways, and return what is wrong with it."""
    from workbench.experiment import Experiment

    path = house.folder / "hard.yaml"
    path.write_text(Experiment(**make_fields(ways)).to_yaml())
    known = {run.run_id for run in house.store.runs()}
    code, said = finish(house.begin("sweep", str(path), "--detach"))
    if code != 0:
        return [f"sweep --detach: {code}: {said.strip()[-500:]}"]
    [run_id] = [run.run_id for run in house.store.runs() if run.run_id not in known]
    ended = ("complete", "failed", "stopped")
    try_until(lambda: house.store.run(run_id).state in ended, DEADLINE_S + TRIAL_TIME_S * len(ways))
    record = Record.read(house.store, run_id)
    wrong = [] if record.history.state == "complete" else [f"the run is {record.history.state}"]
    for trial in record.history.trials.values():
        how = str(trial.params["how"])
        held = f"{trial.last_values.get('resident_bytes', 0.0) / 1e6:.0f} MB"
        print(
            f"    {how}: {trial.state} {trial.reason or ''} {held} {(trial.message or '')[:150]}",
            flush=True,
        )
        if (trial.state, trial.reason) not in EXPECTED[how]:
            wrong.append(f"{how!r} ended as {trial.state} ({trial.reason}): {trial.message}")
        elif trial.state == "complete" and trial.values.get("loss") != 0.5:
            wrong.append(f"{how!r} has the value {trial.values}")
        resident_bytes, leaks = trial.last_values.get("resident_bytes", 0.0), how == "leaks"
        # What the first trial of a run leaves is taken for what its trials share.
        if (
            leaks != (resident_bytes > LEAKED_BYTES)
            and record.history.trials[0].params["how"] != "leaks"
        ):
            wrong.append(f"{how!r} held {resident_bytes / 1e6:.0f} MB")
    if missing := set(ways) - {
        str(trial.params["how"]) for trial in record.history.trials.values()
    }:
        wrong.append(f"never tried: {sorted(missing)}")
    try_until(lambda: not _left_processes(), 20)
    return wrong + _left_processes()


def _left_processes() -> list[str]:
    """Find what trials started and nobody ended."""
    left = []
    for process in psutil.process_iter(["pid", "cmdline", "status"]):
        words = process.info["cmdline"] or []
        if (
            MARK in words
            and "tests.faults" not in words
            and process.info["status"] != psutil.STATUS_ZOMBIE
        ):
            left.append(f"left running: {process.info['pid']} {' '.join(words)[:80]}")
    return left


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
