"""The curves of many trials, bounded: the best ones one by one, all of them as a band."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from workbench.experiment.goals import Goal, sign_of
from workbench.runs.plots.series import MIN_POINTS, Axis, Curve, Floats, thin_indices

_SHORT = 100
"""Points of a short curve."""


@dataclass(frozen=True, eq=False)
class Band:
    """Quantiles over many trials at each x.

    Attributes:
        x: Positions on the axis, ascending.
        low: The 10 % quantile.
        middle: The median.
        high: The 90 % quantile.
        num_trials: Number of trials in the band.
    """

    x: Floats
    low: Floats
    middle: Floats
    high: Floats
    num_trials: int


@dataclass(frozen=True, eq=False)
class Bundle:
    """The curves of one metric, bounded: the best ones one by one, all of them as a band.

    Attributes:
        curves: At most `max_curves`, best first, or an even selection if no direction is better.
        band: Quantiles over all trials, or None over time and where every trial has its own curve.
        best: Two columns, x and the best value of any trial up to there: the corners of a step
            function.
        num_trials: How many trials reported the metric.
    """

    curves: tuple[Curve, ...]
    band: Band | None
    best: Floats
    num_trials: int


def bundle(
    curves: Sequence[Curve],
    axis: Axis,
    goal: Goal | None,
    *,
    max_curves: int = 60,
    max_points: int = 20_000,
    always: Iterable[int] = (),
    never_best: Iterable[int] = (),
    values: Mapping[int, float] | None = None,
) -> Bundle:
    """Bound the number of curves and points of one metric.

    Args:
        curves: One curve a trial.
        axis: What they will be drawn over.
        goal: Which direction is better. NaN and infinity are never better. If nobody has declared
            one, no value is the best so far.
        max_curves: How many trials are kept one by one.
        max_points: Points in all kept curves together.
        always: Trials to keep regardless of their values.
        never_best: Trials whose values do not count as the best so far, such as failed trials.
        values: The values of complete trials. No report of such a trial is better.

    Returns:
        The bounded curves.
    """
    usable = [usable for curve in curves if len(usable := _where_known(curve, axis))]
    wanted = set(always)
    excluded = set(never_best)
    kept = _kept(usable, goal, wanted, max_curves)
    points_each = max(max_points // max(len(kept), 1), MIN_POINTS)
    # Trials run one after another: over time, quantiles would mix the start of one with the end of
    # another.
    band = None
    if len(usable) > max_curves and axis != "time":
        band = _band(usable, axis)
    return Bundle(
        curves=tuple(curve.thinned(points_each) for curve in kept),
        band=band,
        best=_best_so_far(
            [curve for curve in usable if curve.trial not in excluded], axis, goal, values or {}
        ),
        num_trials=len(usable),
    )


def _where_known(curve: Curve, axis: Axis) -> Curve:
    known = np.isfinite(curve.x(axis))
    if known.all():
        return curve
    return Curve(curve.trial, curve.metric, curve.points[known])


def _kept(curves: list[Curve], goal: Goal | None, wanted: set[int], max_curves: int) -> list[Curve]:
    """Return the curves that are drawn one by one: those that are wanted, then the best."""
    first = [curve for curve in curves if curve.trial in wanted]
    others = [curve for curve in curves if curve.trial not in wanted]
    num_free = max(max_curves - len(first), 0)
    if goal is None:
        places: Iterable[float] = range(len(others))
        if len(others) > num_free:
            places = np.linspace(0, len(others) - 1, num_free).round()
        return [*first[:max_curves], *(others[int(place)] for place in places)]
    sign = sign_of(goal)
    ranked = [
        sorted(part, key=lambda curve: -_peak(sign * curve.value)) for part in (first, others)
    ]
    return [*ranked[0], *ranked[1]][:max_curves]


def _peak(values: Floats) -> float:
    finite = values[np.isfinite(values)]
    if not len(finite):
        return -math.inf
    return float(finite.max())


def _best_so_far(
    curves: Sequence[Curve],
    axis: Axis,
    goal: Goal | None,
    values_of: Mapping[int, float],
    max_points: int = 1000,
) -> Floats:
    """Walk along the axis over all curves and note each x at which the best value improves."""
    if not curves or goal is None:
        return np.empty((0, 2))
    sign = sign_of(goal)
    ceilings = {trial: sign * value for trial, value in values_of.items()}
    climbs = [
        (curve.x(axis), np.minimum(sign * curve.value, ceilings.get(curve.trial, math.inf)))
        for curve in curves
    ]
    # Sorting many short curves takes less time than shortening each of them.
    if sum(map(len, curves)) > _SHORT * len(curves):
        climbs = [_climb(x, values) for x, values in climbs]
    x, values = (np.concatenate(columns) for columns in zip(*climbs, strict=True))
    values = np.where(np.isfinite(values), values, -np.inf)
    order = np.lexsort((values, x))
    x = x[order]
    running = np.maximum.accumulate(values[order])
    last_of_x = np.append(x[1:] != x[:-1], True)
    x = x[last_of_x]
    running = running[last_of_x]
    kept = running > np.concatenate(([-np.inf], running[:-1]))
    kept[-1] = np.isfinite(running[-1])
    steps = np.column_stack((x[kept], sign * running[kept]))
    return steps[thin_indices(steps[:, 1], max_points)]


def _climb(x: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Return the points that may be the best of all.

    Better than all before in their curve, or the last.
    """
    values = np.where(np.isfinite(values), values, -np.inf)
    if (x[1:] < x[:-1]).any():
        return x, values
    kept = np.append(values[:-1] > np.maximum.accumulate(np.append(-np.inf, values[:-2])), True)
    return x[kept], values[kept]


def _band(curves: Sequence[Curve], axis: Axis, num_places: int = 120) -> Band:
    x_low = min(float(curve.x(axis).min()) for curve in curves)
    x_high = max(float(curve.x(axis).max()) for curve in curves)
    places = np.linspace(x_low, x_high, num_places)
    table = np.full((len(curves), num_places), np.nan)
    for row, curve in enumerate(curves):
        finite = np.isfinite(curve.value)
        if finite.any():
            x, value = curve.x(axis)[finite], curve.value[finite]
            table[row] = np.interp(places, x, value, left=np.nan, right=np.nan)
    filled = np.isfinite(table).any(axis=0)
    if not filled.any():
        return Band(places[:0], places[:0], places[:0], places[:0], len(curves))
    low, middle, high = np.nanquantile(table[:, filled], (0.1, 0.5, 0.9), axis=0)
    return Band(places[filled], low, middle, high, len(curves))
