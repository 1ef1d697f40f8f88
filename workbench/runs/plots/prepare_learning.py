"""Prepare the figures of the effect of batches and rates.

Noise, time to target, rate tests, candidates.

The same rules as in `prepare_advice` apply.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.advisor.stored_advice import Estimate, finite, mapping, rows, stored_plan
from workbench.experiment.goals import Goal, better_side, sign_of
from workbench.experiment.plan import PartialPlan
from workbench.foundation.events import CandidateTried
from workbench.foundation.formatting import format_duration, format_number
from workbench.hardware.performance.noise import critical_batch
from workbench.runs.plots.prepare import Values, time_unit
from workbench.runs.plots.prepare_advice import Fit, Point, Points
from workbench.runs.plots.run_data import RunData
from workbench.runs.plots.series import Curve, Floats

MAX_TRIALS = 20


@dataclass(frozen=True)
class NoiseLine:
    """The noise scale of one trial, in samples."""

    trial: int
    x: Values
    scale: Values


@dataclass(frozen=True)
class NoiseData:
    """The noise scale over training, and the critical batch of one trial up to each point.

    Attributes:
        lines: The trials, the highlighted one last.
        shown_trial: The highlighted trial.
        critical_x: Positions at which the critical batch is known.
        critical: The critical batch of the training up to there, in samples.
        batches: The global batches in use, ascending.
        advised: The noise scale that the advice is based on.
    """

    subtitle: str
    x_title: str
    lines: tuple[NoiseLine, ...]
    shown_trial: int | None = None
    critical_x: Values = ()
    critical: Values = ()
    batches: tuple[int, ...] = ()
    advised: float | None = None
    empty: str = ""


@dataclass(frozen=True)
class TargetData:
    """Time to the target against the global batch. `marks` are candidates by name."""

    subtitle: str
    unit: str
    fit: Fit
    marks: tuple[tuple[str, Points], ...]
    empty: str = ""


@dataclass(frozen=True)
class RateLine:
    """One rate range test."""

    name: str
    rates: Values
    losses: Values
    suggested: float | None
    suggested_loss: float | None
    highest_stable: float | None


@dataclass(frozen=True)
class RatesData:
    """Losses against rates that rise step by step."""

    subtitle: str
    lines: tuple[RateLine, ...]
    y_range: tuple[float, float] | None = None
    empty: str = ""


@dataclass(frozen=True)
class CandidateLine:
    """A candidate that was trained briefly. `reached` are the points at which it met the target."""

    name: str
    x: Values
    y: Values
    reached_x: Values
    reached_y: Values


@dataclass(frozen=True)
class CandidatesData:
    """The objective of candidates against their training time in seconds."""

    subtitle: str
    x_title: str
    y_title: str
    lines: tuple[CandidateLine, ...]
    target: float | None = None
    empty: str = ""


def prepare_noise(run: RunData) -> NoiseData:
    """Prepare the noise scale over epochs, or over steps if epochs are unknown."""
    curves = [curve for curve in run.advice.noise_scales() if len(curve)]
    noise = mapping(run.advice.advice.get("noise"))
    subtitle = (
        "A global batch far below the noise scale wastes steps, one far above it wastes samples."
    )
    axis = "step"
    if curves and all(np.isfinite(curve.x("epoch")).all() for curve in curves):
        axis = "epoch"
    x_title = axis.capitalize()
    if not curves:
        empty = (
            "No trial has reported gradient noise yet. It needs two workers, or two micro steps per"
            " step."
        )
        return NoiseData(subtitle, x_title, (), empty=empty)
    best = run.history.best()
    shown = next((curve for curve in curves if best and curve.trial == best.number), None)
    shown = shown or max(curves, key=lambda curve: float(curve.x("step")[-1]))
    others = [curve for curve in curves if curve is not shown]
    spread = []
    if others:
        spread = np.unique(np.linspace(0, len(others) - 1, MAX_TRIALS - 1).astype(int))
    drawn = [*(others[index] for index in spread), shown]
    batches = {run.history.trials[curve.trial].plan.global_batch for curve in drawn}
    batch = run.history.trials[shown.trial].plan.global_batch
    thin = shown.thinned(500)
    return NoiseData(
        subtitle,
        x_title,
        tuple(
            NoiseLine(curve.trial, _values(curve.x(axis)), _values(curve.value))
            for curve in (curve_of_batch.thinned(500) for curve_of_batch in drawn)
        ),
        shown_trial=shown.trial,
        critical_x=_values(thin.x(axis)) if batch else (),
        critical=_critical_batches(thin, batch) if batch else (),
        batches=tuple(sorted(curve_of_batch for curve_of_batch in batches if curve_of_batch)),
        advised=finite(noise.get("scale_samples")),
    )


def _critical_batches(curve: Curve, batch: float) -> Values:
    """Return the critical batch of a training up to each report.

    A step of batch B makes the progress of gain(phi) = B / B0 (phi + B0) / (phi + B) reference
    steps, so up to some progress p even the largest batch needs sum B0 / (phi + B0) steps, and even
    the smallest sum phi B0 / (phi + B0) samples. Their ratio is the critical batch.

    Source: Johnson et al. 2020, "AdaScale SGD" (arXiv:2007.05105). McCandlish et al. 2018, equation
    2.11.

    Args:
        curve: Noise scales over steps.
        batch: B0, the global batch in use.
    """
    steps, scales = curve.x("step"), curve.value
    weights = np.diff(steps, prepend=0.0).clip(min=0.0) * batch / (scales + batch)
    least_steps = np.cumsum(weights)
    least_samples = np.cumsum(weights * scales)
    return tuple(
        critical_batch(least_steps=float(few), least_samples=float(samples)) if few > 0 else None
        for few, samples in zip(least_steps, least_samples, strict=True)
    )


def prepare_time_to_target(run: RunData) -> TargetData:
    """Prepare the predicted time to the target against the global batch, with the candidates."""
    advice = run.advice.advice
    times_to_target: list[tuple[float, Estimate]] = []
    for row in rows(mapping(advice.get("curves")).get("time_to_target")):
        batch = finite(row.get("global_batch"))
        time_s = Estimate.of(
            {"value": row.get("time_s"), "low": row.get("low_s"), "high": row.get("high_s")}
        )
        if batch and time_s:
            times_to_target.append((batch, time_s))
    named = (("choice", "choice"), ("runner-up", "runner_up"), ("without advice", "reference"))
    plans = [(name, mapping(advice.get(key))) for name, key in named]
    times = [
        (name, plan_advice, time_s)
        for name, plan_advice in plans
        if (time_s := _time_to_target(plan_advice)) is not None
    ]
    longest_s = max(
        [time_s.value for _, time_s in times_to_target] + [time_s.value for *_, time_s in times],
        default=0.0,
    )
    unit, unit_s = time_unit(longest_s)
    subtitle = (
        "The lowest point is the best trade-off: small batches need many steps, large ones long"
        " steps."
    )
    marks = []
    for name, candidate, time_s in times:
        plan = stored_plan(candidate)
        shown = time_s.times(1.0 / unit_s)
        text = f"{plan.batch_text}: {format_duration(time_s.value)}"
        at = plan.global_batch
        marks.append((name, Points.of([Point(at, shown.value, shown.low, shown.high, text)])))
    empty = (
        "No time to the target is predicted yet. It needs advice and an objective with a target."
    )
    if times_to_target or marks:
        empty = ""
    return TargetData(
        subtitle=subtitle,
        unit=unit,
        fit=Fit.of((batch, time_s.times(1.0 / unit_s)) for batch, time_s in times_to_target),
        marks=tuple((name, points) for name, points in marks if points.x),
        empty=empty,
    )


def prepare_rates(run: RunData) -> RatesData:
    """Prepare the rate range tests."""
    lines: list[RateLine] = []
    tests = run.advice.rate_tests
    for event in tests:
        pairs = [
            (rate, loss)
            for rate, loss in zip(event.rates, event.losses, strict=False)
            if math.isfinite(rate) and rate > 0
        ]
        suggested, stable = _positive(event.suggested), _positive(event.highest_stable)
        if not any(math.isfinite(loss) for _, loss in pairs):
            continue
        loss_at_suggestion = None
        if suggested is not None:
            loss_at_suggestion = _loss_at(pairs, suggested)
        lines.append(
            RateLine(
                name=f"global batch {event.global_batch}",
                rates=tuple(rate for rate, _ in pairs),
                losses=tuple(finite(loss) for _, loss in pairs),
                suggested=suggested,
                suggested_loss=loss_at_suggestion,
                highest_stable=stable,
            )
        )
    return RatesData(
        subtitle="The suggestion lies where the loss falls steeply, below the highest stable rate.",
        lines=tuple(lines),
        y_range=_loss_range(lines),
        empty="" if lines else "No learning rate range test has had a finite loss yet.",
    )


def prepare_candidates(run: RunData) -> CandidatesData:
    """Prepare the first objective of the candidates that were compared side by side."""
    objective = run.experiment.objectives[0]
    by_candidate: dict[str, list[CandidateTried]] = {}
    for event in run.advice.candidates:
        key = json.dumps([event.plan, repr(event.lr)], sort_keys=True)
        by_candidate.setdefault(key, []).append(event)
    longest_s = max(
        (finite(event.elapsed_s) or 0.0 for event in run.advice.candidates), default=0.0
    )
    unit, unit_s = time_unit(longest_s)
    lines = [_candidate_line(events, objective.metric, unit_s) for events in by_candidate.values()]
    lines = [line for line in lines if any(y is not None for y in line.y)]
    goal: Goal = objective.goal
    sign = -sign_of(goal)

    def rank(line: CandidateLine) -> tuple[float, float]:
        reached_s = [float(at) for at in line.reached_x if at is not None]
        return min(reached_s, default=math.inf), min(
            sign * float(y) for y in line.y if y is not None
        )

    lines.sort(key=rank)
    side = better_side(goal)
    return CandidatesData(
        subtitle=f"At any time, the {side} line is ahead. A star marks the target being reached.",
        x_title=f"Training time ({unit})",
        y_title=f"{objective.metric} ({side} is better)",
        lines=tuple(lines),
        target=objective.target,
        empty="" if lines else "No candidates have been trained side by side yet.",
    )


def _candidate_line(events: Sequence[CandidateTried], metric: str, unit_s: float) -> CandidateLine:
    x: list[float | None] = []
    y: list[float | None] = []
    reached: list[tuple[float, float]] = []
    for event in events:
        at, value = finite(event.elapsed_s), finite(event.values.get(metric))
        if at is None:
            continue
        if x and x[-1] is not None and at / unit_s < x[-1]:
            x = [*x, None]
            y = [*y, None]
        x.append(at / unit_s)
        y.append(value)
        if event.reached_target and value is not None:
            reached.append((at / unit_s, value))
    return CandidateLine(
        f"{PartialPlan.from_json(events[0].plan).batch_text}, lr {format_number(events[0].lr)}",
        tuple(x),
        tuple(y),
        tuple(at for at, _ in reached),
        tuple(value for _, value in reached),
    )


def _time_to_target(candidate: Mapping[str, Any]) -> Estimate | None:
    return Estimate.of(candidate.get("time_to_target_s"))


def _loss_at(pairs: Sequence[tuple[float, float]], rate: float) -> float | None:
    known = sorted((math.log(at), loss) for at, loss in pairs if math.isfinite(loss))
    places, losses = zip(*known, strict=True)
    return float(np.interp(math.log(rate), places, losses))


def _loss_range(lines: Sequence[RateLine]) -> tuple[float, float] | None:
    """Cut off exploding losses: show as much above the first loss as the test fell below it."""
    first, lowest, highest = -math.inf, math.inf, -math.inf
    for line in lines:
        losses = [loss for loss in line.losses if loss is not None]
        first, lowest = max(first, losses[0]), min(lowest, *losses, losses[0])
        highest = max(highest, *losses, losses[0])
    fall = first - lowest
    if not lines or fall <= 0.0 or highest <= first + fall:
        return None
    return lowest - 0.05 * fall, first + 0.6 * fall


def _positive(value: float | None) -> float | None:
    number = finite(value)
    if number is None or number <= 0:
        return None
    return number


def _values(column: Floats) -> Values:
    return tuple(float(value) if math.isfinite(value) else None for value in column)
