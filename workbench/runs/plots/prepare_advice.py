"""Prepare the figures of the cost of plans, and of how well predictions agree with measurements.

Throughput, step time, memory by micro batch, and scale efficiency. As in `prepare`: frozen plain
values, all decisions made here, None for values that are not finite. `empty` says how to obtain
data ("" if there is some). `subtitle`, how to read the figure. `Predictions` holds the step times
that stored advice predicts.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from workbench.advisor.plan_variants import Variant, read_plan, variant_of
from workbench.advisor.speed_history import work_params
from workbench.advisor.stored_advice import Estimate, finite, mapping, rows, stored_plan
from workbench.experiment.plan import PartialPlan, Plan
from workbench.foundation.events import PlanMeasured
from workbench.foundation.formatting import format_percent
from workbench.runs.plots.prepare import Values
from workbench.runs.plots.run_data import RunData
from workbench.runs.plots.series import THROUGHPUT, Curve

_TO_MEASURE = "No plan has been measured yet. Request advice to measure some."
_UNITS = (("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10))
# Converts seconds per step and samples per step to the unit of the axis.
_Shown = Callable[[Estimate, float], Estimate]
# Per step. A larger number cannot be a measurement.
MAX_SAMPLES = 1e12
BAND = 0.1


class Point(NamedTuple):
    """A point, its interval, and its label."""

    x: float | None
    y: float | None
    low: float | None = None
    high: float | None = None
    text: str = ""


@dataclass(frozen=True)
class Points:
    """Points as columns."""

    x: Values = ()
    y: Values = ()
    low: Values = ()
    high: Values = ()
    texts: tuple[str, ...] = ()

    @classmethod
    def of(cls, points: Iterable[Point]) -> Points:
        """Make columns in order of x. Points without coordinates are omitted."""
        placed = [point for point in points if point.x is not None and point.y is not None]
        placed.sort(key=lambda point: point.x or 0.0)
        return cls(*(tuple(column) for column in zip(*placed, strict=True)))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Fit:
    """A fitted curve with its interval. `beyond` where it is extrapolated."""

    x: Values = ()
    y: Values = ()
    low: Values = ()
    high: Values = ()
    beyond: tuple[bool, ...] = ()

    @classmethod
    def of(cls, steps: Iterable[tuple[float, Estimate]]) -> Fit:
        """Make columns of intervals by x, in order of x."""
        placed = sorted(steps, key=lambda step: step[0])
        return cls(
            tuple(x for x, _ in placed),
            tuple(step.value for _, step in placed),
            tuple(step.low for _, step in placed),
            tuple(step.high for _, step in placed),
            tuple(step.extrapolated for _, step in placed),
        )


@dataclass(frozen=True)
class WorkersGroup:
    """The plans of one number of workers.

    Measured with the advised variant, with others, and fitted.
    """

    workers: int
    measured: Points
    otherwise: Points
    fit: Fit


@dataclass(frozen=True)
class BatchData:
    """Throughput or step time against the micro batch."""

    title: str
    subtitle: str
    y_title: str
    groups: tuple[WorkersGroup, ...]
    choice: Points
    empty: str = ""


@dataclass(frozen=True)
class MemoryData:
    """The peak of a worker against the micro batch, in `unit`."""

    subtitle: str
    unit: str
    estimated: Points
    measured: Points
    too_large: Points
    choice: Points
    choice_is_measured: bool
    limit: float | None
    empty: str = ""


def prepare_step_time(run: RunData) -> BatchData:
    """Prepare seconds per step against the micro batch, one line per number of workers."""
    events = run.advice.of_one_setting()
    curve = Predictions(run.advice.advice).curve
    unit, unit_s = time_unit_of_steps(
        [*(event.step_time_s for event in events), *(row.step.value for row in curve)]
    )
    choice = run.advice.choice
    # With accumulated micro steps, a step takes longer than the curves show.
    step_time_s = None
    if stored_plan(choice).accumulation == 1:  # else a step is more than one micro batch
        step_time_s = choice.get("step_time_s")
    groups = _groups(run, lambda step, _: step.times(1.0 / unit_s))
    return BatchData(
        title="Step time by micro batch",
        subtitle="Flat while the device has spare capacity, then rising" + _of_dashes(curve),
        y_title=f"Step time ({unit})",
        groups=groups,
        choice=choice_points(choice, step_time_s, unit_s),
        empty="" if groups else _TO_MEASURE,
    )


def prepare_throughput_by_batch(run: RunData) -> BatchData:
    """Prepare samples per second against the micro batch, one line per number of workers."""
    choice = run.advice.choice
    curve = Predictions(run.advice.advice).curve
    groups = _groups(run, lambda step, samples: step.inverse(samples))
    return BatchData(
        title="Throughput by micro batch",
        subtitle="A larger micro batch raises throughput until its line flattens"
        + _of_dashes(curve),
        y_title="Throughput (samples/s)",
        groups=groups,
        choice=choice_points(choice, choice.get("samples_per_s"), 1.0),
        empty="" if groups else _TO_MEASURE,
    )


def prepare_memory(run: RunData) -> MemoryData:
    """Prepare the peak of a worker against the micro batch, and what its device has."""
    events = run.advice.of_one_setting()
    choice = run.advice.choice
    curves = mapping(run.advice.advice.get("curves"))
    held = mapping(choice.get("memory_bytes"))
    limit = finite(curves.get("memory_limit_bytes")) or finite(held.get("limit"))
    law = rows(curves.get("memory"))
    sizes = [finite(row.get("peak_bytes")) for row in law] + [
        finite(event.peak_bytes) for event in events
    ]
    largest = max((size for size in [*sizes, limit] if size is not None), default=0.0)
    unit, unit_bytes = next((pair for pair in _UNITS if largest >= 2 * pair[1]), _UNITS[-1])

    def place(event: PlanMeasured) -> Point:
        # If memory ran out, the demand is unknown, except that it exceeds what there is.
        peak = finite(event.peak_bytes) or (None if event.fits else limit)
        return Point(size_of(event, "micro_batch"), _over(peak, unit_bytes), text=describe(event))

    measured = Points.of(place(event) for event in events if event.fits)
    estimated = Points.of(
        Point(finite(row.get("micro_batch")), _over(finite(row.get("peak_bytes")), unit_bytes))
        for row in law
    )
    too_large = Points.of(place(event) for event in events if event.is_possible and not event.fits)
    empty = "No plan has reported its memory yet. Request advice to measure it."
    if measured.x or estimated.x or too_large.x:
        empty = ""
    return MemoryData(
        subtitle="The peak memory of a worker must fit into the memory of its device.",
        unit=unit,
        estimated=estimated,
        measured=measured,
        too_large=too_large,
        choice=choice_points(choice, held, unit_bytes),
        choice_is_measured=held.get("measured") is True,
        limit=_over(limit, unit_bytes),
        empty=empty,
    )


def measured_step(event: PlanMeasured) -> Estimate | None:
    """Return the median step of a measured plan, and half of its interquartile range."""
    value_s, spread_s = finite(event.step_time_s), max(finite(event.step_time_spread_s) or 0.0, 0.0)
    if value_s is None:
        return None
    step = Estimate(value_s, max(value_s - spread_s / 2, value_s / 10), value_s + spread_s / 2)
    return _time(step)


def choice_points(choice: Mapping[str, Any], stored: Any, unit: float) -> Points:
    """Return the recommended plan as a point over its micro batch, or none."""
    interval = Estimate.of(stored)
    plan = stored_plan(choice)
    if interval is None:
        return Points()
    shown = interval.times(1.0 / unit)
    text = f"recommended: {plan.batch_text}"
    return Points.of([Point(plan.micro_batch, shown.value, shown.low, shown.high, text)])


def size_of(event: PlanMeasured, name: str) -> int | None:
    """Return a numeric field of a measured plan, such as its workers."""
    plan = PartialPlan.from_json(event.plan)
    value = plan.get(name)
    if name == "global_batch":
        value = plan.global_batch
    if isinstance(value, int) and value <= MAX_SAMPLES:
        return value
    return None


def describe(event: PlanMeasured) -> str:
    """Return a short description of the measured plan."""
    words = PartialPlan.from_json(event.plan).describe()
    if event.fits:
        return words
    return f"{words}, {event.message or 'does not fit'}"


def time_unit_of_steps(times_s: Iterable[float | None]) -> tuple[str, float]:
    """Return the unit in which steps are read most easily, and its length in seconds."""
    longest_s = max(
        (finite_s for time_s in times_s if (finite_s := finite(time_s)) is not None), default=0.0
    )
    if longest_s < 2.0:
        return "ms", 1e-3
    return "s", 1.0


def _groups(run: RunData, shown: _Shown) -> tuple[WorkersGroup, ...]:
    events = run.advice.of_one_setting()
    curve = Predictions(run.advice.advice).curve
    usual = usual_of(run.advice.choice, events)
    counts = {row.workers for row in curve} | {size_of(event, "workers") for event in events}
    groups = []
    for workers in sorted(count for count in counts if count is not None):
        points: dict[bool, list[Point]] = {True: [], False: []}
        for event in events:
            step = measured_step(event)
            samples = size_of(event, "global_batch")
            if event.fits and step and samples and size_of(event, "workers") == workers:
                interval = shown(step, samples)
                at = size_of(event, "micro_batch")
                point = Point(at, interval.value, interval.low, interval.high, describe(event))
                points[is_usual(read_plan(event.plan), usual)].append(point)
        fit = Fit.of(
            (float(row.micro_batch), shown(row.step, row.micro_batch * workers))
            for row in curve
            if row.workers == workers
        )
        if fit.x or points[True] or points[False]:
            groups.append(
                WorkersGroup(workers, Points.of(points[True]), Points.of(points[False]), fit)
            )
    return tuple(groups)


def _of_dashes(curve: Sequence[CurveStep]) -> str:
    if any(row.step.extrapolated for row in curve):
        return " (dashed: beyond what was measured)."
    return "."


def _over(value: float | None, unit: float) -> float | None:
    if value is None:
        return None
    return value / unit


@dataclass(frozen=True)
class CurveStep:
    """A step of the stored curve: one micro batch per worker, then an exchange of gradients."""

    workers: int
    micro_batch: int
    step: Estimate


class Predictions:
    """The step times that advice predicts."""

    def __init__(self, advice: Mapping[str, Any]) -> None:
        """Read stored advice. Empty advice predicts nothing."""
        candidates = [mapping(advice.get(name)) for name in ("choice", "runner_up", "reference")]
        self._candidates = [
            candidate for candidate in (*candidates, *rows(advice.get("others"))) if candidate
        ]
        self._usual = usual_of(mapping(advice.get("choice")), ())
        stored = rows(mapping(advice.get("curves")).get("step_time"))
        steps = [step for row in stored if (step := _curve_step(row)) is not None]
        self.curve = sorted(steps, key=lambda step: (step.workers, step.micro_batch))

    def of_plan(self, stored: PartialPlan) -> Estimate | None:
        """Return the predicted step time of a plan, or None if the advice does not cover it."""
        plan = stored.complete()
        if plan is None:
            return None
        for candidate in self._candidates:
            if stored_plan(candidate).complete() == plan:
                return _time(Estimate.of(candidate.get("step_time_s")))
        if not is_usual(plan, self._usual):
            return None
        return self._on_curve(plan.workers, plan.micro_batch)

    def _on_curve(self, workers: float, micro_batch: float) -> Estimate | None:
        line = [row for row in self.curve if row.workers == workers]
        if not line or not line[0].micro_batch <= micro_batch <= line[-1].micro_batch:
            return None
        at = [math.log(row.micro_batch) for row in line]
        columns = zip(*((row.step.value, row.step.low, row.step.high) for row in line), strict=True)
        value, low, high = (
            float(np.exp(np.interp(math.log(micro_batch), at, np.log(column))))
            for column in columns
        )
        nearest = min(line, key=lambda row: abs(row.micro_batch - micro_batch))
        return Estimate(value, low, high, nearest.step.extrapolated)


def usual_of(choice: Mapping[str, Any], measured: Sequence[PlanMeasured]) -> Variant | None:
    """Return the variant that the curves describe.

    That of the choice, else the first one measured.
    """
    stored = mapping(choice.get("plan"))
    if not stored and measured:
        stored = measured[0].plan
    plan = read_plan(stored)
    return plan and variant_of(plan)


def is_usual(plan: Plan | None, usual: Variant | None) -> bool:
    """Return whether the curves describe a plan.

    Its variant matches and it does not accumulate gradients.
    """
    return plan is not None and plan.accumulation == 1 and variant_of(plan) == usual


def _curve_step(row: Mapping[str, Any]) -> CurveStep | None:
    workers, micro_batch = finite(row.get("workers")), finite(row.get("micro_batch"))
    step = _time(
        Estimate.of(
            {
                "value": row.get("step_time_s"),
                "low": row.get("low_s"),
                "high": row.get("high_s"),
                "extrapolated": row.get("extrapolated"),
            }
        )
    )
    if not (workers and micro_batch and step) or min(workers, micro_batch) < 1:
        return None
    if workers * micro_batch > MAX_SAMPLES:
        return None
    return CurveStep(int(workers), int(micro_batch), step)


def _time(interval: Estimate | None) -> Estimate | None:
    if interval is None or not interval.is_time:
        return None
    return interval


@dataclass(frozen=True)
class ScalingLine:
    """Efficiency of more workers with the same micro batch, by probes, trials and the advice."""

    micro_batch: int
    measured: Points
    trials: Points
    predicted: Fit


@dataclass(frozen=True)
class ScalingData:
    """Scaling efficiency: the throughput per worker, relative to the fewest measured workers."""

    subtitle: str
    lines: tuple[ScalingLine, ...]
    workers: tuple[int, ...]
    empty: str = ""


@dataclass(frozen=True)
class PredictionData:
    """Measured step times (x) against predicted ones (y, with intervals) of the same plans."""

    subtitle: str
    unit: str
    probes: Points
    trials: Points
    empty: str = ""


def prepare_scaling(run: RunData) -> ScalingData:
    """Prepare the scale efficiency of probes, trials and predictions.

    They are shown at the best-known micro batches.
    """
    events = run.advice.of_one_setting()
    by_trials = _steps_of_trials(run)
    usual = usual_of(run.advice.choice, events)
    if usual is None and by_trials:
        usual = variant_of(by_trials[0][0])
    measured: dict[int, dict[int, float]] = {}
    for event in events:
        workers, micro_batch = size_of(event, "workers"), size_of(event, "micro_batch")
        step = measured_step(event)
        if (
            workers
            and micro_batch
            and step
            and event.fits
            and is_usual(read_plan(event.plan), usual)
        ):
            measured.setdefault(micro_batch, {})[workers] = step.value
    predicted: dict[int, dict[int, Estimate]] = {}
    for row in Predictions(run.advice.advice).curve:
        predicted.setdefault(row.micro_batch, {})[row.workers] = row.step

    trials: dict[int, dict[int, list[float]]] = {}
    for plan, step_s in by_trials:
        if is_usual(plan, usual):
            trials.setdefault(plan.micro_batch, {}).setdefault(plan.workers, []).append(step_s)

    def counts(micro_batch: int) -> set[int]:
        return {
            *(
                count
                for group in (measured, trials, predicted)
                for count in group.get(micro_batch, ())
            )
        }

    known = sorted(batch for batch in {*measured, *trials, *predicted} if len(counts(batch)) > 1)
    well_known = [
        batch
        for batch in known
        if max(len(measured.get(batch, ())), len(trials.get(batch, ()))) > 1
    ] or known
    # The choice's, and those farthest apart, because neighbours scale the same way.
    wanted = stored_plan(run.advice.choice).micro_batch
    drawn = {batch for batch in known if batch in (wanted, well_known[0], well_known[-1])}
    empty = "No micro batch has been measured with two different numbers of workers yet."
    if known:
        empty = ""
    return ScalingData(
        subtitle=(
            "Near the ideal line, more workers pay off. Far below it, they wait for each other."
        ),
        lines=tuple(
            _line(
                batch,
                measured.get(batch, {}),
                {
                    workers: statistics.median(steps_s)
                    for workers, steps_s in trials.get(batch, {}).items()
                },
                predicted.get(batch, {}),
            )
            for batch in sorted(drawn)
        ),
        workers=tuple(sorted(set().union(*(counts(batch) for batch in drawn)))),
        empty=empty,
    )


def prepare_predictions(run: RunData) -> PredictionData:
    """Prepare predicted against measured step times of measured plans, and of trials."""
    predictions = Predictions(run.advice.advice)
    probes: list[tuple[float, Estimate, str]] = []
    for event in run.advice.of_one_setting():
        predicted = predictions.of_plan(PartialPlan.from_json(event.plan))
        step = measured_step(event)
        if event.fits and predicted and step:
            probes.append((step.value, predicted, describe(event)))
    trials: list[tuple[float, Estimate, str]] = []
    for curve in run.series.curves(THROUGHPUT):
        plan = run.history.trials[curve.trial].plan
        predicted = predictions.of_plan(plan)
        step_s = _step_of_trial(run, curve)
        if predicted and step_s:
            trials.append((step_s, predicted, f"trial {curve.trial}: {plan.batch_text}"))
    both = [*probes, *trials]
    unit, unit_s = time_unit_of_steps(step_s for step_s, _, _ in both)
    num_within = sum(abs(predicted.value / step_s - 1.0) <= BAND for step_s, predicted, _ in both)

    def points(known_points: list[tuple[float, Estimate, str]]) -> Points:
        shown = [
            (step_s / unit_s, predicted.times(1.0 / unit_s), text)
            for step_s, predicted, text in known_points
        ]
        return Points.of(Point(x, step.value, step.low, step.high, text) for x, step, text in shown)

    return PredictionData(
        subtitle=(
            f"On the diagonal, a prediction was exact. {num_within} of {len(both)} plans lie "
            f"within {format_percent(BAND)} of it."
        ),
        unit=unit,
        probes=points(probes),
        trials=points(trials),
        empty="" if both else "No plan has been both predicted and measured yet.",
    )


def _line(
    micro_batch: int,
    measured: Mapping[int, float],
    trials: Mapping[int, float],
    predicted: Mapping[int, Estimate],
) -> ScalingLine:
    fewest = min({*measured, *trials, *predicted})
    # Compare like with like where possible: unlike probes, trials may share the hardware with
    # others.
    bases_s = [group[fewest] for group in (measured, trials) if fewest in group]
    if fewest in predicted:
        predicted_s = predicted[fewest].value
    else:
        predicted_s = bases_s[0]
    measured_s = [*bases_s, predicted_s][0]
    trials_s = trials.get(fewest, measured_s)
    return ScalingLine(
        micro_batch,
        Points.of(
            Point(workers, measured_s / step_s, text=f"micro batch {micro_batch}, measured")
            for workers, step_s in measured.items()
        ),
        Points.of(
            Point(workers, trials_s / step_s, text=f"micro batch {micro_batch}, trials")
            for workers, step_s in trials.items()
        ),
        Fit.of(
            (
                float(workers),
                # The fewest workers are the baseline, so their efficiency is exact.
                Estimate(1.0, 1.0, 1.0) if workers == fewest else step.inverse(predicted_s),
            )
            for workers, step in predicted.items()
        ),
    )


def _steps_of_trials(run: RunData) -> list[tuple[Plan, float]]:
    """Return plan and seconds per step of the largest group of trials that did the same work."""
    steps_by_work: dict[str, list[tuple[Plan, float]]] = {}
    for curve in run.series.curves(THROUGHPUT):
        trial = run.history.trials[curve.trial]
        plan = read_plan(trial.plan.to_json())
        step_s = _step_of_trial(run, curve)
        if plan is not None and step_s:
            work = json.dumps(work_params(trial.params), sort_keys=True)
            steps_by_work.setdefault(work, []).append((plan, step_s))
    return max(steps_by_work.values(), key=len, default=[])


def _step_of_trial(run: RunData, curve: Curve) -> float | None:
    """Return the seconds per step of a trial's last attempt.

    Earlier attempts may have had another plan.
    """
    trial = run.history.trials[curve.trial]
    began_s = run.history.clock.at(trial.attempt_unix_s)
    samples = trial.plan.global_batch
    speeds = [
        float(speed)
        for when_s, speed in zip(curve.x("time"), curve.value, strict=True)
        if when_s >= began_s and math.isfinite(speed) and speed > 0.0
    ]
    if not samples or not speeds:
        return None
    return samples / statistics.median(speeds)
