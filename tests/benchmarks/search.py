"""The regret of searches on public trainings: our sampler beside Optuna's, at the same number of trials.

Run `make bench-search`. Every sampler searches seven parameters of each published task through the
workbench's study, with several trials at once where it says so: they end in the order in which their
trainings would have. The regret is 0 at the best of 20,000 random configurations and 1 at their median.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tests.benchmarks.store_throughput import describe_machine
from tests.builders.measured import find_measured
from tests.builders.measured_search import SEARCH, SearchTask, read_search_tasks
from tests.builders.studies import make_experiment
from workbench.events import TrialEnded
from workbench.study import Study

RESULTS = Path(__file__).parent / "results" / "search.json"
SAMPLERS = ("auto", "gp", "tpe", "random")
MARKS = (10, 20, 50, 100)
LIMITS = {(1, 50): -0.05, (4, 50): 0.0}


def search(
    task: SearchTask, sampler: str, seed: int, num_trials: int, concurrency: int
) -> tuple[list[float], list[float]]:
    """Search one task once.

    Returns:
        The regret at each mark, and the seconds that each proposal took.
    """
    experiment = make_experiment(
        search=SEARCH, sampler=sampler, objectives=[{"metric": "loss", "goal": "maximize"}], seed=seed
    )
    study = Study(experiment)
    running: list[tuple[float, int, float]] = []
    now_s, accuracies, ask_s = 0.0, list[float](), list[float]()
    while len(accuracies) < num_trials:
        while len(running) < concurrency and len(ask_s) < num_trials:
            began = time.perf_counter()
            proposal = study.ask()
            ask_s.append(time.perf_counter() - began)
            assert proposal is not None
            params: dict[str, Any] = proposal.params
            accuracy, seconds = task.curves(np.array([[params[name] for name in SEARCH]]))
            heapq.heappush(running, (now_s + float(seconds[0, -1]), proposal.trial, float(accuracy[0, -1])))
        now_s, trial, reached = heapq.heappop(running)
        study.tell(trial, TrialEnded(trial=trial, attempt=0, state="complete", values={"loss": reached}))
        accuracies.append(reached)
    best = np.maximum.accumulate(accuracies)
    return [task.regret(best[mark - 1]) for mark in MARKS if mark <= num_trials], ask_s


def interval(regrets: np.ndarray, random: np.random.Generator) -> tuple[float, float]:
    """Return the 90 % interval of the mean over tasks when other seeds are drawn; shape [tasks, seeds]."""
    num_tasks, num_seeds = regrets.shape
    drawn = random.integers(0, num_seeds, (1000, num_tasks, num_seeds))
    means = regrets[np.arange(num_tasks)[None, :, None], drawn].mean((1, 2))
    return float(np.quantile(means, 0.05)), float(np.quantile(means, 0.95))


def compare(
    tasks: list[SearchTask], samplers: list[str], num_seeds: int, num_trials: int, concurrency: int
) -> dict[str, dict[str, Any]]:
    """Search every task with every sampler, seed after seed, and print a table."""
    regrets: dict[str, list[list[list[float]]]] = {sampler: [] for sampler in samplers}
    ask_s: dict[str, list[float]] = {sampler: [] for sampler in samplers}
    for task in tasks:
        rows: dict[str, list[list[float]]] = {sampler: [] for sampler in samplers}
        for seed, sampler in itertools.product(range(num_seeds), samplers):
            found, took_s = search(task, sampler, seed, num_trials, concurrency)
            rows[sampler].append(found)
            ask_s[sampler] += took_s
        for sampler in samplers:
            regrets[sampler].append(rows[sampler])
    marks = [mark for mark in MARKS if mark <= num_trials]
    print(f"\n{concurrency} at once: mean regret after {', '.join(map(str, marks))} trials")
    last = np.stack([np.array(regrets[sampler])[:, :, -1] for sampler in samplers])
    ranks = 1 + (last[:, None] > last[None]).sum(1) + 0.5 * ((last[:, None] == last[None]).sum(1) - 1)
    results: dict[str, dict[str, Any]] = {}
    for index, sampler in enumerate(samplers):
        means = np.array(regrets[sampler]).mean((0, 1)).tolist()
        low, high = interval(last[index], np.random.default_rng(0))
        rank, ask_ms = float(ranks[index].mean()), 1e3 * median(ask_s[sampler])
        cells = "".join(f"{mean:8.3f}" for mean in means)
        print(f"{sampler:8s}{cells} [{low:.3f}, {high:.3f}]  rank {rank:.2f}, {ask_ms:.1f} ms a proposal")
        results[sampler] = {
            "regret": dict(zip(map(str, marks), means, strict=True)), "interval": [low, high], "rank": rank,
            "ask_ms": ask_ms,
        }  # fmt: skip
    if (limit := LIMITS.get((concurrency, num_trials))) is not None:
        print(f"limit of auto: {limit}")
    return results


def main() -> None:
    """Search with every sampler, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--samplers", nargs="+", default=["auto", "gp", "tpe", "random"])
    chosen = parser.parse_args()
    folder = find_measured("hpo_surrogate")
    if folder is None:
        print("skipped: no measurements; WORKBENCH_MEASURED names the folder that holds hpo_surrogate/")
        return
    tasks = read_search_tasks(folder)
    results = {
        str(concurrency): compare(tasks, chosen.samplers, chosen.seeds, chosen.trials, concurrency)
        for concurrency in chosen.concurrency
    }
    report = {
        "machine": describe_machine(), "tasks": len(tasks), "seeds": chosen.seeds, "trials": chosen.trials,
        "results_by_concurrency": results,
    }  # fmt: skip
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
