"""Prepare the figures that compare predictions with measurements.

Scale efficiency and step times.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from workbench.advisor.speed_history import work_params
from workbench.advisor.stored_advice import Estimate, stored_plan
from workbench.advisor.variants import read_plan, variant_of
from workbench.experiment.plan import PartialPlan, Plan
from workbench.foundation.formatting import format_percent
from workbench.runs.plots.prepare_advice import (
    Fit,
    Point,
    Points,
    Predictions,
    describe,
    is_usual,
    measured_step,
    size_of,
    time_unit_of_steps,
    usual_of,
)
from workbench.runs.plots.run_data import RunData
from workbench.runs.plots.series import THROUGHPUT, Curve

BAND = 0.1


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
