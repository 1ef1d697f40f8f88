"""Many commands at once: `python -m tests.faults storm`.

Several runs are started in the same second. While they run, five processes send `set`, `stop`,
`extend` and `resume` in drawn order; in some rounds `shutdown` comes in the middle. At last every
run is resumed. Each must end complete, sound, with each trial once, and no command may end in a
traceback.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from typing import Any

from tests.faults.evidence import Record, check_order
from tests.faults.house import DEADLINE_S, House, finish, write_experiment
from tests.faults.rounds import play_rounds
from tests.services.waiting import try_until

NUM_PROCESSES = 5
NUM_TRIALS = 4
"""Of a run that no command extends."""
REFUSED = (0, 1, 2, 3, 4, 5)
"""Exit codes that a command may have: it was carried out, or refused in words."""


def make_fields() -> dict[str, Any]:
    """The experiment of every run."""
    return {
        "name": "storm",
        "train": {"name": "trained_function:descend", "steps": 5, "pause_s": 0.2},
        "objectives": [{"metric": "loss", "goal": "minimize"}],
        "search": {"x": {"low": 0.0, "high": 1.0}, "y": {"low": 1, "high": 9}},
        "sampler": "random",
        "budget": {"trials": NUM_TRIALS},
        "resources": {"concurrency": 1, "max_retries": 5},
    }


def play(
    house: House, num_runs: int, chance: random.Random, *, shuts_down: bool
) -> tuple[list[str], int]:
    """Play one round; return what is wrong, and how many commands were sent."""
    path = write_experiment(house, make_fields())
    known = {run.run_id for run in house.store.runs()}
    starting = [house.begin("sweep", str(path), "--detach") for _ in range(num_runs)]
    wrong: list[str] = []
    for process in starting:
        code, said = finish(process, 2 * DEADLINE_S)
        wrong += [] if code == 0 else [f"sweep --detach: {code}: {said.strip()[-400:]}"]
    run_ids = [run.run_id for run in house.store.runs() if run.run_id not in known]
    if len(run_ids) != num_runs:
        wrong.append(f"{num_runs} runs were started, and {len(run_ids)} are there")
    sent = 0
    for _ in range(3):
        storm = [_send(house, chance.choice(run_ids), chance) for _ in range(NUM_PROCESSES)]
        if shuts_down:
            storm.append(("shutdown", house.begin("shutdown")))
        sent += len(storm)
        for words, process in storm:
            code, said = finish(process)
            if code not in REFUSED or "Traceback" in said:
                wrong.append(f"{words}: {code}: {said.strip()[-1500:]}")
    for run_id in run_ids:
        wrong += _finish_run(house, run_id)
    return wrong, sent + num_runs


def _send(house: House, run_id: str, chance: random.Random) -> tuple[str, subprocess.Popen[str]]:
    words = chance.choice(
        [
            ("set", run_id, "--concurrency", str(chance.choice([1, 2]))),
            ("set", run_id, "--trials", str(chance.choice([4, 5]))),
            ("stop", run_id),
            ("stop", run_id, "--trial", str(chance.randrange(4))),
            ("extend", run_id, "--more-trials", "1"),
            ("resume", run_id, "--detach"),
        ]
    )
    return " ".join(words), house.begin(*words)


def _finish_run(house: House, run_id: str) -> list[str]:
    """Resume a run until it is complete, and check its events."""
    code, said, until_s = 0, "", time.monotonic() + DEADLINE_S
    while house.store.run(run_id).state != "complete" and time.monotonic() < until_s:
        code, said = house.command("resume", run_id)
        if "Traceback" in said:
            return [f"resume: {code}: {said.strip()[-1500:]}"]
        try_until(
            lambda: house.store.run(run_id).state not in ("running", "stopping", "waiting"), 10.0
        )
    state = house.store.run(run_id).state
    wrong = [] if state == "complete" else [f"{run_id} is {state}: {code}: {said.strip()[-500:]}"]
    record = Record.read(house.store, run_id)
    if state == "complete" and len(record.history.trials) < NUM_TRIALS:
        wrong.append(f"{run_id} has {len(record.history.trials)} trials")
    odd = [
        trial
        for trial in record.history.trials.values()
        if trial.state not in ("complete", "stopped")
    ]
    wrong += [f"{run_id}: trial {trial.number} is {trial.state}: {trial.message}" for trial in odd]
    return wrong + [f"{run_id}: {line}" for line in check_order(record)]


def main(words: list[str]) -> int:
    """Run the campaign and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults storm", description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--runs", type=int, default=4, help="Runs that start at once.")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(words)

    def play_round(house: House, number: int) -> tuple[list[str], str]:
        chance = random.Random(f"{given.seed}/{number}")
        wrong, sent = play(house, given.runs, chance, shuts_down=number % 2 == 1)
        return wrong, f"{sent} commands, "

    return play_rounds("storm", given.rounds, play_round)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
