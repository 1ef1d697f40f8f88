"""What three lines bring on public tables: `wb.automl` beside AutoGluon, FLAML and others.

Run `python -m tests.benchmarks.automl_tables [--seconds S] [--table NAME] [--system NAME]`. With
all tables, systems and budgets it takes about nine hours, so each result is stored when it is
there, and the next call goes on from the results that it finds. `--failed` repeats cells that
failed, and `--again --system ours` those of an earlier version.

Every system gets the same train rows and the same wall time on one processor, and predicts the same
test rows, which nobody may learn from. LightGBM and CatBoost with their defaults need no budget and
run once. WORKBENCH_RIVALS_PYTHON names the interpreter that has the rivals and the packages that
hold the tables.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from tests.benchmarks.clocked import describe_machine
from tests.benchmarks.table_systems import SYSTEMS, WITHOUT_A_BUDGET
from tests.benchmarks.tables import TABLES

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "automl_tables.json"
SECONDS = 60
OTHER_SECONDS = (30, 240)
OTHER_TABLES = ("loans", "wage", "emails", "bikes", "happiness", "restaurants")
"""The tables of the other budgets: two of each task, small and large."""
BASELINE = "LightGBM"
MAX_REGRET = 3.0
SAME = 1e-3
"""A table where the baseline is within this share of the best says nothing about regret."""
PATIENCE = 4.0
"""A system that needs so many times its budget is ended, and counts as failed."""
LEAST_PATIENCE_S = 600.0
SILENT = 0.5
"""A machine with a larger load average makes every system look worse than it is."""
_LEAST_PROBABILITY = 1e-15


def rivals_python() -> str:
    """Return the interpreter that has the rivals and the tables."""
    own = HERE.parents[1] / ".tables" / "bin" / "python"
    return os.environ.get("WORKBENCH_RIVALS_PYTHON", str(own if own.exists() else sys.executable))


def prepare(table: str, folder: Path) -> dict[str, Any]:
    """Write a table's train and test rows, and return what is known about it."""
    if not (folder / "about.json").exists():
        command = [rivals_python(), str(HERE / "tables.py"), table, str(folder)]
        subprocess.run(command, check=True)
    return json.loads((folder / "about.json").read_text())


