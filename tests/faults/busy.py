"""Runs on a busy machine: `python -m tests.faults busy` makes a load of 40 and starts 30 runs.

They are started and followed in five ways: `sweep`, `automl`, `follow`, `wb.sweep(wait=True)` and
`wait()`. Three are under way at a time. Everything is late on such a machine, and nothing is gone:
nobody may call a run lost, each has to complete, and whoever waits for it has to end with exit code
0.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.faults.house import DEADLINE_S, House, finish, write_experiment
from tests.faults.rounds import play_rounds

LOAD = 40
NICENESS = 10
PATIENCE_S = DEADLINE_S
NUM_TRIALS = 4
BUSY = f"import os\nos.nice({NICENESS})\nwhile True: pass"
FORBIDDEN = ("lost", "Traceback", "gone", "RunError")
IN_PYTHON = (
    "import sys\nimport workbench as wb\nrun = wb.sweep(sys.argv[1]{how})\n{then}print(run.state)"
)
WAYS = ("sweep", "automl", "wb.sweep", "wait", "follow")


def make_fields(name: str) -> dict[str, Any]:
    """The experiment of a round."""
    return {
        "name": name,
        "train": {"name": "trained_function:descend", "steps": 4, "pause_s": 0.1},
        "objectives": [{"metric": "loss", "goal": "minimize"}],
        "search": {"x": {"low": 0.0, "high": 1.0}, "y": {"low": 1, "high": 9}},
        "sampler": "random",
        "budget": {"trials": NUM_TRIALS},
        "resources": {"concurrency": 2, "max_retries": 5},
    }


@contextlib.contextmanager
def load_of(number: int) -> Iterator[None]:
    """Keep processes busy meanwhile.

    Args:
        number: How many.
    """
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(number)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
        for process in busy:
            process.wait()


def play(house: House, number: int) -> tuple[list[str], str]:
    """Start one run and wait for it; return what is wrong, and in which way it was started."""
    way, name = WAYS[number % len(WAYS)], f"busy-{number}"
    path = write_experiment(house, make_fields(name))
    match way:
        case "sweep":
            code, said = finish(house.begin("sweep", str(path)), PATIENCE_S)
        case "automl":
            words = ("automl", "breast_cancer", "--time", "20s", "--name", name)
            code, said = finish(house.begin(*words), PATIENCE_S)
        case "follow":
            code, said = finish(house.begin("sweep", str(path), "--detach"), PATIENCE_S)
            if code == 0:
                code, more = finish(house.begin("follow", said.split()[-1]), PATIENCE_S)
                said += more
        case "wb.sweep":
            code, said = _in_python(house, path, IN_PYTHON.format(how=", wait=True", then=""))
        case _:
            code, said = _in_python(house, path, IN_PYTHON.format(how="", then="run.wait()\n"))
    wrong = []
    if code != 0 or any(word in said for word in FORBIDDEN):
        wrong.append(f"{way} ended with {code}: {said.strip()[-1500:]}")
    states = [row.state for row in house.store.runs() if row.name == name]
    if states != ["complete"]:
        wrong.append(f"the runs of {way} are {states}")
    return wrong, f"{way}, load {os.getloadavg()[0]:.0f}, "


def _in_python(house: House, path: Path, code: str) -> tuple[int, str]:
    return finish(
        subprocess.Popen(
            [sys.executable, "-c", code, str(path)],
            env=house.environment,
            cwd=path.parent,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ),
        PATIENCE_S,
    )


def main(words: list[str]) -> int:
    """Run the campaign and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults busy", description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--first", type=int, default=0, help="Begin with this round.")
    parser.add_argument(
        "--load", type=int, default=LOAD, help="So many processes are busy meanwhile."
    )
    parser.add_argument(
        "--at-once", type=int, default=3, help="So many runs are started at a time."
    )
    given = parser.parse_args(words)
    with load_of(given.load):
        return play_rounds("busy", given.rounds, play, first=given.first, num_at_once=given.at_once)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
