"""How well steps of plans nobody ran are predicted.

Our model beside the published one and the nearest row.

Run `python -m tests.benchmarks advisor_step_time` (or with `--draws N`). Every application in the
folder of measurements is split in three ways, several times at random; all methods see the same
rows. An error is
|predicted - measured| / measured, averaged over the rows that were not seen, the draws, and the
applications. The coverage is how many of these rows lie within our interval for nine of ten. "Times
only" is ours without `gpus_per_node` and `sync_time_s`. Of 12 rows, which are quickly fitted, four
times as many are drawn.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from tests.benchmarks.store_throughput import describe_machine
from tests.builders.measured import PlacedStep, find_measured, read_placements
from workbench.hardware.performance.goodput import PolluxLaw
from workbench.hardware.performance.step_time import Measurement, Point, fit
from workbench.hardware.performance.topology import Topology

RESULTS = Path(__file__).parent / "results" / "advisor_step_time.json"
FEW = "12 rows of 4 placements"
LIMITS = {"a fifth of the rows": 0.08, FEW: 0.12, "two nodes to more": 0.09}
COVERAGE = (0.80, 0.95)
NUM_FEW_BATCHES = 3
Rows = list[PlacedStep]
Predict = Callable[[Rows, Rows], np.ndarray]


def main() -> None:
    """Split, predict, print the tables, write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=6, help="random draws of each split")
    num_draws = parser.parse_args().draws
    folder = find_measured("step_time")
    if folder is None:
        print("skipped: no measurements; WORKBENCH_MEASURED names the folder that holds step_time/")
        return
    applications = {
        place.name: read_placements(place)
        for place in sorted(folder.iterdir())
        if (place / "placements.csv").exists()
    }
    results = {
        split: {name: measure(rows, split, num_draws) for name, rows in applications.items()}
        for split in LIMITS
    }
    means = {split: mean_of(list(result.values())) for split, result in results.items()}
    for split, scores in results.items():
        print_table(split, scores, means[split])
    report = {
        "machine": describe_machine(),
        "draws": num_draws,
        "limits": LIMITS,
        "coverage": COVERAGE,
        "results": results,
        "means": means,
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(report, indent=2) + "\n")


def measure(rows: Rows, split: str, num_draws: int) -> dict[str, float]:
    """Return the mean errors of all methods on one application, our coverage and the seconds of our
    fit.
    """
    scores = []
    for draw in range(num_draws * (4 if split == FEW else 1)):
        seen, unseen = SPLITS[split](rows, np.random.default_rng(draw))
        truth = np.array([row.step_time_s for row in unseen])
        started_s = time.perf_counter()
        ours = predict_with_ours(seen, unseen)
        fit_s = time.perf_counter() - started_s
        scores.append(
            {
                "ours": error_of(ours[:, 0], truth),
                "ours, times only": error_of(
                    predict_with_ours(seen, unseen, times_only=True)[:, 0], truth
                ),
                "published": error_of(predict_as_published(seen, unseen), truth),
                "nearest row": error_of(predict_by_nearest(seen, unseen), truth),
                "coverage": float(np.mean((ours[:, 1] <= truth) & (truth <= ours[:, 2]))),
                "extrapolated": float(np.mean(ours[:, 3])),
                "fit_s": fit_s,
                "seen": float(len(seen)),
            }
        )
    return mean_of(scores)


def error_of(predicted: np.ndarray, truth: np.ndarray) -> float:
    """Return the mean absolute error relative to the truth."""
    return float(np.mean(np.abs(predicted - truth) / truth))


