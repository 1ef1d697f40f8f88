"""Which batch reaches an accuracy first.

Our choice beside the largest, most throughput, most goodput.

Run `python -m tests.benchmarks advisor_batch`. For every application in the folder of measurements,
on several placements of GPUs: step times are predicted from a fifth of the measured rows, and noise
is that of the first fifth, or of the middle, of a training at one batch, each batch in turn. The
regret is the true time of the chosen batch over that of the best, less one, where the true time is
measured steps to the same metric times measured seconds per step. It is averaged over batches,
placements and applications. The last column is the worst of all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

import numpy as np

from tests.benchmarks.store_throughput import describe_machine
from tests.builders.measured import PlacedStep, find_measured, read_placements
from tests.builders.measured_trainings import (
    TrainingCurve,
    measured_step_s,
    read_curves,
    steps_to_accuracy,
)
from workbench.advisor.batch_choice import BatchPlan, SeenNoise, rank_batches
from workbench.hardware.performance.goodput import efficiency
from workbench.hardware.performance.step_time import Measurement, Point, StepTimeModel, fit
from workbench.hardware.performance.topology import Topology

RESULTS = Path(__file__).parent / "results" / "advisor_batch.json"
LIMITS = {"ours, first fifth": 0.20, "ours, middle": 0.06}
WORST_LIMITS = {"ours, first fifth": 0.30, "ours, middle": 0.30}
PLACEMENTS = ("1", "2", "4", "11", "22", "44", "111", "444", "1111", "2222", "4444")
# The part of a training from which noise is seen: its first row, its first fifth, its middle fifth.
FIRST, FIRST_FIFTH, MIDDLE = (0.0, 0.0), (0.0, 0.2), (0.4, 0.6)
Part = tuple[float, float]


class Case:
    """One application on one placement: what is true, and what may be seen of it."""

    def __init__(
        self, curves: Mapping[int, TrainingCurve], rows: Sequence[PlacedStep], model: StepTimeModel
    ) -> None:
        """Work out the true times of the batches that the placement was measured at."""
        self.curves = curves
        self.reference_batch = min(curves)
        self.num_gpus = sum(rows[0].gpus_per_node)
        self.max_micro_batch = max(row.micro_batch for row in rows)
        self._topology = Topology(tuple(sorted(rows[0].gpus_per_node)))
        self._model = model
        self._known_s: dict[BatchPlan, float] = {}
        steps = steps_to_accuracy(curves)
        steps_s = {batch: measured_step_s(rows, batch) for batch in curves}
        self.true_times_s = {
            batch: steps[batch] * step_s for batch, step_s in steps_s.items() if step_s is not None
        }

    def regret(self, batch: int) -> float:
        """Return how much longer a training at a batch takes than at the best."""
        return self.true_times_s[batch] / min(self.true_times_s.values()) - 1

    def step_times(self, plans: Sequence[BatchPlan]) -> list[float]:
        """Predict seconds per step, each plan once."""
        new = [plan for plan in plans if plan not in self._known_s]
        points = [Point(self._topology, plan.micro_batch, plan.accumulation) for plan in new]
        predicted = self._model.predict(points)
        self._known_s |= {plan: step.step_time_s for plan, step in zip(new, predicted, strict=True)}
        return [self._known_s[plan] for plan in plans]

    def throughputs(self) -> dict[int, float]:
        """Predict samples per second by batch, with as few micro steps as fit."""
        plans: dict[int, BatchPlan] = {}
        for batch in self.true_times_s:
            accumulation = -(-batch // (self.num_gpus * self.max_micro_batch))
            plans[batch] = BatchPlan(
                self.num_gpus, -(-batch // (self.num_gpus * accumulation)), accumulation
            )
        times_s = self.step_times(list(plans.values()))
        return {batch: batch / time_s for batch, time_s in zip(plans, times_s, strict=True)}

    def seen(self, batch: int, part: Part) -> SeenNoise:
        """Return the noise that a part of the training at one batch shows."""
        curve = self.curves[batch]
        first, last = (int(len(curve.progress) * edge) for edge in part)
        rows = slice(first, max(last, first + 1))
        scales = curve.noise_scales(self.reference_batch)[rows].tolist()
        return SeenNoise(self.reference_batch, {batch: (curve.progress[rows].tolist(), scales)})


def choose_ours(case: Case, seen_at: int, part: Part) -> int:
    """Return what we would choose."""
    ranking = rank_batches(
        list(case.true_times_s),
        case.seen(seen_at, part),
        case.step_times,
        num_workers=case.num_gpus,
        max_micro_batch=case.max_micro_batch,
    )
    return ranking[0].global_batch


def choose_by_goodput(case: Case, seen_at: int, part: Part) -> int:
    """Return the batch with the most goodput if the noise stayed as it was seen, as Pollux does."""
    ((_, scales),) = case.seen(seen_at, part).scales.values()
    throughputs = case.throughputs()
    worth = {
        batch: rate * float(efficiency(batch, case.reference_batch, fmean(scales)))
        for batch, rate in throughputs.items()
    }
    return max(worth, key=lambda batch: worth[batch])


def choose_most_throughput(case: Case, _seen_at: int) -> int:
    """Return the batch with the most samples per second."""
    throughputs = case.throughputs()
    return max(throughputs, key=lambda batch: throughputs[batch])


METHODS: dict[str, Callable[[Case, int], int]] = {
    "largest": lambda case, _: max(case.true_times_s),
    "most throughput": choose_most_throughput,
    "goodput, first epoch": partial(choose_by_goodput, part=FIRST),
    "goodput, middle": partial(choose_by_goodput, part=MIDDLE),
    "ours, first epoch": partial(choose_ours, part=FIRST),
    "ours, first fifth": partial(choose_ours, part=FIRST_FIFTH),
    "ours, middle": partial(choose_ours, part=MIDDLE),
}


def read_cases(folder: Path, placements: Sequence[str] = PLACEMENTS) -> list[Case]:
    """Read one application; the model of its steps is fitted to a fifth of all rows."""
    rows = read_placements(folder)
    seen = np.random.default_rng(0).permutation(len(rows))[: len(rows) // 5]
    model = fit(
        [
            Measurement(
                Topology(tuple(sorted(row.gpus_per_node))),
                row.micro_batch,
                row.step_time_s,
                row.sync_time_s,
            )
            for row in (rows[index] for index in seen)
        ]
    )
    curves = read_curves(folder)
    by_placement = {
        placement: [row for row in rows if row.gpus_per_node == tuple(map(int, placement))]
        for placement in placements
    }
    return [Case(curves, placed, model) for placed in by_placement.values() if placed]


def regrets_of(cases: Sequence[Case], choose: Callable[[Case, int], int]) -> list[float]:
    """Return the regrets of a method, by placement and by where the noise was seen."""
    return [case.regret(choose(case, seen_at)) for case in cases for seen_at in case.curves]


def main() -> None:
    """Choose, print the table, write the result."""
    folder = find_measured("step_time")
    if folder is None:
        print("skipped: no measurements; WORKBENCH_MEASURED names the folder that holds step_time/")
        return
    applications = {
        place.name: read_cases(place) for place in sorted(folder.iterdir()) if place.is_dir()
    }
    regrets = {
        method: {name: regrets_of(cases, choose) for name, cases in applications.items()}
        for method, choose in METHODS.items()
    }
    results = {
        method: {name: fmean(values) for name, values in by_name.items()}
        for method, by_name in regrets.items()
    }
    worst = {method: max(map(max, by_name.values())) for method, by_name in regrets.items()}
    means = {method: fmean(result.values()) for method, result in results.items()}
    print(
        f"{'regret':24s}{'mean':>8s}"
        + "".join(f"{name:>12s}" for name in applications)
        + "   limit   worst   limit"
    )
    for method, scores in results.items():
        cells = "".join(f"{regret:12.3f}" for regret in scores.values())
        limit = f"{LIMITS[method]:8.2f}" if method in LIMITS else " " * 8
        worst_limit = f"{WORST_LIMITS[method]:8.2f}" if method in WORST_LIMITS else ""
        print(f"{method:24s}{means[method]:8.3f}{cells}{limit}{worst[method]:8.3f}{worst_limit}")
    report = {
        "machine": describe_machine(),
        "limits": LIMITS,
        "worst_limits": WORST_LIMITS,
        "results": results,
        "means": means,
        "worst": worst,
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
