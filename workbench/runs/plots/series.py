"""Series: the events of a run turned into columns as they arrive.

Every (trial, metric) has one column of (step, epoch, time, value). Columns are thinned while they
grow, so that memory stays bounded however long a run is, and thinned again when they are read, so
that what is drawn stays bounded however many trials there are. Extremes, ends and gaps survive
every thinning, so a curve with fewer points looks the same. `history` knows the trials, and
`figures` draws the series.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workbench.experiment import Experiment
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import Event, TrialReported
from workbench.store.history.reports import Floats, NumberColumn, Reports
from workbench.store.history.run_clock import RunClock

Axis = Literal["step", "epoch", "time"]

AXES: tuple[Axis, ...] = ("step", "epoch", "time")
THROUGHPUT = "samples_per_s"

_WIDTH = 4  # step, epoch, time_s, value
_AXIS_COLUMN: dict[Axis, int] = {"step": 0, "epoch": 1, "time": 2}
_VALUE = 3
MIN_POINTS = 8


@dataclass(frozen=True, eq=False)
class Curve:
    """One metric of one trial.

    Attributes:
        trial: Number of the trial.
        metric: Name of the metric.
        points: One row per report: step, epoch (NaN where unknown), run time in seconds, value.
    """

    trial: int
    metric: str
    points: Floats

    def x(self, axis: Axis) -> Floats:
        """Return the column that the curve is drawn over."""
        return self.points[:, _AXIS_COLUMN[axis]]

    @property
    def value(self) -> Floats:
        """The values, in the order of the reports. NaN and infinity as reported."""
        return self.points[:, _VALUE]

    def __len__(self) -> int:
        return len(self.points)

    def thinned(self, max_points: int = 2000) -> Curve:
        """Return the curve with at most `max_points` points.

        See `thin_indices` for which are kept.
        """
        return Curve(self.trial, self.metric, self.points[thin_indices(self.value, max_points)])


class Place(NamedTuple):
    """How far a reader has seen a curve."""

    generation: int
    num_points: int


BEGINNING = Place(-1, 0)


class _Column:
    """The growing points of one (trial, metric)."""

    __slots__ = ("attempt", "buffer", "capacity", "generation")

    def __init__(self, capacity: int, attempt: int) -> None:
        self.buffer = array("d")
        self.capacity = capacity
        self.attempt = attempt
        self.generation = 0  # incremented when points that a reader may have seen are removed

    def points(self) -> Floats:
        return np.array(self.buffer, dtype=np.float64).reshape(-1, _WIDTH)

    def compact(self, max_points: int) -> None:
        self.generation += 1
        points = self.points()
        self.buffer = array("d", points[thin_indices(points[:, _VALUE], max_points)].tobytes())

    def rewind(self, attempt: int, step: float) -> None:
        """Remove the points that a later attempt, which resumes from an earlier step, repeats."""
        self.attempt = attempt
        self.generation += 1
        points = self.points()
        self.buffer = array("d", points[points[:, 0] < step].tobytes())


class RunSeries:
    """The columns of a run, filled event by event."""

    def __init__(
        self,
        experiment: Experiment,
        *,
        clock: RunClock | None = None,
        column_capacity: int = 8192,
        total_capacity: int = 4_000_000,
    ) -> None:
        """Make empty columns.

        Args:
            experiment: What the run tunes. Its objectives define which direction is better.
            clock: The clock of the run, which has noted each event before it is added. None makes
                a new one.
            column_capacity: Points that one column may hold before it is thinned to half.
            total_capacity: Points that all columns may hold. Each point takes 32 bytes.
        """
        self.experiment = experiment
        self._clock = clock or RunClock()
        self._notes_events = clock is None
        self._metrics: dict[str, dict[int, _Column]] = {}
        self._throughput: dict[int, _Column] = {}
        self._column_capacity = max(column_capacity, 2 * MIN_POINTS)
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
        """Process the next events of the run, in order."""
        for event in events:
            if self._notes_events:
                self._clock.note(event)
            if isinstance(event, TrialReported):
                self._append(event)

    def add_reports(self, trial: int, reports: Reports) -> None:
        """Process the next reports of one trial in bulk, fast enough for a million of them."""
        times = reports.numbers["time_unix_s"].values
        if self._notes_events:
            self._clock.note_time(float(times[0]))
            self._clock.note_time(float(times[-1]))
        # Attempt by attempt, because each one replaces the points that it repeats.
        attempts = reports.attempts
        if (attempts != attempts[0]).any():
            edges = np.flatnonzero(np.diff(attempts)) + 1
            for places in np.split(np.arange(len(reports)), edges):
                self.add_reports(trial, reports.at(slice(places[0], places[-1] + 1)))
            return
        attempt = int(attempts[0])
        places = np.empty((len(reports), _WIDTH))
        places[:, 0], places[:, 2] = reports.numbers["step"].values, self._clock.at_all(times)
        epoch = reports.numbers.get("epoch")
        places[:, 1] = math.nan if epoch is None else epoch.values
        for name, numbers in reports.values.items():
            if numbers.is_known.any():
                self._put_many(self._metrics.setdefault(name, {}), trial, attempt, places, numbers)
        throughput = reports.numbers.get(THROUGHPUT)
        if throughput is not None and throughput.is_known.any():
            self._put_many(self._throughput, trial, attempt, places, throughput)

    def _put_many(
        self,
        columns: dict[int, _Column],
        trial: int,
        attempt: int,
        places: Floats,
        numbers: NumberColumn,
    ) -> None:
        """Add a metric. `places` has room for its values, and may be used again afterwards."""
        places[:, _VALUE] = numbers.values
        if not numbers.is_known.all():
            places = places[numbers.is_known]
        column = columns.get(trial)
        if column is None:
            column = columns[trial] = _Column(self._column_capacity, attempt)
        elif attempt > column.attempt:
            column.rewind(attempt, float(places[0, 0]))
        column.buffer.frombytes(places.tobytes())
        if len(column.buffer) > column.capacity * _WIDTH:
            column.compact(column.capacity // 2)
        self._num_appended += len(places)
        if self._num_appended > self._total_capacity:
            self._make_room()

    def curve(self, trial: int, metric: str) -> Curve:
        """Return one metric of one trial. Its curve is empty if nothing was reported."""
        column = self._columns_of(metric).get(trial)
        if column is None:
            return Curve(trial, metric, np.empty((0, _WIDTH)))
        return Curve(trial, metric, column.points())

    def curves(self, metric: str) -> list[Curve]:
        """Return one metric of every trial that reported it, by trial number.

        `THROUGHPUT` is one.
        """
        columns = self._columns_of(metric)
        return [Curve(trial, metric, columns[trial].points()) for trial in sorted(columns)]

    def since(self, metric: str, trial: int, place: Place) -> tuple[Floats, Place]:
        """Return the points that were added to a curve since it was last read.

        Args:
            metric: A metric, or `THROUGHPUT`.
            trial: Number of the trial.
            place: The result of the last call, or `BEGINNING` at first.

        Returns:
            The new points, and where the next call starts. If points that were seen have changed
            since, for example by thinning, the new place has another generation, and all points are
            returned.
        """
        column = self._columns_of(metric).get(trial)
        if column is None:
            return np.empty((0, _WIDTH)), BEGINNING
        first = 0
        if place.generation == column.generation:
            first = place.num_points  # the column was not thinned since, so only new points follow
        new = np.array(column.buffer[first * _WIDTH :], dtype=np.float64).reshape(-1, _WIDTH)
        return new, Place(column.generation, first + len(new))

    def thinned(self, max_points: int = 2000) -> dict[str, list[Curve]]:
        """Return every metric of every trial, each curve with at most `max_points` points."""
        return {
            name: [curve.thinned(max_points) for curve in self.curves(name)]
            for name in self.metrics
        }

    def _columns_of(self, metric: str) -> dict[int, _Column]:
        if metric == THROUGHPUT:
            return self._throughput
        return self._metrics.get(metric, {})

    def _append(self, report: TrialReported) -> None:
        epoch = math.nan
        if report.epoch is not None:
            epoch = float(report.epoch)
        place = (float(report.step), epoch, self._clock.at(report.time_unix_s))
        trial = report.trial
        attempt = report.attempt
        for name, value in report.values.items():
            self._put(self._metrics.setdefault(name, {}), trial, attempt, place, float(value))
        if report.samples_per_s is not None:
            self._put(self._throughput, trial, attempt, place, float(report.samples_per_s))

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
            column = columns[trial] = _Column(self._column_capacity, attempt)
        elif attempt > column.attempt:
            column.rewind(attempt, place[0])
        column.buffer.extend((*place, value))
        if len(column.buffer) > column.capacity * _WIDTH:
            column.compact(column.capacity // 2)
        self._num_appended += 1
        if self._num_appended > self._total_capacity:
            self._make_room()

    def _make_room(self) -> None:
        """Halve the column capacity until all columns fit in half of the total capacity."""
        while (
            self.num_points > self._total_capacity // 2 and self._column_capacity > 2 * MIN_POINTS
        ):
            self._column_capacity = max(self._column_capacity // 2, 2 * MIN_POINTS)
            for column in self._columns():
                column.capacity = self._column_capacity
                if len(column.buffer) > column.capacity * _WIDTH:
                    column.compact(column.capacity // 2)
        self._num_appended = min(self.num_points, self._total_capacity // 2)

    def _columns(self) -> list[_Column]:
        return [
            column for by_trial in self._metrics.values() for column in by_trial.values()
        ] + list(self._throughput.values())


def thin_indices(values: NDArray[np.float64], max_points: int) -> NDArray[np.intp]:
    """Choose at most `max_points` points that look the same when drawn: min-max thinning.

    The points are cut into equal groups. Each keeps its smallest and its largest, and one
    that is not finite if there is any, so that gaps stay gaps. The first and the last are always
    kept.

    Args:
        values: One value a point, in the order of drawing. NaN and infinity are allowed.
        max_points: At least 8.

    Returns:
        Indices in ascending order.

    Raises:
        ExperimentError: If `max_points` is below 8.
    """
    if max_points < MIN_POINTS:
        raise ExperimentError(
            f"{max_points} points cannot hold ends, extremes and gaps",
            field="max_points",
            allowed=f"at least {MIN_POINTS}",
        )
    count = len(values)
    if count <= max_points:
        return np.arange(count)
    finite = np.isfinite(values)
    points_per_group = 2
    if not finite.all():
        points_per_group = 3  # the gap as well
    num_groups = (max_points - 2) // points_per_group
    width = -(-count // num_groups)
    padding = (0, -count % width)
    lows = np.pad(np.where(finite, values, np.inf), padding, constant_values=np.inf).reshape(
        -1, width
    )
    highs = np.pad(np.where(finite, values, -np.inf), padding, constant_values=-np.inf).reshape(
        -1, width
    )
    gaps = np.pad(~finite, padding, constant_values=False).reshape(-1, width)
    starts = np.arange(len(lows)) * width
    kept = [np.array([0, count - 1]), (starts + gaps.argmax(axis=1))[gaps.any(axis=1)]]
    with_values = np.isfinite(lows).any(axis=1)
    kept += [
        (starts + lows.argmin(axis=1))[with_values],
        (starts + highs.argmax(axis=1))[with_values],
    ]
    return np.unique(np.concatenate(kept))
