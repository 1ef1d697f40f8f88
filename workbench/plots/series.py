"""Series: the events of a run turned into columns, as they come.

Every (trial, metric) has one column of (step, epoch, time, value). Columns are thinned while they grow, so
that memory stays bounded however long a run is, and thinned again when they are read, so that what is
drawn stays bounded however many trials there are. Extremes, ends and gaps survive every thinning.
What a trial is, and which one is best, is left to `history`; drawing is left to `figures`.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic_core import from_json

from workbench.errors import ExperimentError
from workbench.events import Event, TrialReported
from workbench.experiment import Experiment

Axis = Literal["step", "epoch", "time"]
Goal = Literal["maximize", "minimize"]
Floats = NDArray[np.float64]
RawRow = tuple[int, str, int | None, float, str | bytes]

AXES: tuple[Axis, ...] = ("step", "epoch", "time")
FEWEST_POINTS = 8

_WIDTH = 4  # step, epoch, time_s, value
_AXIS_COLUMN: dict[Axis, int] = {"step": 0, "epoch": 1, "time": 2}
_VALUE = 3


@dataclass(frozen=True, eq=False)
class Curve:
    """One metric of one trial.

    Attributes:
        trial: Number of the trial.
        metric: Name of the metric.
        points: One row a report: step, epoch (NaN where unknown), seconds since the run began, value.
    """

    trial: int
    metric: str
    points: Floats

    def x(self, axis: Axis) -> Floats:
        """Return the column that the curve is drawn over."""
        return self.points[:, _AXIS_COLUMN[axis]]

    @property
    def value(self) -> Floats:
        """The values, in the order of the reports; NaN and infinity as reported."""
        return self.points[:, _VALUE]

    def __len__(self) -> int:
        return len(self.points)

    def thinned(self, max_points: int = 2000) -> Curve:
        """Return the curve with at most `max_points` points; see `thin_indices` for which are kept."""
        return Curve(self.trial, self.metric, self.points[thin_indices(self.value, max_points)])


@dataclass(frozen=True, eq=False)
class Band:
    """What many trials did together: quantiles over the trials at each x.

    Attributes:
        x: Places on the axis, ascending.
        low: The 10 % quantile.
        middle: The median.
        high: The 90 % quantile.
        num_trials: How many trials went into it.
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
        curves: At most `max_curves`, best first.
        band: Quantiles over all trials, or None over time and where every trial has its own curve.
        best: Two columns, x and the best value that any trial had reached there: steps of a stair.
        num_trials: How many trials reported the metric.
    """

    curves: tuple[Curve, ...]
    band: Band | None
    best: Floats
    num_trials: int


class _Column:
    """The growing points of one (trial, metric)."""

    __slots__ = ("attempt", "buffer", "capacity")

    def __init__(self, capacity: int) -> None:
        self.buffer = array("d")
        self.capacity = capacity
        self.attempt = 0

    def points(self) -> Floats:
        return np.array(self.buffer, dtype=np.float64).reshape(-1, _WIDTH)

    def compact(self, max_points: int) -> None:
        points = self.points()
        self.buffer = array("d", points[thin_indices(points[:, _VALUE], max_points)].tobytes())

    def rewind(self, attempt: int, step: float) -> None:
        """Forget what a later attempt, which resumes from an earlier step, does again."""
        self.attempt = attempt
        points = self.points()
        self.buffer = array("d", points[points[:, 0] < step].tobytes())


class RunSeries:
    """The columns of a run, filled event by event."""

    def __init__(
        self, experiment: Experiment, *, column_capacity: int = 8192, total_capacity: int = 4_000_000
    ) -> None:
        """Make empty columns.

        Args:
            experiment: What the run tunes; its objectives say which way is better.
            column_capacity: Points that one column may hold before it is thinned to half.
            total_capacity: Points that all columns may hold; each point takes 32 bytes.
        """
        self.experiment = experiment
        self.start_unix_s: float | None = None
        self._metrics: dict[str, dict[int, _Column]] = {}
        self._throughput: dict[int, _Column] = {}
        self._column_capacity = max(column_capacity, 2 * FEWEST_POINTS)
        self._total_capacity = total_capacity
        self._num_appended = 0

    @property
    def metrics(self) -> list[str]:
        """Every metric reported so far, objectives first, then as they came."""
        first = [objective.metric for objective in self.experiment.objectives]
        return [name for name in first if name in self._metrics] + [
            name for name in self._metrics if name not in first
        ]

    @property
    def num_points(self) -> int:
        """Points held now, over all columns."""
        return sum(len(column.buffer) for column in self._columns()) // _WIDTH

    def add(self, events: Iterable[Event]) -> None:
        """Take in the next events of the run, in their order."""
        for event in events:
            if self.start_unix_s is None:
                self.start_unix_s = event.time_unix_s
            if isinstance(event, TrialReported):
                self._append(
                    event.trial,
                    event.time_unix_s,
                    event.attempt,
                    event.step,
                    event.epoch,
                    event.values,
                    event.samples_per_s,
                )

    def add_rows(self, rows: Iterable[RawRow | Sequence[Any]]) -> None:
        """Take in the next rows of a store, without building events from them.

        Args:
            rows: (seq, type, trial, time_unix_s, payload), the payload being the JSON text of the event.
        """
        for _, kind, trial, time_unix_s, payload in rows:
            if self.start_unix_s is None:
                self.start_unix_s = time_unix_s
            if kind != "trial_reported" or trial is None:
                continue
            report = from_json(payload)
            self._append(
                trial,
                time_unix_s,
                report.get("attempt", 0),
                report["step"],
                report.get("epoch"),
                report.get("values", {}),
                report.get("samples_per_s"),
            )

    def curve(self, trial: int, metric: str) -> Curve:
        """Return one metric of one trial; a curve without points where nothing was reported."""
        column = self._metrics.get(metric, {}).get(trial)
        return Curve(trial, metric, column.points() if column else np.empty((0, _WIDTH)))

    def curves(self, metric: str) -> list[Curve]:
        """Return one metric of every trial that reported it, by trial number."""
        columns = self._metrics.get(metric, {})
        return [Curve(trial, metric, columns[trial].points()) for trial in sorted(columns)]

    def throughputs(self) -> list[Curve]:
        """Return samples per second of every trial that reported it, by trial number."""
        return [
            Curve(trial, "samples_per_s", self._throughput[trial].points())
            for trial in sorted(self._throughput)
        ]

    def thinned(self, max_points: int = 2000) -> dict[str, list[Curve]]:
        """Return every metric of every trial, each curve with at most `max_points` points."""
        return {name: [curve.thinned(max_points) for curve in self.curves(name)] for name in self.metrics}

    def _append(
        self,
        trial: int,
        time_unix_s: float,
        attempt: int,
        step: int,
        epoch: float | None,
        values: dict[str, Any],
        samples_per_s: float | None,
    ) -> None:
        place = (
            float(step),
            math.nan if epoch is None else float(epoch),
            time_unix_s - (self.start_unix_s or 0.0),
        )
        for name, value in values.items():
            columns = self._metrics.get(name)
            if columns is None:
                columns = self._metrics[name] = {}
            self._put(columns, trial, attempt, place, float(value))
        if samples_per_s is not None:
            self._put(self._throughput, trial, attempt, place, float(samples_per_s))

    def _put(
        self,
        columns: dict[int, _Column],
        trial: int,
        attempt: int,
        place: tuple[float, float, float],
        value: float,
    ) -> None:
        column = columns.get(trial)
        if column is None:
            column = columns[trial] = _Column(self._column_capacity)
        elif attempt > column.attempt:
            column.rewind(attempt, place[0])
        column.buffer.extend((*place, value))
        if len(column.buffer) > column.capacity * _WIDTH:
            column.compact(column.capacity // 2)
        self._num_appended += 1
        if self._num_appended > self._total_capacity:
            self._make_room()

    def _make_room(self) -> None:
        """Halve what columns may hold until all of them together fit in half of the capacity."""
        while self.num_points > self._total_capacity // 2 and self._column_capacity > 2 * FEWEST_POINTS:
            self._column_capacity = max(self._column_capacity // 2, 2 * FEWEST_POINTS)
            for column in self._columns():
                column.capacity = self._column_capacity
                if len(column.buffer) > column.capacity * _WIDTH:
                    column.compact(column.capacity // 2)
        self._num_appended = min(self.num_points, self._total_capacity // 2)

    def _columns(self) -> list[_Column]:
        return [column for by_trial in self._metrics.values() for column in by_trial.values()] + list(
            self._throughput.values()
        )


def thin_indices(values: Floats, max_points: int) -> NDArray[np.intp]:
    """Choose at most `max_points` points that look the same when drawn: min-max thinning.

    The points are cut into equal groups; of each the smallest and the largest are kept, and one that is
    not finite if there is any, so that gaps stay gaps. The first and the last are always kept.

    Args:
        values: One value a point, in the order of drawing; may hold NaN and infinity.
        max_points: At least 8.

    Returns:
        Indices in ascending order.

    Raises:
        ExperimentError: If `max_points` is below 8.
    """
    if max_points < FEWEST_POINTS:
        raise ExperimentError(
            f"{max_points} points cannot hold ends, extremes and gaps",
            field="max_points",
            allowed=f"at least {FEWEST_POINTS}",
        )
    count = len(values)
    if count <= max_points:
        return np.arange(count)
    finite = np.isfinite(values)
    num_groups = (max_points - 2) // (2 if finite.all() else 3)
    width = -(-count // num_groups)
    padding = (0, -count % width)
    lows = np.pad(np.where(finite, values, np.inf), padding, constant_values=np.inf).reshape(-1, width)
    highs = np.pad(np.where(finite, values, -np.inf), padding, constant_values=-np.inf).reshape(-1, width)
    gaps = np.pad(~finite, padding, constant_values=False).reshape(-1, width)
    starts = np.arange(len(lows)) * width
    kept = [np.array([0, count - 1]), (starts + gaps.argmax(axis=1))[gaps.any(axis=1)]]
    with_values = np.isfinite(lows).any(axis=1)
    kept += [(starts + lows.argmin(axis=1))[with_values], (starts + highs.argmax(axis=1))[with_values]]
    return np.unique(np.concatenate(kept))


def bundle(
    curves: Sequence[Curve],
    axis: Axis,
    goal: Goal,
    *,
    max_curves: int = 60,
    max_points: int = 20_000,
    always: Iterable[int] = (),
) -> Bundle:
    """Bound the curves of one metric, whatever their number.

    Args:
        curves: One curve a trial.
        axis: What they will be drawn over.
        goal: Which way is better; NaN and infinity never are.
        max_curves: How many trials are kept one by one.
        max_points: Points in all kept curves together.
        always: Trials to keep however bad they are.

    Returns:
        The bounded curves.
    """
    usable = [usable for curve in curves if len(usable := _where_known(curve, axis))]
    sign = 1.0 if goal == "maximize" else -1.0
    wanted = set(always)
    ranked = sorted(usable, key=lambda curve: (curve.trial not in wanted, -_peak(sign * curve.value)))
    kept = ranked[:max_curves]
    points_each = max(max_points // max(len(kept), 1), FEWEST_POINTS)
    # Trials run one after another: over time, a quantile over trials would compare their beginnings and ends.
    band = _band(usable, axis) if len(usable) > max_curves and axis != "time" else None
    return Bundle(
        curves=tuple(curve.thinned(points_each) for curve in kept),
        band=band,
        best=_best_so_far(usable, axis, sign),
        num_trials=len(usable),
    )


def _where_known(curve: Curve, axis: Axis) -> Curve:
    known = np.isfinite(curve.x(axis))
    return curve if known.all() else Curve(curve.trial, curve.metric, curve.points[known])


def _peak(values: Floats) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.max()) if len(finite) else -math.inf


def _best_so_far(curves: Sequence[Curve], axis: Axis, sign: float, max_points: int = 1000) -> Floats:
    """Walk along the axis over all curves and note each x at which the best value improves."""
    if not curves:
        return np.empty((0, 2))
    x = np.concatenate([curve.x(axis) for curve in curves])
    values = sign * np.concatenate([curve.value for curve in curves])
    values = np.where(np.isfinite(values), values, -np.inf)
    order = np.lexsort((values, x))
    x, running = x[order], np.maximum.accumulate(values[order])
    last_of_x = np.append(x[1:] != x[:-1], True)
    x, running = x[last_of_x], running[last_of_x]
    kept = running > np.concatenate(([-np.inf], running[:-1]))
    kept[-1] = np.isfinite(running[-1])
    steps = np.column_stack((x[kept], sign * running[kept]))
    return steps[thin_indices(steps[:, 1], max_points)]


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
