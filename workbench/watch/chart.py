"""The chart of a run as one front end sees it: at first everything, then only what came.

Curves are thinned before they are sent for the first time. From then on their new points are appended as
they come, until a curve has grown so long that sending it again, thinned, is cheaper for whoever draws it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.events import TrialState
from workbench.plots.prepare import CurvesData
from workbench.plots.series import AXES, BEGINNING, Curve, Place
from workbench.plots.thinning import FEWEST_POINTS
from workbench.watch.frames import Numbers
from workbench.watch.protocol import BandPicture, ChartLook, ChartPicture, CurvePicture, StairPicture
from workbench.watch.tail import RunTail

MAX_CURVES = 60
MOST_CURVES = 1_000
_MAX_POINTS = 16_000
_GROWTH = 2
_MIN_POINTS = 200


@dataclass
class _Sent:
    """What a front end holds of one curve."""

    place: Place
    num_points: int
    num_thinned: int  # of them, what the thinned curve had


class ChartPainter:
    """Paints one chart for one front end, and remembers what that has."""

    def __init__(self) -> None:
        """Begin with a front end that has nothing."""
        self._key: object = None
        self._overview: CurvesData | None = None
        self._sent: dict[int, _Sent] = {}
        self._states: tuple[TrialState, ...] = ()

    def paint(self, tail: RunTail, look: ChartLook, numbers: Numbers) -> ChartPicture | None:
        """Paint what has changed since the last time.

        Args:
            tail: The run, locked by the caller.
            look: What is shown of it.
            numbers: Where the points go.

        Returns:
            The picture, or None where nothing has changed.

        Raises:
            ExperimentError: If nobody has reported the metric.
        """
        metric = look.metric or tail.data.experiment.objectives[0].metric
        most = {"best": MAX_CURVES, "chosen": len(look.chosen), "all": MOST_CURVES}[look.shown]
        data = tail.overview(metric, look.axis or None, max(most, 1), look.chosen)
        key = (tail.run_id, metric, data.axis, data.x_unit)
        if key != self._key:
            self._key, self._overview, self._sent = key, None, {}
        is_new = data is not self._overview
        curves = self._draw_again(tail, metric, data, numbers) if is_new else []
        curves += self._append(tail, metric, data, numbers, {curve.trial for curve in curves})
        shown = tuple(line.trial for line in data.lines)
        trials = tail.data.history.trials
        states: tuple[TrialState, ...] = tuple(
            trials[trial].state if trial in trials else "running" for trial in shown
        )
        if not is_new and not curves and states == self._states:
            return None
        self._overview, self._states = data, states
        return ChartPicture(
            metric=metric, axis=data.axis, x_title=data.x_title, y_title=data.y_title, goal=data.goal,
            target=data.target, shown=shown, states=states, best_trial=data.best_trial, y_range=data.y_range,
            num_trials=data.num_trials, curves=tuple(curves), is_overview=is_new,
            band=_band(data, numbers) if is_new else None, best=_stair(data, numbers) if is_new else None,
        )  # fmt: skip

    def _draw_again(
        self, tail: RunTail, metric: str, data: CurvesData, numbers: Numbers
    ) -> list[CurvePicture]:
        """Send curves in full that the front end does not have, has otherwise, or has at great length."""
        drawn = []
        points_each = max(_MAX_POINTS // max(len(data.lines), 1), FEWEST_POINTS)
        shown = {line.trial for line in data.lines}
        self._sent = {trial: sent for trial, sent in self._sent.items() if trial in shown}
        for line in data.lines:
            if self._is_kept(tail, metric, line.trial):
                continue
            # From the columns, not from the overview, which may be a second old.
            points, place = tail.data.series.since(metric, line.trial, BEGINNING)
            thinned = Curve(line.trial, metric, points).thinned(points_each).points
            curve = _curve(line.trial, 0, thinned, data, numbers)
            drawn.append(curve)
            self._sent[line.trial] = _Sent(place, curve.x.count, curve.x.count)
        return drawn

    def _is_kept(self, tail: RunTail, metric: str, trial: int) -> bool:
        """Tell whether the front end goes on with what it has of a curve: what came is appended."""
        sent = self._sent.get(trial)
        if sent is None:
            return False
        _, place = tail.data.series.since(metric, trial, sent.place)
        is_short = sent.num_points <= max(_MIN_POINTS, _GROWTH * sent.num_thinned)
        return is_short and place.generation == sent.place.generation

    def _append(
        self, tail: RunTail, metric: str, data: CurvesData, numbers: Numbers, drawn: set[int]
    ) -> list[CurvePicture]:
        appended = []
        for trial, sent in self._sent.items():
            if trial in drawn:
                continue
            points, place = tail.data.series.since(metric, trial, sent.place)
            if place == sent.place:
                continue
            start = sent.num_points
            if place.generation != sent.place.generation:
                start, most = 0, max(sent.num_thinned, _MIN_POINTS)
                points = Curve(trial, metric, points).thinned(most).points
            curve = _curve(trial, start, points, data, numbers)
            appended.append(curve)
            sent.place, sent.num_points = place, start + curve.x.count
        return appended


def _curve(trial: int, start: int, points: np.ndarray, data: CurvesData, numbers: Numbers) -> CurvePicture:
    x = points[:, AXES.index(data.axis)] / data.x_unit
    known = np.isfinite(x)
    return CurvePicture(
        trial=trial, start=start, x=numbers.add(x[known], exact=True), y=numbers.add(points[known, -1])
    )


def _band(data: CurvesData, numbers: Numbers) -> BandPicture | None:
    band = data.band
    return band and BandPicture(
        x=numbers.add(band.x, exact=True), low=numbers.add(band.low), middle=numbers.add(band.middle),
        high=numbers.add(band.high), num_trials=band.num_trials,
    )  # fmt: skip


def _stair(data: CurvesData, numbers: Numbers) -> StairPicture | None:
    if not data.best_x:
        return None
    return StairPicture(x=numbers.add(data.best_x, exact=True), y=numbers.add(data.best_y))
