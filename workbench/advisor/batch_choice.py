"""Which global batch reaches a given accuracy first: seconds per step times the number of steps.

The caller provides a model of step times. The number of steps follows from the gradient noise. It
is read from a training in progress, and `NoiseCourse` extrapolates it to the end.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from workbench.advisor.measurement_tables import (
    Column,
    finite_number,
    positive_number,
    positive_whole_number,
    read_table,
)
from workbench.foundation.errors import DataError, ResourcesError
from workbench.foundation.formatting import format_count
from workbench.hardware.performance.noise import NoiseCourse, scale_at_batch

# How many numbers of micro steps are compared. More than memory requires are rarely faster.
_ACCUMULATIONS = 4


@dataclass(frozen=True)
class BatchPlan:
    """How workers make one step of a global batch.

    Attributes:
        workers: The number of workers.
        micro_batch: Samples that a worker computes at once.
        accumulation: Micro steps per step.
    """

    workers: int
    micro_batch: int
    accumulation: int

    @property
    def global_batch(self) -> int:
        """Samples per step, over all workers."""
        return self.workers * self.micro_batch * self.accumulation


StepTimes = Callable[[Sequence[BatchPlan]], Sequence[float]]


@dataclass(frozen=True)
class RankedBatch:
    """A batch with its best plan.

    Attributes:
        global_batch: The requested batch. The plan may use a slightly larger one that divides
            evenly among the workers.
        time_to_accuracy_relative: Expected ratio of the time of the training to the shortest one,
            divided by that of the best batch, >= 1. It is expected over what the noise may become.
        plan: The plan.
        step_time_s: Seconds per step of the plan.
        steps_relative: Steps of the training divided by the steps at the reference batch.
        noise_scales: The plan's global batch divided by the noise scale at the end of the training.
    """

    global_batch: int
    time_to_accuracy_relative: float
    plan: BatchPlan
    step_time_s: float
    steps_relative: float
    noise_scales: float


@dataclass(frozen=True)
class SeenNoise:
    """Noise of a training in progress, by its global batch at the time.

    Attributes:
        reference_batch: The batch in whose steps progress is counted. Gradient variances are also
            given for this batch.
        scales: Progress in steps of the reference batch, and noise scales in samples, by global
            batch.
    """

    reference_batch: int
    scales: Mapping[int, tuple[Sequence[float], Sequence[float]]]

    def courses(self, end: float | None) -> dict[int, NoiseCourse]:
        """Return the noise over the whole training as each batch predicts it, to the same end."""
        courses = {
            batch: NoiseCourse.extrapolate(progress, scales, end=end)
            for batch, (progress, scales) in self.scales.items()
        }
        last = max(course.end for course in courses.values())
        return {batch: replace(course, end=last) for batch, course in courses.items()}


def read_noise(path: Path, batches: Sequence[int], reference_batch: int | None = None) -> SeenNoise:
    """Read the noise of a training in progress.

    Rows without signal or noise are skipped with a warning.

    Args:
        path: A table with the columns `global_batch`, `progress` in steps of the reference batch,
            `grad_sqr`, the squared norm of the true gradient, and `grad_var`, the variance of the
            gradient of one reference batch.
        batches: The batches to compare.
        reference_batch: See `SeenNoise`. None for the smallest batch of all.

    Raises:
        DataError: If the table is malformed, or the noise cannot be estimated from any row.
    """
    rows = read_table(
        path,
        Column("global_batch", positive_whole_number),
        Column("progress", positive_number),
        Column("grad_sqr", finite_number),
        Column("grad_var", finite_number),
    )
    reference = reference_batch or min([*batches, *(row["global_batch"] for row in rows)])
    scales: dict[int, tuple[list[float], list[float]]] = {}
    for row in rows:
        if row["grad_sqr"] > 0 and row["grad_var"] > 0:
            progress, seen = scales.setdefault(row["global_batch"], ([], []))
            progress.append(row["progress"])
            seen.append(reference * row["grad_var"] / row["grad_sqr"])
    if not scales:
        raise DataError(
            f"{path} has no row from which the noise can be estimated",
            field="grad_sqr",
            allowed="at least one row with grad_sqr and grad_var greater than 0",
            next_step="Train for longer, or average over more steps.",
        )
    num_skipped = len(rows) - sum(len(seen) for _, seen in scales.values())
    if num_skipped:
        skipped = format_count(num_skipped, "row is", "rows are")
        warnings.warn(
            f"{path}: {skipped} skipped because grad_sqr or grad_var is 0 or less", stacklevel=2
        )
    return SeenNoise(reference, scales)


def rank_batches(
    batches: Sequence[int],
    noise: SeenNoise,
    step_times: StepTimes,
    *,
    num_workers: int,
    max_micro_batch: int,
    end: float | None = None,
) -> list[RankedBatch]:
    """Rank batches by the time that a training needs to reach the same accuracy.

    How the noise continues is uncertain, and a wrong guess may double the time. So the best batch
    is not the one that would be fastest if the most likely course was true. It is the one that
    loses least on average over the courses that may be true.

    Args:
        batches: The batches to compare. Batches with fewer samples than workers are skipped.
        noise: The gradient noise so far.
        step_times: Returns the seconds per step of each plan.
        num_workers: Workers, one on each GPU.
        max_micro_batch: Samples that fit on one GPU at once.
        end: Progress at the end of the training, in reference steps. None for twice the progress
            so far.

    Returns:
        The batches, the fastest first.

    Raises:
        ResourcesError: If every batch has fewer samples than there are workers.
    """
    plans = {batch: _plans(batch, num_workers, max_micro_batch) for batch in sorted(set(batches))}
    wanted = [plan for several in plans.values() for plan in several]
    if not wanted:
        raise ResourcesError(
            f"no batch has a sample for each of {num_workers} GPUs",
            field="--batches",
            allowed=f"{num_workers} or more",
        )
    times_s = dict(zip(wanted, step_times(wanted), strict=True))
    courses = noise.courses(end)
    fastest: dict[int, tuple[BatchPlan, tuple[_Steps, ...]]] = {}
    for batch, several in plans.items():
        steps = {plan: _possible_steps(plan.global_batch, noise, courses) for plan in several}
        if steps:
            plan = min(steps, key=lambda plan: _mean(steps[plan]) * times_s[plan])
            fastest[batch] = plan, steps[plan]
    # The time of a batch in each case, over the time of the best batch in that case.
    num_cases = len(next(iter(fastest.values()))[1])
    least = [
        min(steps[case].number * times_s[plan] for plan, steps in fastest.values())
        for case in range(num_cases)
    ]
    relative = {
        batch: math.fsum(
            possible.probability * possible.number * times_s[plan] / time
            for possible, time in zip(steps, least, strict=True)
        )
        for batch, (plan, steps) in fastest.items()
    }
    best = min(relative.values())
    last = next(iter(courses.values())).end
    return [
        RankedBatch(
            global_batch=batch,
            time_to_accuracy_relative=relative[batch] / best,
            plan=plan,
            step_time_s=times_s[plan],
            steps_relative=_mean(steps) / last,
            noise_scales=plan.global_batch / _scale_at_end(steps),
        )
        for batch, (plan, steps) in sorted(fastest.items(), key=lambda item: relative[item[0]])
    ]


@dataclass(frozen=True)
class _Steps:
    """The steps of a training in one of the cases that may be true.

    Attributes:
        probability: The probability of the case.
        number: The steps.
        scale_at_end: The noise scale at the end of the training, in samples.
    """

    probability: float
    number: float
    scale_at_end: float


def _possible_steps(
    batch: int, noise: SeenNoise, courses: Mapping[int, NoiseCourse]
) -> tuple[_Steps, ...]:
    """Return the steps of a batch in each case that may be true.

    It is uncertain how fast the noise grows. It is also uncertain whether it depends on the batch
    (`scale_at_batch`), because the learning rate may not follow the batch. Both count with the same
    probability.

    Args:
        batch: Samples per step.
        noise: What was seen.
        courses: The course of the noise by the batch at which it was seen.
    """
    # Noise measured at a batch near the plan's extrapolates best. Batches differ by factors, so the
    # distance is taken between logarithms.
    seen = min(courses, key=lambda seen: abs(math.log(seen / batch)))
    reference = noise.reference_batch
    return tuple(
        _Steps(
            probability / 2,
            course.steps(batch, reference_batch=reference, seen_batch=seen_batch),
            scale_at_batch(
                course.at(course.end),
                seen_batch=seen_batch,
                batch=batch,
                reference_batch=reference,
            ),
        )
        for probability, course in courses[seen].possible()
        for seen_batch in (batch, seen)
    )


def _mean(steps: Sequence[_Steps]) -> float:
    return math.fsum(possible.probability * possible.number for possible in steps)


def _scale_at_end(steps: Sequence[_Steps]) -> float:
    """Return the geometric mean, because scales differ by factors."""
    return math.exp(
        math.fsum(possible.probability * math.log(possible.scale_at_end) for possible in steps)
    )


def _plans(batch: int, num_workers: int, max_micro_batch: int) -> list[BatchPlan]:
    """Return ways to divide a batch, the one with the largest micro batch first."""
    if batch < num_workers:
        return []
    fewest = math.ceil(batch / (num_workers * max_micro_batch))
    micro_batches = {
        accumulation: math.ceil(batch / (num_workers * accumulation))
        for accumulation in range(fewest, fewest + _ACCUMULATIONS)
    }
    return [
        BatchPlan(num_workers, micro, accumulation) for accumulation, micro in micro_batches.items()
    ]
