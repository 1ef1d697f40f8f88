"""Fault campaigns: `python -m tests.faults machine --seed 0 --rounds 96` does harm in each round.

Without a name all campaigns run, one after another. Several names run those.

On one machine victims take turns: the driver, a worker, the pool, the raylet, Ray's head, and the
whole cluster at once are killed; each of the first three is frozen for up to two leases, the driver
also until somebody has resumed its run. On a `cluster` a node is lost, falls silent, is cut off, or
comes for a while, the store is away for up to a minute, or the head is started again; in every
other round or so a second fault happens meanwhile. The `clock` of a machine jumps by an hour, for
good or for a while. In its `storage` a disk is full for a while, and checkpoints and files of the
store are removed. The moment of each is drawn over the whole course of a sweep.

Other campaigns have options of their own: `trials` (what trials do to their process), `storm` (many
commands and runs at once), `leases` (frozen writers and clocks that jump), `damage` (files that
rot), `input` (hostile input), `endurance` (10,000 trials, 50 browsers), `tiers` (devices, edges and
clouds that are lost under requests), `code` (edited during a run),
`exports` (killed while they replace a bundle), `connections` (4,300 that ask
a server for nothing), `head_folder` (cleaned under a living head), `stopped` (processes that stop
for 30 s), `busy` (30 runs at a load of 40).
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.faults.campaign import Campaign, Outcome, Round, table
from tests.faults.clock_house import ClockHouse, enter
from tests.faults.cluster_house import ClusterHouse
from tests.faults.house import House
from tests.faults.storage_house import StorageHouse

OTHERS = {
    "trials": "tests.faults.hard_trials",
    "storm": "tests.faults.storm",
    "leases": "tests.faults.leases",
    "damage": "tests.faults.damage",
    "input": "tests.faults.hostile_input",
    "endurance": "tests.faults.endurance",
    "tiers": "tests.faults.tiers",
    "code": "tests.faults.code_edits",
    "exports": "tests.faults.exports",
    "connections": "tests.faults.connections",
    "head_folder": "tests.faults.head_folder",
    "stopped": "tests.faults.stopped",
    "busy": "tests.faults.busy",
    "cluster_demo": "tests.faults.cluster_demo",
}
HOUSES = {"machine": House, "cluster": ClusterHouse, "clock": ClockHouse, "storage": StorageHouse}
ROUNDS = {"machine": 96, "cluster": 36, "clock": 24, "storage": 40}
# What runs without a name.
ALL = (
    "input",
    "damage",
    "leases",
    "trials",
    "storm",
    "machine",
    "cluster",
    "clock",
    "storage",
    "tiers",
    "code",
    "exports",
    "connections",
    "head_folder",
    "stopped",
    "busy",
    "endurance",
)


def main() -> int:
    """Run the campaigns that are named; return 1 if one of them found a fault."""
    names = list(itertools.takewhile(lambda word: not word.startswith("-"), sys.argv[1:]))
    if not sys.argv[1:] or len(names) > 1:
        return run_all(names or ALL)
    if names and names[0] in OTHERS:
        return importlib.import_module(OTHERS[names[0]]).main(sys.argv[2:])
    return run_rounds()


def run_all(names: Sequence[str]) -> int:
    """Run campaigns, each in a process of its own, until one fails; return its exit status."""
    for name in names:
        print(f"\n=== {name}", flush=True)
        status = subprocess.run([sys.executable, "-m", "tests.faults", name]).returncode
        if status != 0:
            return status
    return 0


def run_rounds() -> int:
    """Run rounds of a campaign against a sweep; return 1 if a run did not recover."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("where", choices=HOUSES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--first", type=int, default=0, help="Begin with this round.")
    parser.add_argument(
        "--workers", type=int, nargs="+", default=[1, 2], help="Workers a trial, in turns."
    )
    parser.add_argument(
        "--keep", action="store_true", help="Keep the store, the logs and the head."
    )
    given = parser.parse_args()
    if given.where == "clock":
        enter()
    folder = Path(tempfile.mkdtemp(prefix="workbench-faults-"))
    house = HOUSES[given.where](folder)
    outcomes: list[Outcome] = []
    try:
        campaign = Campaign(house)
        for number in range(given.first, given.first + (given.rounds or ROUNDS[given.where])):
            began_s = time.monotonic()
            drawn = Round.draw(
                given.seed, number, tuple(given.workers), house.victims, house.others
            )
            outcome = campaign.suffer(drawn)
            outcomes.append(outcome)
            print(describe(number, outcome, time.monotonic() - began_s), flush=True)
    finally:
        print(f"\n{table(outcomes)}\n")
        if given.keep:
            print(f"Everything is in {folder}")
        else:
            house.close()
            shutil.rmtree(folder)
    return 0 if all(outcome.recovered for outcome in outcomes) else 1


def describe(number: int, outcome: Outcome, took_s: float) -> str:
    """One line for a round, and one for everything that was wrong or odd."""
    seconds = ", ".join(
        "-" if hit.recovery_s is None else f"{hit.recovery_s:.1f} s" for hit in outcome.hits
    )
    verdict = "well" if outcome.recovered else "WRONG"
    lines = [
        f"{number:3d} {verdict:5} {outcome.round}: recovered in {seconds}, round of {took_s:.0f} s"
    ]
    lines += [f"    wrong: {line}"[:1000] for line in outcome.findings.wrong]
    lines += [f"    note: {line}" for line in outcome.notes]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
