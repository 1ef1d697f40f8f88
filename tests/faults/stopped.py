"""Stopped processes, as those of a suspended laptop are: `python -m tests.faults stopped`.

In every round a sweep is followed by the command that started it and by another one, and a process
is stopped for 30 seconds, twice as long as a lease lasts: the driver, a worker, the program of a
trial, the pool, the raylet, Ray's head, its keeper, the server of the store, the followers, and all
of them at once, in turn. Nothing is gone, so nobody may call the run lost: both commands have to
end with exit code 0, and every trial has to complete in its first attempt.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import psutil

from tests.faults.house import DEADLINE_S, House, finish, freeze, write_experiment
from tests.faults.rounds import play_rounds
from tests.services.postgresql import PASSWORD, Server, find_programs
from tests.services.waiting import try_until, wait_until
from workbench.runs import Run

STOPPED = (
    "driver",
    "worker",
    "program",
    "pool",
    "raylet",
    "head",
    "keeper",
    "store",
    "followers",
    "everything",
)
STOPPED_S = 30.0
NUM_TRIALS, NUM_STEPS, PAUSE_S = 4, 8, 0.4
MARK = "workbench-stopped-program"
PROGRAM = f"""
import sys, time
x = float(sys.argv[1])
for step in range(1, {NUM_STEPS} + 1):
    time.sleep({PAUSE_S})
    print("step=%d loss=%r" % (step, x / step), flush=True)
"""
FORBIDDEN = ("lost", "Traceback", "driver is gone", "has ended")


def make_fields(victim: str) -> dict[str, Any]:
    """The experiment of a round: one trial after another, each long enough to be hit."""
    function = {"name": "trained_function:descend", "steps": NUM_STEPS, "pause_s": PAUSE_S}
    command = [sys.executable, "-c", PROGRAM, "{x}", MARK]
    return {
        "name": "stopped",
        **({"command": command} if victim == "program" else {"train": function}),
        "objectives": [{"metric": "loss", "goal": "minimize"}],
        "search": {
            "x": {"low": 0.0, "high": 1.0},
            **({} if victim == "program" else {"y": {"low": 1, "high": 9}}),
        },
        "sampler": "random",
        "budget": {"trials": NUM_TRIALS},
        "resources": {"concurrency": 1, "max_retries": 5},
    }


def play(house: House, number: int) -> tuple[list[str], str]:
    """Play one round; return what is wrong, and who was stopped."""
    victim = STOPPED[number % len(STOPPED)]
    with _house_for(house, victim, number) as (used, server):
        wrong = _play(used, victim, server)
    return wrong, f"{victim}, "


@contextlib.contextmanager
def _house_for(house: House, victim: str, number: int) -> Iterator[tuple[House, Server | None]]:
    """Yield where a round is played: where the store is stopped, with a server that can be."""
    programs = find_programs()
    if victim != "store" or programs is None:
        yield house, None
        return
    server = Server(programs)
    try:
        own = House(
            house.folder / f"team-{number}",
            store=server.url(server.make_database()),
            environment={"PGPASSWORD": PASSWORD},
        )
        try:
            yield own, server
        finally:
            own.close()
    finally:
        server.close()


def _play(house: House, victim: str, server: Server | None) -> list[str]:
    path = write_experiment(house, make_fields(victim))
    known = {row.run_id for row in house.store.runs()}
    began = house.begin("sweep", str(path))

    def new_run() -> Run | None:
        run_ids = [row.run_id for row in house.store.runs() if row.run_id not in known]
        return Run(house.store, run_ids[0]) if run_ids else None

    run = wait_until(new_run, DEADLINE_S, what="a run in the store")
    followers = {"sweep": began, "follow": house.begin("follow", run.run_id)}
    try_until(
        lambda: run.history.in_state("complete") and run.history.in_state("running"), DEADLINE_S
    )
    targets = try_until(lambda: _targets(house, victim, followers, server), DEADLINE_S)
    is_early = run.state == "running"
    thaws = [freeze(target) for target in targets]
    try:
        time.sleep(STOPPED_S)
    finally:
        for thaw in thaws:
            thaw()
    wrong = [] if targets and is_early else [f"nothing was hit: the run was {run.state}"]
    for words, command in followers.items():
        code, said = finish(command)
        if code != 0 or any(word in said for word in FORBIDDEN):
            wrong.append(f"{words} ended with {code}: {said.strip()[-1500:]}")
        if victim == "driver" and "answers again" not in said:
            wrong.append(f"{words} said nothing of the silence: {said.strip()[-1500:]}")
    return wrong + _judge(run)


def _targets(
    house: House, victim: str, followers: dict[str, subprocess.Popen[str]], server: Server | None
) -> list[psutil.Process]:
    """Return the processes to stop."""
    commands = [psutil.Process(command.pid) for command in followers.values()]
    match victim:
        case "followers":
            return commands
        case "everything":
            return [*commands, *house.processes()]
        case "keeper":
            return house.processes()[:1]
        case "program":
            return [process for process in house.processes() if MARK in process.cmdline()]
        case "store" if server is not None:
            main = psutil.Process(server.pid)
            return [*main.children(), main]
        case _:
            return house.find(victim)


def _judge(run: Run) -> list[str]:
    """Return what is wrong with how a run ended."""
    wrong = []
    complete = run.history.in_state("complete")
    if run.state != "complete" or len(complete) != NUM_TRIALS:
        wrong.append(f"it is {run.state}, with {len(complete)} of {NUM_TRIALS} trials")
    repeated = [trial.number for trial in run.history.trials.values() if trial.attempts > 1]
    if repeated:
        wrong.append(f"trials {repeated} needed more than one attempt")
    if len(run.history.drivers) != 1:
        wrong.append(f"{len(run.history.drivers)} drivers started")
    return wrong


def main(words: list[str]) -> int:
    """Run the campaign and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults stopped", description=__doc__)
    parser.add_argument("--rounds", type=int, default=len(STOPPED))
    parser.add_argument("--first", type=int, default=0, help="Begin with this round.")
    given = parser.parse_args(words)
    return play_rounds("stopped", given.rounds, play, first=given.first)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
