"""The chart of a run for one front end, or of several runs together.

For one run everything is sent at first, then only what is new. Curves are thinned before they are
first sent. After that, new points are appended, until a curve is so long that sending it again,
thinned, is cheaper to draw. For several runs, their best values so far and a table are sent.
"""

from __future__ import annotations

import contextlib
import json
import math
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from workbench.experiment.goals import Goal
from workbench.foundation.events import TrialState
from workbench.foundation.python_values import plain
from workbench.runs.comparison import Side, comparison_rows, labels_of
from workbench.runs.plots.prepare import CurvesData, default_metric
from workbench.runs.plots.prepare_comparison import AXIS_TITLES, goal_in_any, prepare_best_so_far
from workbench.runs.plots.series import AXES, BEGINNING, MIN_POINTS, Curve, Place
from workbench.store.history.history import NO_RESULT
from workbench.views.live_feed.protocol import (
    BestSoFar,
    ChartQuery,
    ChartUpdate,
    Column,
    ComparedFact,
    ComparedRun,
    Comparison,
    ComparisonQuery,
    CurveUpdate,
    Joint,
    QuantileBand,
    Update,
)
from workbench.views.live_feed.run_tail import RunTail
from workbench.views.live_feed.trial_table import matching_trials

_ALIGNMENT = 8
_LENGTH = struct.Struct("<I")


class Numbers:
    """The numeric columns of a frame, concatenated."""

    def __init__(self) -> None:
        """Start without columns."""
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, values: Sequence[float | None] | np.ndarray, *, exact: bool = False) -> Column:
        """Append a column.

        Args:
            values: Its numbers. None becomes NaN.
            exact: Store 64 instead of 32 bits per number, as long times need.
        """
        if not isinstance(values, np.ndarray):
            values = np.array(
                [math.nan if value is None else value for value in values], dtype=np.float64
            )
        raw = values.astype("<f8" if exact else "<f4").tobytes()
        column = Column(offset=self._size, count=len(values), type="f64" if exact else "f32")
        self._parts.append(raw + b"\0" * (-len(raw) % _ALIGNMENT))
        self._size += len(self._parts[-1])
        return column

    def to_bytes(self) -> bytes:
        """Return all columns as bytes."""
        return b"".join(self._parts)


def encode(update: Update, numbers: Numbers) -> bytes:
    """Encode an update as a frame.

    Args:
        update: The update. Parts that are None are omitted.
        numbers: The columns that it refers to.
    """
    parts = {name: part for name, part in update.model_dump().items() if part is not None}
    header = json.dumps(plain(parts), allow_nan=False, separators=(",", ":")).encode()
    header += b" " * (-(len(header) + _LENGTH.size) % _ALIGNMENT)
    return b"".join((_LENGTH.pack(len(header)), header, numbers.to_bytes()))


MAX_CURVES = 60
MAX_CURVES_OF_ALL = 1_000
_MAX_POINTS = 16_000
_GROWTH = 2
_MIN_POINTS = 200
_MAX_FACTS = 300


@dataclass
class _Sent:
    """What a front end has of one curve."""

    place: Place
    num_points: int
    num_thinned: int  # how many of them came from thinning


