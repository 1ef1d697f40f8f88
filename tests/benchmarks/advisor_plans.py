"""How well time and memory of plans are predicted that divide a model in ways, or a model, nobody
measured.

Run `python -m tests.benchmarks advisor_plans`. From the folder `parallel/` of public measurements:
steps of GPT models on one node and on many, and peak memory of Llama-like models. All goes through
the tables that `what-if step-time` and `what-if memory` read. A model's plans in two and three
dimensions are predicted from its plans in one, from few of them, and from those on fewer devices; a
model is left out and predicted from the others, and large clusters from small ones. The chosen plan
is predicted to be the fastest of those with the same devices, model and global batch. The rival is
the nearest row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from tests.benchmarks.store_throughput import describe_machine
from tests.builders.measured import find_measured
from workbench.advisor.plan_tables import read_measured_peaks, read_measured_steps
from workbench.hardware.performance.parallel_plans import ParallelPlan
from workbench.hardware.performance.parallel_step_time import MeasuredStep, predict_steps
from workbench.hardware.performance.plan_memory import MeasuredPeak, predict_memory

RESULTS = Path(__file__).parent / "results" / "advisor_plans.json"
COVERAGE = (0.80, 0.97)
GOALS = {
    "2 dimensions, same model": 0.12,
    "3 dimensions, same model": 0.16,
    "memory, model left out": 0.14,
    "memory, model and feed-forward unknown": 0.14,
}
GOAL_OF_CHOICE = 0.03
Rows = Sequence[tuple[ParallelPlan, float]]
Predict = Callable[[Rows, Sequence[ParallelPlan]], np.ndarray]


@dataclass(frozen=True)
class Score:
    """What one split came to.

    Attributes:
        num_points: Rows that were predicted.
        error: Mean absolute error relative to the truth.
        nearest_error: The same of the nearest measured row.
        coverage: The part of the rows within the interval.
        choice: How much slower the chosen plan is than the best, on average; None where there was
            no choice.
    """

    num_points: int
    error: float
    nearest_error: float
    coverage: float
    choice: float | None


def main() -> None:
    """Split, predict, print the table, write the result."""
    folder = find_measured("parallel")
    if folder is None:
        print("skipped: no measurements; WORKBENCH_MEASURED names the folder that holds parallel/")
        return
    scores = {name: score(split, predict) for name, (split, predict) in splits_of(folder).items()}
    print(
        f"{'':<44}{'points':>8}{'error':>8}{'goal':>7}{'nearest':>9}{'coverage':>10}{'choice':>8}"
    )
    for name, scored in scores.items():
        goal = f"{GOALS[name]:.0%}" if name in GOALS else ""
        choice = "" if scored.choice is None else f"{scored.choice:.1%}"
        print(
            f"{name:<44}{scored.num_points:>8}{scored.error:>8.1%}{goal:>7}{scored.nearest_error:>9.0%}"
            f"{scored.coverage:>10.1%}{choice:>8}"
        )
    print(
        f"goals: coverage {COVERAGE[0]:.0%} to {COVERAGE[1]:.0%}, choice at most"
        f" {GOAL_OF_CHOICE:.0%} slower"
    )
    report = {
        "machine": describe_machine(),
        "goals": GOALS,
        "coverage": COVERAGE,
        "choice": GOAL_OF_CHOICE,
        "results": {name: asdict(found) for name, found in scores.items()},
    }
    RESULTS.write_text(json.dumps(report, indent=2) + "\n")


def splits_of(folder: Path) -> dict[str, tuple[list[tuple[Rows, Rows]], Predict]]:
    """Return seen and unseen rows by name, several times where models or parts take turns."""
    one = [
        (measured_step.plan, measured_step.step_time_s)
        for measured_step in read_measured_steps(folder / "one_node.csv")
    ]
    many = [
        (measured_step.plan, measured_step.step_time_s)
        for measured_step in read_measured_steps(folder / "many_nodes.csv")
    ]
    peaks = [
        (measured_peak.plan, measured_peak.memory_gb)
        for measured_peak in read_measured_peaks(folder / "memory.csv")
    ]
    one_way = [row for row in one if ways_of(row[0]) == 1]
    several = [row for row in one if ways_of(row[0]) > 1]
    splits: dict[str, tuple[list[tuple[Rows, Rows]], Predict]] = {
        f"{ways} dimensions, same model": (
            [
                (
                    model,
                    [row for row in several if row[0].shape == name and ways_of(row[0]) == ways],
                )
                for name, model in models_in(one_way).items()
            ],
            predict_times,
        )
        for ways in (2, 3)
    }
    splits["all plans, same model"] = (
        [
            (model, [row for row in one if row[0].shape == name])
            for name, model in models_in(one_way).items()
        ],
        predict_times,
    )
    for ways in (2, 3):
        splits[f"{ways} dimensions, 12 plans seen"] = (
            [
                (few, [row for row in several if row[0].shape == name and ways_of(row[0]) == ways])
                for turn in range(3)
                for name, model in models_in(one_way).items()
                for few in [some_of(model, 12, turn)]
            ],
            predict_times,
        )
        splits[f"{ways} dimensions, from fewer GPUs"] = (
            [
                (
                    [row for row in model if row[0].num_workers < 4],
                    [row for row in several if row[0].shape == name and ways_of(row[0]) == ways],
                )
                for name, model in models_in(one_way).items()
            ],
            predict_times,
        )
    splits["one node, model left out"] = (leave_models_out(one_way, one), predict_times)
    splits["many nodes, model left out"] = (leave_models_out(many, many), predict_times)
    splits["many nodes, with one node"] = (
        [([*one, *seen], unseen) for seen, unseen in leave_models_out(many, many)],
        predict_times,
    )
    splits["many nodes, 6 plans and one node seen"] = (
        [
            ([*one, *some_of(model, 6, turn)], model)
            for turn in range(3)
            for model in models_in(many).values()
        ],
        predict_times,
    )
    splits["many nodes, a fifth left out"] = (
        [
            ([row for at, row in enumerate(many) if at % 5 != turn], many[turn::5])
            for turn in range(5)
        ],
        predict_times,
    )
    splits["memory, model left out"] = (leave_models_out(peaks, peaks), predict_peaks)
    splits["memory, model left out, 50 rows seen"] = (
        [
            (some_of(seen, 50, turn), unseen)
            for turn in range(3)
            for seen, unseen in leave_models_out(peaks, peaks)
        ],
        predict_peaks,
    )
    splits["memory, model and feed-forward unknown"] = (
        leave_models_out(*[[(without_width(plan), peak) for plan, peak in peaks]] * 2),
        predict_peaks,
    )
    splits["memory, from 4 nodes to more"] = (
        [([row for row in peaks if row[0].nodes <= 4], [row for row in peaks if row[0].nodes > 4])],
        predict_peaks,
    )
    splits["memory, from 16 nodes to more"] = (
        [
            (
                [row for row in peaks if row[0].nodes <= 16],
                [row for row in peaks if row[0].nodes > 16],
            )
        ],
        predict_peaks,
    )
    splits["memory, a twelfth of the rows"] = (
        [
            (peaks[turn::12], [row for at, row in enumerate(peaks) if at % 12 != turn])
            for turn in range(3)
        ],
        predict_peaks,
    )
    return splits


def models_in(rows: Rows) -> dict[object, list[tuple[ParallelPlan, float]]]:
    """Group rows by model."""
    steps: dict[object, list[tuple[ParallelPlan, float]]] = {}
    for row in rows:
        steps.setdefault(row[0].shape, []).append(row)
    return steps


def leave_models_out(seen: Rows, unseen: Rows) -> list[tuple[Rows, Rows]]:
    """See the rows of all models but one, and predict that one, each in turn."""
    return [
        ([row for row in seen if row[0].shape != name], model)
        for name, model in models_in(unseen).items()
    ]


def without_width(plan: ParallelPlan) -> ParallelPlan:
    """Return a plan for which nobody states how wide the feed-forward part is."""
    return replace(plan, shape=replace(plan.shape, feed_forward=None))


def some_of(rows: Rows, most: int, turn: int) -> Rows:
    """Draw some of the rows, others each turn."""
    return [rows[index] for index in np.random.default_rng(turn).permutation(len(rows))[:most]]


def ways_of(plan: ParallelPlan) -> int:
    """Count the dimensions in which a plan divides."""
    return sum(size > 1 for size in (plan.replicas, plan.stages, plan.tensor))


def predict_times(seen: Rows, plans: Sequence[ParallelPlan]) -> np.ndarray:
    """Return seconds, low and high, [plans, 3]."""
    steps = predict_steps([MeasuredStep(*row) for row in seen], plans)
    return np.array([each[:3] for each in steps])


def predict_peaks(seen: Rows, plans: Sequence[ParallelPlan]) -> np.ndarray:
    """Return GB, low and high, [plans, 3]."""
    memory = predict_memory([MeasuredPeak(*row) for row in seen], plans)
    return np.array([each[:3] for each in memory])


def score(splits: Sequence[tuple[Rows, Rows]], predict: Predict) -> Score:
    """Return the score over all rows of all turns."""
    predicted, nearest, truth, choices = [], [], [], []
    for seen, unseen in splits:
        plans = [plan for plan, _ in unseen]
        found, times = predict(seen, plans), np.array([value for _, value in unseen])
        predicted.append(found)
        nearest.append(predict_by_nearest(seen, plans))
        truth.append(times)
        choices += choices_of(plans, found[:, 0], times) if predict is predict_times else []
    all_predicted, all_truth = np.concatenate(predicted), np.concatenate(truth)
    inside = (all_predicted[:, 1] <= all_truth) & (all_truth <= all_predicted[:, 2])
    return Score(
        len(all_truth),
        float(np.mean(np.abs(all_predicted[:, 0] / all_truth - 1.0))),
        float(np.mean(np.abs(np.concatenate(nearest) / all_truth - 1.0))),
        float(np.mean(inside)),
        float(np.mean(choices)) if choices else None,
    )


def predict_by_nearest(seen: Rows, plans: Sequence[ParallelPlan]) -> np.ndarray:
    """Return what was measured for the nearest plan, all numbers in doublings."""
    known, wanted = _doublings([plan for plan, _ in seen]), _doublings(plans)
    nearest = np.argmin(np.sum((wanted[:, None] - known[None]) ** 2, axis=2), axis=1)
    return np.array([seen[index][1] for index in nearest])


def _doublings(plans: Sequence[ParallelPlan]) -> np.ndarray:
    rows = [
        (
            plan.replicas,
            plan.stages,
            plan.tensor,
            plan.micro_batch,
            plan.accumulation,
            1 + plan.zero,
            plan.shape.hidden or 1,
            plan.shape.layers or 1,
        )
        for plan in plans
    ]
    return np.log2(np.array(rows, float))


def choices_of(
    plans: Sequence[ParallelPlan], predicted: np.ndarray, truth: np.ndarray
) -> list[float]:
    """Return how much slower the plan is that looked fastest, wherever several do the same work."""
    alike: dict[object, list[int]] = {}
    for index, plan in enumerate(plans):
        batch = plan.micro_batch * plan.accumulation * plan.replicas
        alike.setdefault((plan.shape, plan.num_workers, batch), []).append(index)
    return [
        float(truth[rows][np.argmin(predicted[rows])] / np.min(truth[rows]) - 1.0)
        for rows in alike.values()
        if len(rows) > 1
    ]


if __name__ == "__main__":
    main()
