"""The regret of searches on public trainings and classic functions.

Ours beside five others, in one run.

Run `make bench WHAT=search`. Trainings are played by a clock: several at once end in the order in
which they would have. `trials` compares the best complete training after 20, 50 and 100 of them.
`seconds` compares the best value that any training has reported after a share of the
training-seconds that 20 random trainings take; there, trials may stop early. The regret is 0 at the
best of 20,000 random configurations and 1 at their median. What a search takes for its proposals is
printed, and not counted as training.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tests.benchmarks.search_rivals import Asked, Dehb, OptunaSearch, Ours, RaySearch, Search, Smac
from tests.benchmarks.search_tasks import Task, classic_tasks, public_tasks
from tests.benchmarks.store_throughput import describe_machine
from tests.builders.measured import find_measured
from tests.builders.measured_search import EPOCHS
from workbench.experiment import Space

RESULTS = Path(__file__).parent / "results" / "search.json"
MARKS = (10, 20, 50, 100)
SHARES = (0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
NUM_TRAININGS = 20
"""The training-seconds of this many random trainings are the budget of `seconds`."""
LIMITS = {(1, 50): -0.05, (4, 50): 0.0}
RIVAL = "optuna tpe + asha"
ENDLESS_TIME = {"time": 1e9}
"""Its trials count what they cost, which they do not where their number is the limit."""

Make = Callable[[Mapping[str, Any], int, int], Search]
"""Makes a search of a space, a seed and the number of trials that it will have."""

METHODS: dict[str, Make] = {
    "auto": lambda search, seed, num: Ours(search, seed),
    "auto + curves": lambda search, seed, num: Ours(search, seed, pruner="curves"),
    "auto by cost": lambda search, seed, num: Ours(search, seed, budget=ENDLESS_TIME),
    "auto by cost + curves": lambda search, seed, num: Ours(
        search, seed, pruner="curves", budget=ENDLESS_TIME
    ),
    "optuna tpe": lambda search, seed, num: OptunaSearch(search, seed, sampler="tpe"),
    "optuna gp": lambda search, seed, num: OptunaSearch(search, seed, sampler="gp"),
    "optuna autosampler": lambda search, seed, num: OptunaSearch(search, seed, sampler="auto"),
    "random": lambda search, seed, num: OptunaSearch(search, seed, sampler="random"),
    RIVAL: lambda search, seed, num: OptunaSearch(search, seed, sampler="tpe", asha=True),
    "ray optuna + asha": lambda search, seed, num: RaySearch(search, seed, num_epochs=EPOCHS),
    "smac3": lambda search, seed, num: Smac(search, seed, num_trials=num),
    "dehb": lambda search, seed, num: Dehb(search, seed, num_epochs=EPOCHS),
}
BY_TRIALS = (
    "auto",
    "auto + curves",
    "optuna tpe",
    "optuna gp",
    "optuna autosampler",
    "smac3",
    "random",
)
BY_SECONDS = (
    "auto",
    "auto by cost",
    "auto + curves",
    "auto by cost + curves",
    RIVAL,
    "ray optuna + asha",
    "dehb",
    "random",
)
SLOW = ("optuna gp", "optuna autosampler", "smac3")
"""Half a second a proposal, or more: compared one after another only, unless they are named."""


@dataclass
class Played:
    """What a search has found, by the clock."""

    ends: list[tuple[float, float]] = field(default_factory=list)
    """Pairs of seconds and value of the complete trainings.

    A shorter one has the value minus infinity.
    """
    reports: list[tuple[float, float]] = field(default_factory=list)
    """Pairs of seconds and value of all reports; without early stopping those of the ends."""
    epochs: int = 0
    ask_s: list[float] = field(default_factory=list)

    def best_end(self, num: int) -> float:
        """Return the best value of the first trainings that ended."""
        return max(value for _, value in self.ends[:num])

    def best_by(self, seconds: float) -> float:
        """Return the best value that was reported by then; minus infinity if nothing was."""
        return max((value for at, value in self.reports if at <= seconds), default=-np.inf)


@dataclass
class _Running:
    asked: Asked
    began_s: float
    values: np.ndarray
    seconds: np.ndarray
    is_short: bool
    epoch: int = 0


def play(
    task: Task,
    search: Search,
    concurrency: int,
    *,
    num_trials: int | None = None,
    wall_s: float = np.inf,
) -> Played:
    """Search until a number of trainings have ended, or for some time.

    Args:
        task: What is tuned.
        search: The search, new.
        concurrency: Trainings at once.
        num_trials: How many trainings; None for no limit.
        wall_s: For how long, by the clock.
    """
    played, running, queue = Played(), dict[int, _Running](), list[tuple[float, int]]()
    num_begun, now_s = 0, 0.0
    while now_s < wall_s and (num_trials is None or len(played.ends) < num_trials):
        while len(running) < concurrency and (num_trials is None or num_begun < num_trials):
            began = time.perf_counter()
            asked = search.ask()
            played.ask_s.append(time.perf_counter() - began)
            values, seconds = task.train(asked.params)
            num = len(values) if asked.epochs is None else min(asked.epochs, len(values))
            running[num_begun] = _Running(
                asked, now_s, values[:num], seconds[:num], num < len(values)
            )
            heapq.heappush(queue, (now_s + float(seconds[0]), num_begun))
            num_begun += 1
        now_s, number = heapq.heappop(queue)
        run = running[number]
        run.epoch += 1
        played.epochs += 1
        value, is_last = float(run.values[run.epoch - 1]), run.epoch == len(run.values)
        played.reports.append((now_s, value))
        stopped = search.report(run.asked, run.epoch, value, now_s - run.began_s) and not is_last
        if is_last or stopped:
            search.tell(run.asked, run.epoch, value, stopped=stopped, seconds=now_s - run.began_s)
            played.ends.append((now_s, -np.inf if stopped or run.is_short else value))
            del running[number]
        else:
            heapq.heappush(queue, (run.began_s + float(run.seconds[run.epoch]), number))
    return played


def full_seconds(task: Task) -> float:
    """Return the median seconds of random trainings."""
    space, rng = Space(task.search), random.Random(0)
    return median(float(task.train(space.sample(rng))[1][-1]) for _ in range(100))


def available(methods: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the methods that are installed, and why the others are not."""
    installed, missing = list[str](), dict[str, str]()
    for name in methods:
        try:
            METHODS[name]({"x": {"low": 0.0, "high": 1.0}}, 0, 10)
            installed.append(name)
        except ImportError as error:
            missing[name] = str(error)
            print(f"{name} is left out: {error}")
    return installed, missing