class ChartUpdates:
    """Builds the updates of one chart for one front end, and remembers what was sent."""

    def __init__(self) -> None:
        """Start with a front end that has nothing."""
        self._key: object = None
        self._overview: CurvesData | None = None
        self._sent: dict[int, _Sent] = {}
        self._states: tuple[TrialState, ...] = ()

    def next_update(self, tail: RunTail, query: ChartQuery, numbers: Numbers) -> ChartUpdate | None:
        """Return what has changed since the last update.

        Args:
            tail: The run, locked by the caller.
            query: What the front end shows.
            numbers: Receives the points.

        Returns:
            The update, or None if nothing has changed.

        Raises:
            ExperimentError: If no trial has reported the metric.
            ArgumentError: If the filter cannot be read.
        """
        metric = query.metric or default_metric(tail.data.experiment)
        most = {"best": MAX_CURVES, "chosen": len(query.chosen), "all": MAX_CURVES_OF_ALL}[
            query.shown
        ]
        trials = None
        if query.text.strip():
            trials = frozenset(matching_trials(tail.data.history, query.text))
        data = tail.overview(
            metric, query.axis or None, max(most, 1), chosen=query.chosen, trials=trials
        )
        key = (tail.run_id, metric, data.axis, data.x_unit)
        if key != self._key:
            self._key, self._overview, self._sent = key, None, {}
        is_new = data is not self._overview
        curves = self._resend(tail, metric, data, numbers) if is_new else []
        curves += self._append(tail, metric, data, numbers, {curve.trial for curve in curves})
        shown = tuple(line.trial for line in data.lines)
        trials = tail.data.history.trials
        states: tuple[TrialState, ...] = tuple(
            trials[trial].state if trial in trials else "running" for trial in shown
        )
        if not is_new and not curves and states == self._states:
            return None
        workers = tuple(trials[trial].plan.workers if trial in trials else None for trial in shown)
        self._overview, self._states = data, states
        return ChartUpdate(
            metric=metric,
            axis=data.axis,
            x_title=data.x_title,
            y_title=data.y_title,
            goal=data.goal,
            target=data.target,
            shown=shown,
            states=states,
            no_result=tuple(
                trial
                for trial, state in zip(shown, states, strict=True)
                if state == "complete" and tail.data.history.reason_of(trials[trial]) in NO_RESULT
            ),
            num_workers=workers if len({*workers} - {None}) > 1 else (),
            joints=tuple(
                Joint(trial=line.trial, x=line.joint[0], y=line.joint[1])
                for line in data.lines
                if line.joint is not None
            ),
            path=data.path,
            best_trial=data.best_trial,
            y_range=data.y_range,
            num_trials=data.num_trials,
            curves=tuple(curves),
            is_overview=is_new,
            band=_band(data, numbers) if is_new else None,
            best=_best(data, numbers) if is_new else None,
        )

    def _resend(
        self, tail: RunTail, metric: str, data: CurvesData, numbers: Numbers
    ) -> list[CurveUpdate]:
        """Send curves in full: new ones, rewritten ones, and ones that grew too long."""
        drawn = []
        points_each = max(_MAX_POINTS // max(len(data.lines), 1), MIN_POINTS)
        shown = {line.trial for line in data.lines}
        self._sent = {trial: sent for trial, sent in self._sent.items() if trial in shown}
        for line in data.lines:
            if self._can_append(tail, metric, line.trial):
                continue
            # From the columns: the overview may be a second old.
            points, place = tail.data.series.since(metric, line.trial, BEGINNING)
            thinned = Curve(line.trial, metric, points).thinned(points_each).points
            curve = _curve(line.trial, 0, thinned, data, numbers)
            drawn.append(curve)
            self._sent[line.trial] = _Sent(place, curve.x.count, curve.x.count)
        return drawn

    def _can_append(self, tail: RunTail, metric: str, trial: int) -> bool:
        """Return whether new points can be appended to what the front end has of a curve."""
        sent = self._sent.get(trial)
        if sent is None:
            return False
        _, place = tail.data.series.since(metric, trial, sent.place)
        is_short = sent.num_points <= max(_MIN_POINTS, _GROWTH * sent.num_thinned)
        return is_short and place.generation == sent.place.generation

    def _append(
        self, tail: RunTail, metric: str, data: CurvesData, numbers: Numbers, drawn: set[int]
    ) -> list[CurveUpdate]:
        appended = []
        for trial, sent in self._sent.items():
            if trial in drawn:
                continue
            points, place = tail.data.series.since(metric, trial, sent.place)
            if place == sent.place:
                continue
            start = sent.num_points
            if place.generation != sent.place.generation:
                start = 0
                most = max(sent.num_thinned, _MIN_POINTS)
                points = Curve(trial, metric, points).thinned(most).points
            curve = _curve(trial, start, points, data, numbers)
            appended.append(curve)
            sent.place, sent.num_points = place, start + curve.x.count
        return appended


def _curve(
    trial: int, start: int, points: np.ndarray, data: CurvesData, numbers: Numbers
) -> CurveUpdate:
    x = points[:, AXES.index(data.axis)] / data.x_unit
    is_finite = np.isfinite(x)
    return CurveUpdate(
        trial=trial,
        start=start,
        x=numbers.add(x[is_finite], exact=True),
        y=numbers.add(points[is_finite, -1]),
    )


def _band(data: CurvesData, numbers: Numbers) -> QuantileBand | None:
    band = data.band
    return band and QuantileBand(
        x=numbers.add(band.x, exact=True),
        low=numbers.add(band.low),
        middle=numbers.add(band.middle),
        high=numbers.add(band.high),
        num_trials=band.num_trials,
    )


def _best(data: CurvesData, numbers: Numbers) -> BestSoFar | None:
    if not data.best_x:
        return None
    return BestSoFar(x=numbers.add(data.best_x, exact=True), y=numbers.add(data.best_y))


def comparison(tails: Sequence[RunTail], query: ComparisonQuery, numbers: Numbers) -> Comparison:
    """Return some runs side by side.

    Args:
        tails: The runs. They are locked here, in an order that is always the same.
        query: By what they are compared.
        numbers: Receives the curves.
    """
    with contextlib.ExitStack() as stack:
        for tail in sorted(tails, key=lambda tail: tail.run_id):
            stack.enter_context(tail.lock)
        sides = [Side(tail.row, tail.data.history) for tail in tails]
        first = (item.metric for side in sides for item in side.history.objectives)
        goal = goal_in_any((side.history for side in sides), query.metric or None)
        further = (name for tail in tails for name in tail.data.series.metrics)
        return Comparison(
            axis=query.axis,
            x_title=AXIS_TITLES[query.axis],
            runs=tuple(
                _compared(tail, _noting_reading(tail, label), query, goal, numbers)
                for tail, label in zip(tails, labels_of(sides), strict=True)
            ),
            metrics=tuple(dict.fromkeys([*first, *further])),
            facts=tuple(ComparedFact(**asdict(row)) for row in comparison_rows(sides)[:_MAX_FACTS]),
        )


def _noting_reading(tail: RunTail, label: str) -> str:
    """Return the name of a run with how far it has been read, while that is not the whole."""
    reading = tail.data.history.reading
    if reading is None:
        return label
    return f"{label} ({reading.describe()})"


def _compared(
    tail: RunTail, label: str, query: ComparisonQuery, goal: Goal | None, numbers: Numbers
) -> ComparedRun:
    data = tail.cached(
        ("comparison", query.metric, query.axis, goal),
        lambda: prepare_best_so_far(
            tail.data, metric=query.metric or None, axis=query.axis, goal=goal
        ),
        every_s=1.0,
    )
    return ComparedRun(
        run_id=tail.run_id,
        label=label,
        metric=data.metric,
        goal=data.goal,
        x=numbers.add(data.x, exact=True),
        y=numbers.add(data.y),
    )
