"""How long a run takes from the command to its first trial: without a Ray head, and with one.

Run `python -m tests.benchmarks.run_start [--turns N]`. The command is `workbench sweep` of the
digits with one trial; the clock starts where its process is started. Cold finds no head; warm finds
the head and the worker of the run before, which have had time to become idle; "new worker" finds
the head, but no worker with its environment variables. The steps are events of the run: its driver
has started, the trial has started on its worker, and it has reported. The processor time is that of
the command itself.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.benchmarks import clocked
from workbench.store.database import Store

RESULTS = Path(__file__).parent / "results" / "run_start.json"
EXPERIMENT = Path(__file__).parents[2] / "search_spaces" / "digits.yaml"
LIMITS_S = {"cold": 5.0, "warm": 1.5, "new worker": None}
STEPS = ("driver_started", "trial_started", "trial_reported")
SETTLE_S = 8.0
"""How long the head has to start the processes of the next run."""


def start_once(home: Path, kind: str, turn: int) -> dict[str, float]:
    """Run the command to its end; return when it reached each step, in seconds since its start."""
    environment = os.environ | {
        "WORKBENCH_HOME": str(home),
        "WORKBENCH_STORE": str(home / "store.db"),
    }
    command = [sys.executable, "-m", "workbench"]
    if kind == "cold":
        subprocess.run(
            [*command, "shutdown"], env=environment, stdout=subprocess.DEVNULL, check=True
        )
    else:
        time.sleep(SETTLE_S)
    if kind == "new worker":
        environment["RUN_START"] = str(
            turn
        )  # workers are shared only where the variables are the same
    used_s = _processor_time_of_children_s()
    started_unix_s = time.time()
    done = subprocess.run(
        [*command, "sweep", str(EXPERIMENT), "--trials", "1", "--json"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    used_s = _processor_time_of_children_s() - used_s
    reached_s: dict[str, float] = {}
    with Store.open(str(home / "store.db")) as store:
        for stored in store.events(json.loads(done.stdout)["run_id"]):
            reached_s.setdefault(stored.event.type, stored.event.time_unix_s - started_unix_s)
    return {step: reached_s[step] for step in STEPS} | {"processor": used_s}


def _processor_time_of_children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Start runs in turns, print the table, write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    arguments = parser.parse_args()
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    rows: dict[str, list[dict[str, float]]] = {kind: [] for kind in LIMITS_S}
    with tempfile.TemporaryDirectory(prefix="wb-bench-") as home:
        try:
            for turn in range(arguments.turns):
                for kind, starts in rows.items():
                    load = os.getloadavg()[0]
                    starts.append(start_once(Path(home), kind, turn) | {"load": load})
        finally:
            environment = os.environ | {"WORKBENCH_HOME": home}
            subprocess.run(
                [sys.executable, "-m", "workbench", "shutdown"], env=environment, check=True
            )
    report: dict[str, Any] = {"machine": clocked.describe_machine(), "starts": {}}
    print(f"seconds from the command to its first trial (medians of {arguments.turns})")
    names = (*STEPS, "processor", "load")
    print(f"  {'':<12}" + "".join(f"{name:>16}" for name in names) + f"{'expected':>12}")
    for kind, limit_s in LIMITS_S.items():
        medians = {name: statistics.median(each[name] for each in rows[kind]) for name in names}
        report["starts"][kind] = {"limit_s": limit_s, "medians": medians, "each": rows[kind]}
        expected = "" if limit_s is None else f"{limit_s:.1f}"
        print(
            f"  {kind:<12}"
            + "".join(f"{value:>16.2f}" for value in medians.values())
            + f"{expected:>12}"
        )
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
