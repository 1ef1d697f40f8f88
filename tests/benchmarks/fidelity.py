"""When searches at several fidelities have a full training as good as that of a search at the full
one alone.

Run `make bench WHAT=search`. The trainings are the public ones of `search`. Only full trainings
count: printed is the regret of the best one after shares of the seconds that 20 random trainings
take, and after which share a method had one as good as the best that `auto` found with full
trainings in all of these seconds. `levels` trains each configuration anew at each level of
`fidelity: {epochs: [6, 52]}`, as functions and programs do; with the others, trainings go on, as
those of models do.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tests.benchmarks.search import SHARES, Make, Played, bootstrap, full_seconds, play
from tests.benchmarks.search_rivals import Ours
from tests.benchmarks.search_tasks import public_tasks
from tests.benchmarks.store_throughput import describe_machine
from tests.builders.measured import find_measured
from tests.builders.measured_search import EPOCHS

LOWEST = 6
RESULTS = Path(__file__).parent / "results" / "fidelity.json"
FULL = "auto"
METHODS: dict[str, Make] = {
    FULL: lambda search, seed, num: Ours(search, seed),
    "auto + curves": lambda search, seed, num: Ours(search, seed, pruner="curves"),
    "auto + asha": lambda search, seed, num: Ours(search, seed, pruner="asha"),
    "auto, levels": lambda search, seed, num: Ours(
        search, seed, fidelity={"epochs": [LOWEST, EPOCHS]}
    ),
    "random, levels": lambda search, seed, num: Ours(
        search, seed, sampler="random", fidelity={"epochs": [LOWEST, EPOCHS]}
    ),
}


def best_full(played: Played, seconds: float) -> float:
    """Return the best value of a full training by then; minus infinity if there is none."""
    return max((value for at, value in played.ends if at <= seconds), default=-np.inf)


def main() -> None:
    """Search with every method, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--trainings", type=int, default=20, help="full trainings whose seconds are spent"
    )
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--public", type=int, help="how many of the public tasks; all unless given")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--to", type=Path, default=RESULTS, help="the file that holds the result")
    chosen = parser.parse_args()
    tasks = public_tasks(find_measured("hpo_surrogate"), chosen.public)
    if not tasks:
        print(
            "skipped: no trainings; WORKBENCH_MEASURED names the folder that holds hpo_surrogate/"
        )
        return
    methods = [FULL, *(name for name in chosen.methods if name != FULL)]
    regrets = {name: np.empty((len(tasks), chosen.seeds, len(SHARES))) for name in methods}
    reached: dict[str, list[float]] = {name: [] for name in methods}
    load = os.getloadavg()[0]
    for (row, task), seed in itertools.product(enumerate(tasks), range(chosen.seeds)):
        wall_s = chosen.trainings * full_seconds(task) / chosen.concurrency
        goal = -np.inf
        for name in methods:
            played = play(
                task, METHODS[name](task.search, seed, 1000), chosen.concurrency, wall_s=wall_s
            )
            values = [best_full(played, share * wall_s) for share in SHARES]
            # No full training counts as a median configuration.
            regrets[name][row, seed] = [
                task.regret(loss) if np.isfinite(loss) else 1.0 for loss in values
            ]
            goal = values[-1] if name == FULL else goal
            times = (at for at, value in played.ends if value >= goal and at <= wall_s)
            reached[name].append(min(times, default=np.inf) / wall_s)
    print(f"\nmean regret of full trainings after {', '.join(f'{share:.0%}' for share in SHARES)}")
    results: dict[str, Any] = {}
    for name, cells in regrets.items():
        means, shares = cells.mean((0, 1)).tolist(), reached[name]
        low, high = bootstrap(cells[:, :, -1])
        share, hits = median(shares), float(np.isfinite(shares).mean())
        print(
            f"{name:16s}{''.join(f'{mean:8.3f}' for mean in means)}  [{low:.3f}, {high:.3f}], as"
            f" good as {FULL} after {share:.2f} of the seconds (median), in {hits:.0%} of the"
            " searches"
        )
        results[name] = {
            "regret": dict(zip(map(str, SHARES), means, strict=True)),
            "interval": [low, high],
            "share_to_full": share if np.isfinite(share) else None,
            "reached": hits,
        }
    report = {
        "machine": describe_machine(),
        "load_average": load,
        "load_average_after": os.getloadavg()[0],
        "tasks": len(tasks),
        "seeds": chosen.seeds,
        "trainings": chosen.trainings,
        "concurrency": chosen.concurrency,
        "results_by_method": results,
    }
    chosen.to.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