def bootstrap(cells: np.ndarray) -> tuple[float, float]:
    """Return the 90 % interval of a mean over tasks and seeds, shape [tasks, seeds], when both are
    drawn.
    """
    rng = np.random.default_rng(0)
    tasks = rng.integers(0, len(cells), (1000, len(cells), 1))
    seeds = rng.integers(0, cells.shape[1], (1000, len(cells), cells.shape[1]))
    means = cells[tasks, seeds].mean((1, 2))
    return float(np.quantile(means, 0.05)), float(np.quantile(means, 0.95))


def ranked(regrets: Mapping[str, np.ndarray]) -> dict[str, tuple[float, float, float]]:
    """Return each method's mean rank, 1 being the best, with its 90 % interval.

    Args:
        regrets: By method, shape [tasks, seeds].
    """
    stacked = np.stack(list(regrets.values()))
    beaten_by = (stacked[:, None] > stacked[None]).sum(1)
    ranks = 1 + beaten_by + 0.5 * ((stacked[:, None] == stacked[None]).sum(1) - 1)
    return {
        name: (float(cells.mean()), *bootstrap(cells))
        for name, cells in zip(regrets, ranks, strict=True)
    }


def summary(
    regrets: Mapping[str, np.ndarray], marks: Sequence[float], ask_s: Mapping[str, list[float]]
) -> dict[str, dict[str, Any]]:
    """Print a table of regrets and ranks and return it.

    Args:
        regrets: By method, shape [tasks, seeds, marks].
        marks: The budgets.
        ask_s: By method, the seconds of each proposal.
    """
    places = [
        ranked({name: cells[:, :, at] for name, cells in regrets.items()})
        for at in range(len(marks))
    ]
    results: dict[str, dict[str, Any]] = {}
    for name, cells in regrets.items():
        means = cells.mean((0, 1)).tolist()
        low, high = bootstrap(cells[:, :, -1])
        rank = places[-1][name]
        print(
            f"{name:20s}{''.join(f'{mean:8.3f}' for mean in means)}  [{low:.3f}, {high:.3f}]  rank"
            f" {rank[0]:.2f} [{rank[1]:.2f}, {rank[2]:.2f}], {1e3 * median(ask_s[name]):.1f} ms"
            " to ask"
        )
        results[name] = {
            "regret": dict(zip(map(str, marks), means, strict=True)),
            "interval": [low, high],
            "rank": {str(mark): place[name] for mark, place in zip(marks, places, strict=True)},
            "ask_ms": 1e3 * median(ask_s[name]),
        }
    return results


