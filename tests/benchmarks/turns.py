"""How soon trials can be compared if they train in turns, and what that costs.

Run `python -m tests.benchmarks.turns [--pairs N]`. Eight trials of about a second train on one
worker, one after another and in six turns. Both runs are repeated as pairs, in alternating order,
because the speed of a machine that others use changes with time. The first pair, in which the
process is warmed up, does not count. Compared are the time until every trial has had its first
turn, the time until all are complete, and their values, which must be the same to the bit.

A model and a function continue in the worker's process. A script starts again in each turn, and
its cost is stated, not limited.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from tests.benchmarks import clocked

RESULTS = Path(__file__).parent / "results" / "turns.json"
NUM_TRIALS, NUM_TURNS, NUM_STEPS = 8, 6, 60
LIMIT = 0.05
"""The largest overhead of models and functions, as a share of the time without turns."""
SCRIPT = """
import pathlib, sys, time
rate, folder = float(sys.argv[1]), pathlib.Path(sys.argv[2])
saved = folder / "state.txt"
epoch, x = 0, 4.0
if saved.exists():
    epoch, x = (float(word) for word in saved.read_text().split())
for epoch in range(int(epoch) + 1, 61):
    time.sleep(0.02)
    x -= rate * x
    partly = folder / "partly"
    partly.write_text(f"{epoch} {x!r}")
    partly.replace(saved)
    print(f"epoch {epoch} loss {x!r}", flush=True)
"""


def walk(config: dict[str, Any], report: Any, folder: Path) -> None:
    """Walk towards 0 with some arithmetic on the way, and save every step."""
    import numpy as np

    saved = folder / "state.json"
    step, x = json.loads(saved.read_text()) if saved.exists() else (0, 4.0)
    matrix = np.eye(160)
    while step < NUM_STEPS:
        for _ in range(20):
            matrix = np.linalg.qr(matrix)[0]
        step, x = step + 1, x - config["lr"] * x
        partly = folder / "partly.json"
        partly.write_text(json.dumps([step, x]))
        partly.replace(saved)
        if report(step=step, loss=x):
            return


def cases(folder: Path) -> dict[str, dict[str, Any]]:
    """Return what is trained, by its name."""
    script = folder / "train.py"
    script.write_text(SCRIPT)
    return {
        "model": {
            "model": {"name": "mlp", "hidden_width": 32},
            "data": "digits",
            "objectives": [{"metric": "val_loss", "goal": "minimize"}],
            "training": {"epochs": NUM_STEPS, "optimizer": "sgd"},
        },
        "function": {"train": "tests.benchmarks.turns:walk"},
        "script": {"command": f"python {script} {{lr}} {{folder}} {{seed}}", "step": "epoch"},
    }


def run_once(store_url: str, fields: dict[str, Any], *, in_turns: bool) -> dict[str, Any]:
    """Train all trials, and return when they were ready, and their values."""
    from workbench.experiment import Experiment
    from workbench.foundation.events import AttemptEnded, TrialEnded, TrialStarted
    from workbench.store.database import Store
    from workbench.sweeps.launchers import launch

    early_stop: dict[str, Any] = {"turns": NUM_TURNS}
    if "model" not in fields:
        early_stop["length"] = NUM_STEPS
    experiment = Experiment(
        **{
            "objectives": [{"metric": "loss", "goal": "minimize"}],
            "search": {"lr": {"low": 0.01, "high": 0.2, "log": True}},
            "sampler": "random",
            "budget": {"trials": NUM_TRIALS},
            "resources": {"concurrency": 1},
            "early_stop": early_stop if in_turns else {},
            **fields,
        }
    )
    with Store.open(store_url) as store:
        run_id = store.create_run(experiment)
        launch(store, run_id, launcher="inline")
        events = [stored.event for stored in store.events(run_id)]
    started_unix_s = next(e.time_unix_s for e in events if isinstance(e, TrialStarted))
    ended = {event.trial: event for event in events if isinstance(event, TrialEnded)}
    assert [ended[number].state for number in range(NUM_TRIALS)] == ["complete"] * NUM_TRIALS
    turns = [event for event in events if isinstance(event, AttemptEnded) and event.turn]
    first = [event.time_unix_s for event in turns if event.turn == 1]
    last_unix_s = max(event.time_unix_s for event in ended.values())
    return {
        "total_s": last_unix_s - started_unix_s,
        "comparable_s": max(first, default=last_unix_s) - started_unix_s,
        "restarts_s": [event.restart_s for event in turns if event.restart_s is not None],
        "values": [dict(ended[number].values) for number in range(NUM_TRIALS)],
    }


def measure(name: str, fields: dict[str, Any], store_url: str, num_pairs: int) -> dict[str, Any]:
    """Measure one case and print it."""
    pairs: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for number in range(num_pairs + 1):
        order = (False, True) if number % 2 else (True, False)
        runs = {in_turns: run_once(store_url, fields, in_turns=in_turns) for in_turns in order}
        pairs.append((runs[False], runs[True]))
    pairs = pairs[1:]
    for whole, turns in pairs:
        assert whole["values"] == turns["values"], "turns must not change any result"
    overheads = [turns["total_s"] / whole["total_s"] - 1.0 for whole, turns in pairs]
    restarts_s = [seconds for _, turns in pairs for seconds in turns["restarts_s"]]
    row = {
        "total_s": statistics.median(whole["total_s"] for whole, _ in pairs),
        "total_in_turns_s": statistics.median(turns["total_s"] for _, turns in pairs),
        "overhead": statistics.median(overheads),
        "overheads": sorted(overheads),
        "comparable_share": statistics.median(
            turns["comparable_s"] / whole["total_s"] for whole, turns in pairs
        ),
        "restart_s": statistics.median(restarts_s),
    }
    print(
        f"{name:<9} {row['total_s']:6.2f} s, in turns {row['total_in_turns_s']:6.2f} s"
        f" ({row['overhead']:+.1%}), comparable after {row['comparable_share']:.1%},"
        f" a turn starts in {row['restart_s']:.3f} s",
        flush=True,
    )
    return row


def main() -> None:
    """Measure all cases, print them, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--cases", nargs="*", default=["model", "function", "script"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wb-bench-") as name:
        folder = Path(name)
        known = cases(folder)
        rows = {
            case: measure(case, known[case], str(folder / "store.db"), arguments.pairs)
            for case in arguments.cases
        }
    print(f"expected: at most {LIMIT:.0%} for a model and a function, comparable after a sixth")
    report = {"machine": clocked.describe_machine(), "limit": LIMIT, "cases": rows}
    RESULTS.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