def measure(system: str, folder: Path, seconds: int, *, processor: int) -> dict[str, Any]:
    """Run a system on a table, and return its loss and what it used, or why it failed."""
    python = sys.executable if system == "ours" else rivals_python()
    with tempfile.TemporaryDirectory(prefix="wb-bench-") as home:
        predictions = Path(home, "predictions.npy")
        limit_s = max(LEAST_PATIENCE_S, PATIENCE * seconds)
        command = [sys.executable, str(HERE / "one_core.py"), str(processor), str(limit_s)]
        command += [python, str(HERE / "table_systems.py"), system, str(folder), str(seconds)]
        environment = os.environ | {
            "WORKBENCH_HOME": home,
            "WORKBENCH_STORE": str(Path(home, "store.sqlite")),
            "WORKBENCH_ARTIFACTS": str(Path(home, "artifacts")),
            "RAY_USAGE_STATS_ENABLED": "0",
            "OMP_NUM_THREADS": "1",
        }
        done = subprocess.run(
            [*command, str(predictions)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        used = json.loads(done.stdout.strip().splitlines()[-1])
        if used["returncode"] != 0 or not predictions.exists():
            return {"error": done.stderr.strip().splitlines()[-1:] or ["it took too long"]}
        answers = np.load(predictions)
    took = json.loads(used["output"].strip().splitlines()[-1])
    loss = loss_of(answers, folder)
    return {"loss": loss, **took, **{name: used[name] for name in ("processor_s", "peak_bytes")}}


def loss_of(answers: np.ndarray, folder: Path) -> float:
    """Return the log loss, or the root mean squared error, on the test rows."""
    import pandas as pd

    about = json.loads((folder / "about.json").read_text())
    train, test = (pd.read_csv(folder / f"{part}.csv") for part in ("train", "test"))
    truth = test[about["target"]]
    if about["task"] == "regression":
        return float(np.sqrt(np.mean((answers - truth.to_numpy()) ** 2)))
    labels = sorted(train[about["target"]].astype(str).unique())
    places = truth.astype(str).map({label: place for place, label in enumerate(labels)})
    shares = np.clip(answers[np.arange(len(truth)), places.astype(int)], _LEAST_PROBABILITY, 1.0)
    return float(-np.mean(np.log(shares)))


def cells(arguments: argparse.Namespace) -> list[tuple[str, str, int]]:
    """Return what is to be measured: table, system and seconds, without repeating any."""
    wanted = []
    for seconds in arguments.seconds or (SECONDS, *OTHER_SECONDS):
        for table in arguments.table or TABLES:
            if seconds != SECONDS and not arguments.table and table not in OTHER_TABLES:
                continue
            for system in arguments.system or SYSTEMS:
                budget = 0 if system in WITHOUT_A_BUDGET else seconds
                wanted.append((table, system, budget))
    return list(dict.fromkeys(wanted))


def regrets(losses: dict[str, dict[str, float]]) -> dict[str, float]:
    """Return the mean regret of each system to the best of the others.

    0 is as good as the best other system, 1 is LightGBM with its defaults, below 0 is better than
    all others.

    Args:
        losses: By table, then by system.
    """
    by_system: dict[str, list[float]] = {}
    for measured in losses.values():
        if BASELINE not in measured:
            continue
        for system, loss in measured.items():
            others = [other for name, other in measured.items() if name != system]
            if not others or measured[BASELINE] <= (1 + SAME) * min(others):
                continue
            regret = (loss - min(others)) / (measured[BASELINE] - min(others))
            by_system.setdefault(system, []).append(min(regret, MAX_REGRET))
    return {system: fmean(values) for system, values in by_system.items()}


def ranks(losses: dict[str, dict[str, float]]) -> dict[str, float]:
    """Return the mean rank of each system over the tables that all of them have finished."""
    systems = set.union(*map(set, losses.values())) if losses else set()
    whole = [measured for measured in losses.values() if set(measured) == systems]
    return {
        system: fmean(
            sum(loss <= measured[system] for loss in measured.values()) for measured in whole
        )
        for system in systems
        if whole
    }


def summarise(results: dict[str, Any], seconds: int) -> None:
    """Print the losses of one budget, the mean ranks and the mean regrets."""
    losses: dict[str, dict[str, float]] = {}
    for cell in results.values():
        if cell["seconds"] in (0, seconds) and "loss" in cell:
            losses.setdefault(cell["table"], {})[cell["system"]] = cell["loss"]
    losses = {table: measured for table, measured in losses.items() if len(measured) > 2}
    print(f"\n{seconds} s" + "".join(f"{system:>16}" for system in SYSTEMS))
    for table, measured in losses.items():
        print(f"{table:<14}" + "".join(f"{measured.get(s, np.nan):>16.4f}" for s in SYSTEMS))
    for name, values in (("mean rank", ranks(losses)), ("mean regret", regrets(losses))):
        print(f"{name:<14}" + "".join(f"{values.get(s, np.nan):>16.3f}" for s in SYSTEMS))


def store(report: dict[str, Any], path: Path) -> None:
    """Replace the stored results at once, so that an interrupted run leaves whole ones."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_suffix(".part")
    written.write_text(json.dumps(report, indent=1) + "\n")
    written.replace(path)


def main() -> None:
    """Measure what is missing, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, action="append")
    parser.add_argument("--table", action="append", choices=TABLES)
    parser.add_argument("--system", action="append", choices=SYSTEMS)
    parser.add_argument("--processor", type=int, default=0, help="which one to use")
    parser.add_argument("--again", action="store_true", help="measure what is stored once more")
    parser.add_argument("--failed", action="store_true", help="measure cells that failed once more")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--tables", type=Path, default=HERE.parents[1] / ".tables" / "tables")
    arguments = parser.parse_args()
    report: dict[str, Any] = {"machine": describe_machine(), "cells": {}}
    if arguments.results.exists():
        report = json.loads(arguments.results.read_text())
    for table, system, seconds in cells(arguments):
        name = f"{table}, {system}, {seconds} s"
        known = report["cells"].get(name, {})
        is_done = "loss" in known or (bool(known) and not arguments.failed)
        if is_done and not arguments.again:
            continue
        load = os.getloadavg()[0]
        if load > SILENT:
            print(f"the load of this machine is {load:.1f}: other programs slow this cell down")
        about = prepare(table, arguments.tables / table)
        measured = measure(system, arguments.tables / table, seconds, processor=arguments.processor)
        print(name, measured, flush=True)
        report["cells"][name] = {"table": table, "system": system, "seconds": seconds} | measured
        report["cells"][name] |= {"num_train": about["num_train"], "task": about["task"]}
        report["cells"][name] |= {"load_before": load}
        store(report, arguments.results)
    for seconds in arguments.seconds or (SECONDS, *OTHER_SECONDS):
        summarise(report["cells"], seconds)


if __name__ == "__main__":
    main()