def mean_of(found: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the mean of each number."""
    return {name: float(np.mean([score[name] for score in found])) for name in found[0]}


def draw_a_fifth(rows: Rows, random: np.random.Generator) -> tuple[Rows, Rows]:
    """See a fifth of all rows."""
    return _divide(rows, {int(index) for index in random.permutation(len(rows))[: len(rows) // 5]})


def draw_few(rows: Rows, random: np.random.Generator) -> tuple[Rows, Rows]:
    """See one GPU, some of a node, two nodes and more nodes, each at the same three batches."""
    placements = sorted({row.gpus_per_node for row in rows})
    sides: list[Callable[[tuple[int, ...]], bool]] = [
        lambda gpus: sum(gpus) == 1,
        lambda gpus: len(gpus) == 1 and sum(gpus) > 1,
        lambda gpus: len(gpus) == 2,
        lambda gpus: len(gpus) > 2,
    ]
    chosen = [_any_of([gpus for gpus in placements if side(gpus)], random) for side in sides]
    batches = set.intersection(
        *({row.micro_batch for row in rows if row.gpus_per_node == gpus} for gpus in chosen)
    )
    few = set(random.permutation(sorted(batches))[:NUM_FEW_BATCHES].tolist())
    seen = {
        i for i, row in enumerate(rows) if row.gpus_per_node in chosen and row.micro_batch in few
    }
    return _divide(rows, seen)


def draw_two_nodes(rows: Rows, random: np.random.Generator) -> tuple[Rows, Rows]:
    """See half of the rows on at most two nodes, and predict those on more."""
    near = [row for row in rows if len(row.gpus_per_node) <= 2]
    seen = [near[index] for index in random.permutation(len(near))[: len(near) // 2]]
    return seen, [row for row in rows if len(row.gpus_per_node) > 2]


SPLITS = dict(zip(LIMITS, (draw_a_fifth, draw_few, draw_two_nodes), strict=True))


def _any_of(placements: list[tuple[int, ...]], random: np.random.Generator) -> tuple[int, ...]:
    return placements[random.integers(len(placements))]


def _divide(rows: Rows, seen: set[int]) -> tuple[Rows, Rows]:
    return [rows[i] for i in sorted(seen)], [row for i, row in enumerate(rows) if i not in seen]


def predict_with_ours(seen: Rows, unseen: Rows, *, times_only: bool = False) -> np.ndarray:
    """Return step time, low, high and whether it is extrapolated, [rows, 4]."""

    def topology(row: PlacedStep) -> Topology:
        per_node = None if times_only else row.gpus_per_node
        return Topology.of(len(row.gpus_per_node), sum(row.gpus_per_node), per_node)

    model = fit(
        [
            Measurement(
                topology(row),
                row.micro_batch,
                row.step_time_s,
                None if times_only else row.sync_time_s,
            )
            for row in seen
        ]
    )
    return np.array(model.predict([Point(topology(row), row.micro_batch) for row in unseen]), float)


def predict_as_published(seen: Rows, unseen: Rows) -> np.ndarray:
    """Fit the seven parameters to logarithms of times, from several starts, with the published
    penalties.
    """
    nodes, gpus, batch = _columns(seen)
    log_times = np.log([row.step_time_s for row in seen])

    def loss(logs: np.ndarray) -> float:
        law = PolluxLaw(*np.exp(logs))
        left = np.log(law.step_s(nodes, gpus, batch)) - log_times
        slopes = (law.network_s_per_gpu / law.network_s) ** 2 + (
            law.node_s_per_gpu / law.node_s
        ) ** 2
        return float(np.sqrt(np.mean(left**2)) + 1e-3 * (law.overlap - 1.0) ** 2 + 1e-2 * slopes)

    middle_s, random = float(np.exp(np.median(log_times))), np.random.default_rng(0)
    usual = np.array([0.3, 0.3 / float(np.median(batch)), 0.1, 0.01, 0.5, 0.05]) * middle_s
    limits = [(-18.0, 6.0)] * 6 + [(0.0, float(np.log(10.0)))]
    starts = [
        np.append(np.log(usual) + random.normal(0.0, 0.8, 6) * (start > 0), 0.4)
        for start in range(6)
    ]
    fits = [minimize(loss, start, method="L-BFGS-B", bounds=limits) for start in starts]
    best = PolluxLaw(*np.exp(min(fits, key=lambda result: result.fun).x))
    return best.step_s(*_columns(unseen))


def predict_by_nearest(seen: Rows, unseen: Rows) -> np.ndarray:
    """Return the time of the row that is nearest in nodes, GPUs and batch, all in doublings."""
    known, asked = (np.log2(np.array(_columns(rows))) for rows in (seen, unseen))
    nearest = np.argmin(np.sum((asked[:, :, None] - known[:, None, :]) ** 2, axis=0), axis=1)
    return np.array([seen[index].step_time_s for index in nearest])


def _columns(rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return (
        np.array([len(row.gpus_per_node) for row in rows], float),
        np.array([sum(row.gpus_per_node) for row in rows], float),
        np.array([row.micro_batch for row in rows], float),
    )


def print_table(split: str, found: dict[str, dict[str, float]], mean: dict[str, float]) -> None:
    """Print the errors of one split, an application a line."""
    methods = ("ours", "ours, times only", "published", "nearest row")
    print(
        f"\n{split}: at most {LIMITS[split]:.0%}, coverage {COVERAGE[0]:.0%} to {COVERAGE[1]:.0%}"
    )
    print(f"{'':<14}" + "".join(f"{name:>18}" for name in (*methods, "coverage", "fit")))
    for name, numbers in (*found.items(), ("mean", mean)):
        errors = "".join(f"{numbers[method]:>18.1%}" for method in methods)
        print(f"{name:<14}{errors}{numbers['coverage']:>18.1%}{numbers['fit_s']:>16.2f} s")


if __name__ == "__main__":
    main()
