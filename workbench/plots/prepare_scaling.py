"""Prepare the figures that hold predictions against measurements: scale efficiency, and step times."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from workbench.advisor.stored_advice import Interval, finite, mapping, write_batch
from workbench.plots.advice_predictions import Predictions, is_usual, usual_of
from workbench.plots.prepare_advice import (
    Fit,
    Point,
    Points,
    describe,
    inverse,
    measured_step,
    scaled,
    size_of,
    time_unit_of_steps,
)
from workbench.plots.run_data import RunData
from workbench.plots.series import THROUGHPUT, Curve

BAND = 0.1


@dataclass(frozen=True)
class ScalingLine:
    """Efficiency of growing numbers of workers at one micro batch each."""

    micro_batch: int
    measured: Points
    predicted: Fit


@dataclass(frozen=True)
class ScalingData:
    """Scale efficiency: the throughput of n workers over n times that of one, or of the fewest known."""

    subtitle: str
    lines: tuple[ScalingLine, ...]
    workers: tuple[int, ...]
    empty: str = ""


@dataclass(frozen=True)
class PredictionData:
    """Measured step times (x) against predicted ones (y, with their intervals) of the same plans."""

    subtitle: str
    unit: str
    probes: Points
    trials: Points
    empty: str = ""


def prepare_scaling(run: RunData) -> ScalingData:
    """Prepare the scale efficiency of measured and predicted plans, at the micro batches known best."""
    events = run.advice.of_one_setting()
    usual = usual_of(run.advice.choice, events)
    measured: dict[int, dict[int, float]] = {}
    for event in events:
        workers, micro_batch = size_of(event, "workers"), size_of(event, "micro_batch")
        step = measured_step(event)
        if workers and micro_batch and step and event.fits and is_usual(event.plan, usual):
            measured.setdefault(micro_batch, {})[workers] = step.value
    predicted: dict[int, dict[int, Interval]] = {}
    for row in Predictions(run.advice.advice).curve:
        predicted.setdefault(row.micro_batch, {})[row.workers] = row.step

    def counts(micro_batch: int) -> set[int]:
        return {*measured.get(micro_batch, ()), *predicted.get(micro_batch, ())}

    known = sorted(batch for batch in {*measured, *predicted} if len(counts(batch)) > 1)
    well_known = [batch for batch in known if len(measured.get(batch, ())) > 1] or known
    # The choice's, and those farthest from each other: neighbours scale alike.
    wanted = mapping(run.advice.choice.get("plan")).get("micro_batch")
    drawn = {batch for batch in known if batch in (wanted, well_known[0], well_known[-1])}
    return ScalingData(
        subtitle="Close to the ideal line more workers pay; far below it they wait for each other.",
        lines=tuple(_line(each, measured.get(each, {}), predicted.get(each, {})) for each in sorted(drawn)),
        workers=tuple(sorted(set().union(*(counts(each) for each in drawn)))),
        empty="" if known else "No micro batch is known with two numbers of workers yet.",
    )


def prepare_predictions(run: RunData) -> PredictionData:
    """Prepare predicted against measured step times: of measured plans, and of trials with their own."""
    predictions = Predictions(run.advice.advice)
    probes: list[tuple[float, Interval, str]] = []
    for event in run.advice.of_one_setting():
        predicted, step = predictions.of_plan(event.plan), measured_step(event)
        if event.fits and predicted and step:
            probes.append((step.value, predicted, describe(event)))
    trials: list[tuple[float, Interval, str]] = []
    for curve in run.series.curves(THROUGHPUT):
        plan = run.history.trials[curve.trial].plan
        predicted, step_s = predictions.of_plan(plan), _step_of_trial(run, curve)
        if predicted and step_s:
            trials.append((step_s, predicted, f"trial {curve.trial}: {write_batch(plan)}"))
    both = [*probes, *trials]
    unit, unit_s = time_unit_of_steps(step_s for step_s, _, _ in both)
    num_within = sum(abs(predicted.value / step_s - 1.0) <= BAND for step_s, predicted, _ in both)

    def points(found: list[tuple[float, Interval, str]]) -> Points:
        shown = [
            (step_s / unit_s, scaled(predicted, 1.0 / unit_s), text) for step_s, predicted, text in found
        ]
        return Points.of(Point(x, step.value, step.low, step.high, text) for x, step, text in shown)

    return PredictionData(
        subtitle=f"On the diagonal a prediction came true; {num_within} of {len(both)} plans lie "
        f"within {BAND:.0%} of it.",
        unit=unit,
        probes=points(probes),
        trials=points(trials),
        empty="" if both else "No plan was both predicted and measured yet; probes and later trials measure.",
    )


def _line(micro_batch: int, measured: Mapping[int, float], predicted: Mapping[int, Interval]) -> ScalingLine:
    fewest = min({*measured, *predicted})
    # What was measured is held against what was measured, and only without that against a prediction.
    measured_s = measured[fewest] if fewest in measured else predicted[fewest].value
    predicted_s = predicted[fewest].value if fewest in predicted else measured_s
    return ScalingLine(
        micro_batch,
        Points.of(
            Point(workers, measured_s / step_s, text=f"micro batch {micro_batch}, measured")
            for workers, step_s in measured.items()
        ),
        Fit.of(
            (
                float(workers),
                # The fewest are what others are held against: of that nobody is unsure.
                Interval(1.0, 1.0, 1.0) if workers == fewest else inverse(step, predicted_s),
            )
            for workers, step in predicted.items()
        ),
    )


def _step_of_trial(run: RunData, curve: Curve) -> float | None:
    """Return the seconds per step of a trial's last attempt: earlier ones may have had another plan."""
    trial = run.history.trials[curve.trial]
    began_s = trial.attempt_unix_s - (run.series.start_unix_s or 0.0)
    samples = finite(trial.plan.get("global_batch"))
    speeds = [
        float(speed)
        for when_s, speed in zip(curve.x("time"), curve.value, strict=True)
        if when_s >= began_s and math.isfinite(speed) and speed > 0.0
    ]
    return samples / statistics.median(speeds) if samples and speeds else None