def compare_by_trials(
    tasks: Sequence[Task], methods: Sequence[str], num_seeds: int, num_trials: int, concurrency: int
) -> dict[str, Any]:
    """Search every task with every method for a number of trials."""
    marks = [mark for mark in MARKS if mark <= num_trials]
    regrets = {name: np.empty((len(tasks), num_seeds, len(marks))) for name in methods}
    ask_s: dict[str, list[float]] = {name: [] for name in methods}
    epochs = dict.fromkeys(methods, 0)
    for (row, task), seed, name in itertools.product(enumerate(tasks), range(num_seeds), methods):
        played = play(
            task, METHODS[name](task.search, seed, num_trials), concurrency, num_trials=num_trials
        )
        regrets[name][row, seed] = [task.regret(played.best_end(mark)) for mark in marks]
        ask_s[name] += played.ask_s
        epochs[name] += played.epochs
    print(f"\n{concurrency} at once: mean regret after {', '.join(map(str, marks))} trials")
    results = summary(regrets, marks, ask_s)
    for name in methods:
        results[name]["epochs_share"] = epochs[name] / epochs[methods[-1]]
    if (limit := LIMITS.get((concurrency, num_trials))) is not None:
        print(f"limit of auto: {limit}")
    return results


def compare_by_seconds(
    tasks: Sequence[Task], methods: Sequence[str], num_seeds: int, concurrency: int
) -> dict[str, Any]:
    """Search every task with every method for the same training-seconds."""
    regrets = {name: np.empty((len(tasks), num_seeds, len(SHARES))) for name in methods}
    ask_s: dict[str, list[float]] = {name: [] for name in methods}
    reached: dict[str, list[float]] = {name: [] for name in methods}
    for (row, task), seed in itertools.product(enumerate(tasks), range(num_seeds)):
        wall_s = NUM_TRAININGS * full_seconds(task) / concurrency
        found: dict[str, Played] = {}
        for name in methods:
            played = play(task, METHODS[name](task.search, seed, 1000), concurrency, wall_s=wall_s)
            values = [played.best_by(share * wall_s) for share in SHARES]
            # Nothing reported counts as a median configuration.
            regrets[name][row, seed] = [
                task.regret(value) if np.isfinite(value) else 1.0 for value in values
            ]
            ask_s[name] += played.ask_s
            found[name] = played
        if RIVAL in found:
            goal = found[RIVAL].best_by(wall_s)
            for name, played in found.items():
                times = (at for at, value in played.reports if value >= goal and at <= wall_s)
                reached[name].append(min(times, default=np.inf) / wall_s)
    shares = ", ".join(f"{share:.0%}" for share in SHARES)
    print(f"\n{concurrency} at once: mean regret after {shares} of the training-seconds")
    results = summary(regrets, SHARES, ask_s)
    for name, times in reached.items():
        if times:
            results[name]["share_to_rival"] = median(times) if np.isfinite(median(times)) else None
            results[name]["rival_reached"] = float(np.isfinite(times).mean())
            print(
                f"{name:20s} reached the final value of {RIVAL} after {median(times):.2f} of the"
                f" seconds (median), in {np.isfinite(times).mean():.0%} of the searches"
            )
    return results


def main() -> None:
    """Search with every method, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--parts", nargs="+", default=["trials", "seconds"], choices=["trials", "seconds"]
    )
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument(
        "--trials", type=int, nargs="+", default=[50, 100], help="in the part `trials`"
    )
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument(
        "--methods", nargs="+", choices=list(METHODS), help="also slow ones, everywhere"
    )
    parser.add_argument("--public", type=int, help="how many of the public tasks; all unless given")
    parser.add_argument("--no-classic", action="store_true", help="leave the classic functions out")
    parser.add_argument("--to", type=Path, default=RESULTS, help="the file that holds the result")
    chosen = parser.parse_args()
    public = public_tasks(find_measured("hpo_surrogate"), chosen.public)
    if not public:
        print(
            "without public trainings: WORKBENCH_MEASURED names the folder that holds"
            " hpo_surrogate/"
        )
    tasks = [*public, *([] if chosen.no_classic else classic_tasks())]
    methods, missing = available(chosen.methods or list(METHODS))
    report: dict[str, Any] = {
        "machine": describe_machine(),
        "load_average": os.getloadavg()[0],
        "seeds": chosen.seeds,
        "tasks": [task.name for task in tasks],
        "left_out": missing,
        "trials": {},
        "seconds": {},
    }
    for concurrency, num_trials in itertools.product(chosen.concurrency, sorted(chosen.trials)):
        if "trials" not in chosen.parts:
            break
        is_quick = concurrency > 1 or num_trials > min(chosen.trials)
        compared = [
            name
            for name in methods
            if name in BY_TRIALS and (chosen.methods or not is_quick or name not in SLOW)
        ]
        report["trials"][f"{num_trials} trials, {concurrency} at once"] = compare_by_trials(
            tasks, compared, chosen.seeds, num_trials, concurrency
        )
    for concurrency in chosen.concurrency:
        compared = [name for name in methods if name in BY_SECONDS]
        if "seconds" in chosen.parts and public and concurrency < NUM_TRAININGS / 2:
            report["seconds"][f"{concurrency} at once"] = compare_by_seconds(
                public, compared, chosen.seeds, concurrency
            )
    report["load_average_after"] = os.getloadavg()[0]
    chosen.to.parent.mkdir(exist_ok=True)
    chosen.to.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
