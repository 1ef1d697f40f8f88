"""Code and data that are edited during a run: `python -m tests.faults code`.

In every round a run of a function, of a script or of a module starts in a folder of its own. At a
drawn moment the code is saved with another formula, in every other round together with the data; in
some rounds the driver is then killed, and the run resumed. Every trial must have computed the
formula that the run began with. A change of the data must be a version of its own, from a trial on.
After that the run is extended with `--code current`: the new trials, and only these, compute the
new formula.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import signal
import sys
from pathlib import Path
from typing import Any

from tests.faults.house import DEADLINE_S, House, finish
from tests.faults.rounds import play_rounds
from tests.services.waiting import try_until
from workbench.experiment import Experiment
from workbench.runs import Run

NUM_TRIALS, NUM_MORE = 8, 3
OFFSET = 1000.0
FUNCTION = """
import time
from pathlib import Path
from edited_package.part import formula

def train(config, report):
    time.sleep(0.2)
    num_rows = len(Path("rows.csv").read_text().split())
    report(loss=formula(config["x"]), num_rows=num_rows)
"""
SCRIPT = """
import argparse, time
from pathlib import Path
from edited_package.part import formula

parser = argparse.ArgumentParser()
parser.add_argument("--x", type=float)
x = parser.parse_args().x
time.sleep(0.2)
num_rows = len(Path("rows.csv").read_text().split())
print(f"loss={formula(x)!r} num_rows={num_rows}")
"""
PART = "OFFSET = {offset}\n\n\ndef formula(x):\n    return OFFSET + x\n"
WAYS: dict[str, dict[str, Any]] = {
    "function": {"train": "edited_train:train"},
    "script": {"command": "python edited_script.py --x {x}"},
    "module": {"command": "python -m edited_package.started --x {x}"},
}


def make_fields(way: str) -> dict[str, Any]:
    """The experiment of a round."""
    return {
        "name": "code",
        "objectives": [{"metric": "loss", "goal": "minimize"}],
        "search": {"x": {"low": 0.0, "high": 1.0}},
        "sampler": "random",
        "budget": {"trials": NUM_TRIALS},
        "resources": {"concurrency": 1, "max_retries": 5},
        **WAYS[way],
    }


def write_code(folder: Path, offset: float) -> None:
    """Save the code with a formula."""
    (folder / "edited_package").mkdir(exist_ok=True)
    files = {
        "edited_train.py": FUNCTION,
        "edited_script.py": SCRIPT,
        "edited_package/__init__.py": "",
        "edited_package/started.py": SCRIPT,
        "edited_package/part.py": PART.format(offset=offset),
    }
    for name, content in files.items():
        (folder / name).write_text(f"{content}\n# saved with {offset}\n")


def play(house: House, number: int, chance: random.Random) -> list[str]:
    """Play one round; return what is wrong."""
    way, edits_data, kills = list(WAYS)[number % 3], number % 2 == 1, number % 4 >= 2
    folder = house.folder / f"code-{number}"
    folder.mkdir()
    write_code(folder, 0.0)
    (folder / "rows.csv").write_text("a b c")
    path = folder / "experiment.yaml"
    path.write_text(Experiment(**make_fields(way)).to_yaml())
    known = {run.run_id for run in house.store.runs()}
    code, said = finish(house.begin("sweep", str(path), "--detach", cwd=folder), 2 * DEADLINE_S)
    if code != 0:
        return [f"sweep --detach: {code}: {said.strip()[-400:]}"]
    run = Run(
        house.store, next(row.run_id for row in house.store.runs() if row.run_id not in known)
    )
    moment = chance.randrange(1, NUM_TRIALS - 3)
    try_until(lambda: len(run.history.in_state("complete")) >= moment, DEADLINE_S)
    write_code(folder, OFFSET)
    if edits_data:
        (folder / "rows.csv").write_text("a b c d e")
    if kills and run.row.owner is not None:
        with contextlib.suppress(ProcessLookupError):  # the run has just ended
            os.kill(run.row.owner.pid, signal.SIGKILL)
    wrong = _finish(house, run)
    wrong += _check(run, edits_data=edits_data)
    code, said = finish(
        house.begin("extend", run.run_id, "--more-trials", str(NUM_MORE), "--code", "current"),
        2 * DEADLINE_S,
    )
    wrong += [] if code == 0 else [f"extend: {code}: {said.strip()[-400:]}"]
    for trial in list(run.history.trials.values())[NUM_TRIALS:]:
        if trial.values.get("loss") != OFFSET + float(str(trial.params["x"])):
            wrong.append(f"trial {trial.number} of the new code has {trial.values}")
        if trial.program != run.history.programs[-1].version:
            wrong.append(f"trial {trial.number} is of version {trial.program}")
    return [f"{way}: {line}" for line in wrong]


def _finish(house: House, run: Run) -> list[str]:
    try_until(lambda: run.state in ("complete", "lost", "failed", "stopped"), DEADLINE_S)
    if run.state != "complete":
        house.command("resume", run.run_id)
        try_until(lambda: run.state == "complete", DEADLINE_S)
    return [] if run.state == "complete" else [f"it is {run.state}"]


def _check(run: Run, *, edits_data: bool) -> list[str]:
    """Compare each trial with the formula that the run began with, and its data with its
    version.
    """
    trials = list(run.history.trials.values())
    wrong = [
        f"trial {trial.number} has {trial.values}, {trial.message}"
        for trial in trials
        if trial.values.get("loss") != float(str(trial.params["x"]))
    ]
    versions = run.history.programs
    has_read_both = any(
        trial.values.get("num_rows") == 5.0 for trial in trials
    )  # else it ended before
    if len(versions) != 1 + (edits_data and has_read_both):
        wrong.append(f"{len(versions)} versions were recorded: {versions}")
    noted = " ".join(str(getattr(event, "message", "")) for event in run.events())
    unsure = _unsure_trials(noted)
    for trial in trials:
        expected = 3.0 if trial.program == 1 else 5.0
        if trial.values.get("num_rows") != expected and trial.number not in unsure:
            wrong.append(f"trial {trial.number} of version {trial.program} read {trial.values}")
    return wrong


def _unsure_trials(noted: str) -> set[int]:
    """Return the trials of a note such as "Trials 0 to 3 may have read either version"."""
    numbers: set[int] = set()
    for listed in re.findall(r"[Tt]rials? ([\d, toand]+) may have read either", noted):
        for first, last in re.findall(r"(\d+)(?: to (\d+))?", listed):
            numbers |= set(range(int(first), int(last or first) + 1))
    return numbers


def main(words: list[str]) -> int:
    """Run the campaign and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults code", description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--first", type=int, default=0, help="the number of the first round")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(words)

    def play_round(house: House, number: int) -> tuple[list[str], str]:
        return play(house, number, random.Random(f"{given.seed}/{number}")), ""

    return play_rounds("code", given.rounds, play_round, first=given.first)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
