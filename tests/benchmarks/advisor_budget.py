"""Which batch reaches a target first when full runs are few.

Following our advice beside the rivals.

Run `python -m tests.benchmarks advisor_budget`. For every target in the folder of measurements that
most seeds of some batch reach: an epoch of every batch is known, and up to three full runs may be
made, each with a seed drawn at random. The regret is the mean time to the target at the chosen
batch over that of the best, less one; a choice with which most seeds never get there counts as a
failure and not in the mean.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import numpy as np

from tests.benchmarks.store_throughput import describe_machine
from tests.builders.measured import find_measured
from tests.builders.measured_trainings import EpochsTask, read_epochs_tasks
from workbench.advisor.next_run import FullRun, advise_next_run

RESULTS = Path(__file__).parent / "results" / "advisor_budget.json"
LIMIT = 0.05
MAX_RUNS = 3


def run(task: EpochsTask, batch: int, random: np.random.Generator) -> FullRun:
    """Make a full run with a seed drawn at random."""
    seeds = task.epochs[batch]
    return FullRun(batch, seeds[int(random.integers(len(seeds)))])


def follow_ours(task: EpochsTask, random: np.random.Generator) -> int | None:
    """Make the runs that are advised, and return what is chosen then."""
    runs: list[FullRun] = []
    while (
        advice := advise_next_run(task.epoch_time_s, runs, max_runs=MAX_RUNS)
    ).next_run is not None:
        runs.append(run(task, advice.next_run, random))
    return advice.choice


def choose_most_throughput(task: EpochsTask, _random: np.random.Generator) -> int | None:
    """Return the batch with the shortest epoch."""
    return min(task.epoch_time_s, key=lambda batch: task.epoch_time_s[batch])


def probe_and_fit_line(task: EpochsTask, random: np.random.Generator) -> int | None:
    """Run the batches a third and two thirds up the list, and choose by the line of epochs through
    them.
    """
    batches = list(task.epochs)
    probes = [
        run(task, batches[round((len(batches) - 1) * part)], random) for part in (1 / 3, 2 / 3)
    ]
    reached = [(probe.global_batch, probe.epochs) for probe in probes if probe.epochs is not None]
    if len(reached) < 2:
        return reached[0][0] if reached else None
    (few, epochs_few), (many, epochs_many) = reached
    slope = max((epochs_many - epochs_few) / (many - few), 0.0)
    level = max(epochs_few - slope * few, 0.0)
    return min(batches, key=lambda batch: (level + slope * batch) * task.epoch_time_s[batch])


METHODS: dict[str, Callable[[EpochsTask, np.random.Generator], int | None]] = {
    "most throughput": choose_most_throughput,
    "two runs and a line": probe_and_fit_line,
    "ours": follow_ours,
}


def regrets(
    task: EpochsTask,
    method: Callable[[EpochsTask, np.random.Generator], int | None],
    num_draws: int,
) -> list[float]:
    """Return the regret of each draw; infinite where the choice does not reach the target."""
    times_s = task.times_to_target_s()
    best = min(times_s.values())
    chosen = [method(task, np.random.default_rng(draw)) for draw in range(num_draws)]
    return [
        math.inf if batch is None else times_s.get(batch, math.inf) / best - 1 for batch in chosen
    ]


def summarise(found: list[float]) -> dict[str, float]:
    """Return the mean of what reached the target, and the part that did not."""
    finite = [regret for regret in found if math.isfinite(regret)]
    return {
        "regret": fmean(finite) if finite else math.nan,
        "failed": 1 - len(finite) / len(found),
    }


def main() -> None:
    """Follow every method, print the table, write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=20, help="random draws of the seeds")
    num_draws = parser.parse_args().draws
    folder = find_measured("batch_to_accuracy")
    if folder is None:
        print(
            "skipped: no measurements; WORKBENCH_MEASURED names the folder that holds"
            " batch_to_accuracy/"
        )
        return
    results: dict[str, dict[str, dict[str, float]]] = {}
    for name, method in METHODS.items():
        by_task: dict[str, list[float]] = defaultdict(list)
        for task in read_epochs_tasks(folder):
            scores = regrets(task, method, num_draws)
            by_task[task.name] += scores
            by_task["all targets"] += scores
            if task.is_published:
                by_task["published targets"] += scores
        results[name] = {task: summarise(summaries) for task, summaries in by_task.items()}
    tasks = [
        "published targets",
        "all targets",
        *sorted({task.name for task in read_epochs_tasks(folder)}),
    ]
    print(f"{'regret (failed)':24s}" + "".join(f"{task:>36s}" for task in tasks))
    for name, scores in results.items():
        cells = [f"{scores[task]['regret']:.3f} ({scores[task]['failed']:.0%})" for task in tasks]
        print(f"{name:24s}" + "".join(f"{cell:>36s}" for cell in cells))
    print(f"limit of ours at the published targets: {LIMIT:.2f} and no failure")
    report = {"machine": describe_machine(), "draws": num_draws, "limit": LIMIT, "results": results}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
