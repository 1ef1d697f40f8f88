"""What imported runs save: trials to the same regret, with and without them.

For each seed, a task is searched twice. The old runs are 200 random trainings of four other public
tasks. They are written to a CSV file, imported, and read by a warm start, as users do it.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np

from tests.benchmarks.search import play
from tests.benchmarks.search_rivals import Ours
from tests.benchmarks.search_tasks import Task, public_tasks
from tests.builders.measured import find_measured
from workbench.experiment import Space
from workbench.foundation.events import PriorTrialAdded
from workbench.runs.importing.import_runs import import_runs
from workbench.store.database import Store
from workbench.sweeps.warm_start import prior_trials

NUM_OLD_TASKS = 4
NUM_OLD_TRIALS = 200
GOALS = (0.3, 0.2, 0.1)
"""Regrets to reach: 0 is the best of 20,000 random configurations, and 1 is their median."""
RESULTS = Path(__file__).parent / "results" / "old_runs.json"


def write_table(path: Path, tasks: Sequence[Task], seed: int) -> None:
    """Write random trainings of tasks as a table with a row for each epoch."""
    draw = random.Random(seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        names = list(tasks[0].search)
        writer.writerow(["task", "run", "epoch", "loss", *names])
        for task in tasks:
            for run in range(NUM_OLD_TRIALS // len(tasks)):
                params = Space(dict(task.search)).sample(draw)
                values, _ = task.train(params)
                for epoch, value in enumerate(values, 1):
                    writer.writerow(
                        [task.name, run, epoch, value, *(params[name] for name in names)]
                    )


def priors_of(
    tasks: Sequence[Task], seed: int, folder: Path, search: Ours
) -> list[PriorTrialAdded]:
    """Return what a warm start takes from the imported trainings of tasks."""
    write_table(folder / "old.csv", tasks, seed)
    with Store.open(str(folder / "store.sqlite"), folder / "artifacts") as store:
        imported = import_runs(folder / "old.csv", metric="loss", goal="maximize", store=store)
        return [
            prior
            for run in imported.runs
            for prior in prior_trials(store, run.run_id, search.study.experiment)
        ]


def regrets_of(task: Task, search: Ours, num_trials: int) -> np.ndarray:
    """Return the regret after each trial, shape [trials]."""
    played = play(task, search, 1, num_trials=num_trials)
    return np.array([task.regret(played.best_end(num)) for num in range(1, num_trials + 1)])


def trials_to(regrets: np.ndarray, goal: float) -> int | None:
    """Return after how many trials a search has reached a regret, or None if it has not."""
    reached = np.flatnonzero(regrets <= goal)
    return int(reached[0]) + 1 if len(reached) else None


def shares_of_trials(cold: np.ndarray, warm: np.ndarray) -> dict[str, float]:
    """Return which share of the trials of a cold search a warm one needs, by the regret to reach.

    A search that never reaches it counts with twice its trials.
    """
    goals = {**{str(goal): goal for goal in GOALS}, "last": float(cold[-1])}
    most = 2 * len(cold)
    return {
        name: (trials_to(warm, goal) or most) / (trials_to(cold, goal) or most)
        for name, goal in goals.items()
    }


def main() -> None:
    """Search with and without old runs, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--tasks", type=int, default=8, help="how many of the public tasks")
    parser.add_argument("--to", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    tasks = public_tasks(find_measured("hpo_surrogate"))
    if not tasks:
        print("skipped: WORKBENCH_MEASURED names the folder that holds hpo_surrogate/")
        return
    shares: dict[str, list[float]] = {}
    for task, seed in itertools.product(tasks[: chosen.tasks], range(chosen.seeds)):
        others = [other for other in tasks if other is not task]
        old = random.Random(seed).sample(others, NUM_OLD_TASKS)
        cold = regrets_of(task, Ours(task.search, seed), chosen.trials)
        search = Ours(task.search, seed)
        with tempfile.TemporaryDirectory() as folder:
            for prior in priors_of(old, seed, Path(folder), search):
                search.study.add_prior(prior)
        warm = regrets_of(task, search, chosen.trials)
        for goal, share in shares_of_trials(cold, warm).items():
            shares.setdefault(goal, []).append(share)
        print(f"{task.name} seed {seed}: regret {cold[-1]:.3f} cold, {warm[-1]:.3f} warm")
    medians = {goal: median(values) for goal, values in shares.items()}
    print("median share of the trials to a regret:", medians)
    report = {"trials": chosen.trials, "median": medians, "shares": shares}
    chosen.to.parent.mkdir(exist_ok=True)
    chosen.to.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
