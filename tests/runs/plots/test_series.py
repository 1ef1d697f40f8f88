from __future__ import annotations

import dataclasses
import json
import math
import random
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic_core import from_json

from workbench.experiment import Experiment
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import (
    DriverStarted,
    Event,
    TrialEnded,
    TrialProposed,
    TrialReported,
    to_json,
)
from workbench.runs.plots.curve_bands import bundle
from workbench.runs.plots.run_data import RunData
from workbench.runs.plots.series import BEGINNING, THROUGHPUT, Curve, RunSeries, thin_indices
from workbench.store.history.reports import Reports

EXPERIMENT = Experiment(
    train="package.module:function", objectives=[{"metric": "accuracy", "goal": "maximize"}]
)
any_float = st.one_of(st.floats(width=32), st.just(math.nan))


def report(
    trial: int, step: int, value: float, *, attempt: int = 0, at_s: float | None = None, **more
):
    return TrialReported(
        time_unix_s=1000.0 + (step if at_s is None else at_s),
        trial=trial,
        step=step,
        attempt=attempt,
        values={"accuracy": value},
        **more,
    )


def series_of(*events: Event, **options) -> RunSeries:
    series = RunSeries(EXPERIMENT, **options)
    series.add(events)
    return series


def curve_of(trial: int, values, start_step: int = 1) -> Curve:
    steps = np.arange(start_step, start_step + len(values), dtype=float)
    return Curve(trial, "accuracy", np.column_stack((steps, steps / 10, steps * 2, values)))


def add_raw(series: RunSeries, events: Iterable[Event]) -> None:
    for event in events:
        if isinstance(event, TrialReported):
            series.add_reports(event.trial, Reports.of([json.loads(to_json(event))]))
        else:
            series.add([event])


def fields_of(run: RunData) -> str:
    """Return all fields of all trials as text, in which nan equals nan."""
    return repr([dataclasses.asdict(trial) for trial in run.history.trials.values()])


class TestThinning:
    @given(st.lists(any_float, min_size=1, max_size=400), st.integers(8, 60))
    def test_keeps_ends_extremes_gaps_and_order_within_the_bound(self, values, max_points):
        column = np.array(values)
        kept = thin_indices(column, max_points)
        assert len(kept) <= max_points
        assert np.all(np.diff(kept) > 0)
        assert kept[0] == 0
        assert kept[-1] == len(values) - 1
        finite, kept_finite = column[np.isfinite(column)], column[kept][np.isfinite(column[kept])]
        if len(finite):
            assert kept_finite.min() == finite.min()
            assert kept_finite.max() == finite.max()
        assert np.isfinite(column[kept]).all() == np.isfinite(column).all()

    @given(st.lists(any_float, max_size=60))
    def test_leaves_what_fits_alone(self, values):
        assert thin_indices(np.array(values), 60).tolist() == list(range(len(values)))

    def test_a_gap_between_two_stretches_stays_between_them(self):
        values = np.concatenate(
            (np.linspace(0, 1, 500), np.full(40, np.nan), np.linspace(2, 3, 500))
        )
        thinned = values[thin_indices(values, 100)]
        gap = np.flatnonzero(np.isnan(thinned))
        assert thinned[: gap[0]].max() == 1
        assert thinned[gap[-1] + 1 :].min() == 2

    def test_refuses_a_bound_that_cannot_hold(self):
        with pytest.raises(ExperimentError, match="at least 8"):
            thin_indices(np.zeros(100), 7)


class TestColumns:
    def test_a_report_becomes_a_row_of_step_epoch_time_and_value(self):
        series = series_of(
            DriverStarted(time_unix_s=990.0, pid=1, host="here", num_cpus=1),
            report(3, 5, 0.25, epoch=0.5, samples_per_s=80.0),
            report(3, 6, math.nan),
        )
        points = series.curve(3, "accuracy").points
        assert points[0].tolist() == [5.0, 0.5, 15.0, 0.25]
        assert points[1, 2] == 16.0
        assert np.isnan(points[1, [1, 3]]).all()
        assert series.curves(THROUGHPUT)[0].points.tolist() == [[5.0, 0.5, 15.0, 80.0]]
        assert len(series.curve(9, "accuracy")) == 0

    def test_a_resumed_attempt_replaces_the_steps_it_repeats(self):
        series = series_of(
            *(report(0, step, step / 10) for step in (1, 2, 3, 4)),
            report(0, 3, 0.9, attempt=1, at_s=20),
            report(0, 4, 0.95, attempt=1, at_s=21),
        )
        curve = series.curve(0, "accuracy")
        assert curve.x("step").tolist() == [1, 2, 3, 4]
        assert curve.value.tolist() == [0.1, 0.2, 0.9, 0.95]

    def test_events_one_by_one_all_at_once_and_as_raw_rows_give_the_same(
        self, recorded_experiment, recorded_events
    ):
        slowly, at_once, raw = (RunSeries(recorded_experiment) for _ in range(3))
        for event in recorded_events:
            slowly.add([event])
        at_once.add(recorded_events)
        add_raw(raw, recorded_events)
        assert at_once.metrics == ["val_accuracy", "val_loss"]
        for metric in at_once.metrics:
            for first, second, third in zip(
                slowly.curves(metric), at_once.curves(metric), raw.curves(metric), strict=True
            ):
                assert first.trial == second.trial == third.trial
                np.testing.assert_array_equal(first.points, second.points)
                np.testing.assert_array_equal(first.points, third.points)

    def test_infinity_and_nan_survive_the_raw_road(self):
        series = RunSeries(EXPERIMENT)
        add_raw(series, [report(0, 1, math.inf), report(0, 2, math.nan), report(0, 3, -math.inf)])
        assert str(series.curve(0, "accuracy").value.tolist()) == "[inf, nan, -inf]"

    def test_memory_stays_bounded_and_extremes_survive(self):
        rng = random.Random(0)
        values = [rng.random() for _ in range(30_000)]
        values[12_345], values[23_456] = 9.0, -9.0
        series = series_of(
            *(report(0, step, value) for step, value in enumerate(values)), column_capacity=512
        )
        curve = series.curve(0, "accuracy")
        assert len(curve) <= 512
        assert (curve.value.max(), curve.value.min()) == (9.0, -9.0)
        assert curve.value[0] == values[0]
        assert curve.value[-1] == values[-1]

    def test_memory_stays_bounded_over_many_trials(self):
        series = RunSeries(EXPERIMENT, total_capacity=10_000)
        for step in range(300):
            series.add(report(trial, step, step / 300) for trial in range(200))
        assert series.num_points <= 10_000
        assert all(curve.value[-1] == 299 / 300 for curve in series.curves("accuracy"))

    @pytest.mark.slow
    def test_a_million_raw_reports_are_read_and_thinned(self):
        payloads = [
            to_json(report(trial, 1, 0.5, epoch=1.0, samples_per_s=9.0)) for trial in range(100)
        ]
        series = RunSeries(EXPERIMENT)
        for n in range(0, 1_000_000, 100):
            series.add_reports(
                n % 100, Reports.of([from_json(payloads[n % 100]) for _ in range(100)])
            )
        thinned = series.thinned()
        assert thinned["accuracy"]
        assert all(len(curve) <= 2000 for curve in thinned["accuracy"])


class TestManyReportsAtOnce:
    @given(
        st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), any_float), max_size=60),
        st.integers(1, 9),
    )
    def test_a_run_read_in_chunks_of_rows_is_the_run_read_event_by_event(self, told, size):
        events: list[Event] = [DriverStarted(time_unix_s=990.0, pid=1, host="here", num_cpus=1)]
        events += [
            TrialProposed(time_unix_s=991.0, trial=n, params={}, configuration=n, seed=0)
            for n in range(3)
        ]
        attempts = dict.fromkeys(range(3), 0)
        for step, (trial, again, value) in enumerate(told):
            attempts[trial] += again
            events.append(report(trial, step // 2, value, attempt=attempts[trial], at_s=step))
        events.append(TrialEnded(time_unix_s=1200.0, trial=1, attempt=0, state="stopped", step=3))
        slow, fast = RunData.of(EXPERIMENT, events), RunData(EXPERIMENT)
        rows = [
            (seq, event.type, getattr(event, "trial", None), event.time_unix_s, to_json(event))
            for seq, event in enumerate(events, start=1)
        ]
        for first in range(0, len(rows), size):
            fast.add_rows(rows[first : first + size])
        for curve, other in zip(
            slow.series.curves("accuracy"), fast.series.curves("accuracy"), strict=True
        ):
            np.testing.assert_array_equal(curve.points, other.points)
        assert fields_of(slow) == fields_of(fast)
        assert slow.last_unix_s == fast.last_unix_s

    @pytest.mark.parametrize("odd", [0.5, math.nan, math.inf])
    def test_many_reports_read_as_columns_are_those_read_one_by_one(self, odd):
        events: list[Event] = [DriverStarted(time_unix_s=990.0, pid=1, host="here", num_cpus=1)]
        events += [
            TrialProposed(time_unix_s=991.0, trial=n, params={}, configuration=n, seed=0)
            for n in range(3)
        ]
        events += [
            TrialReported(
                time_unix_s=1000.0 + step,
                trial=step % 3,
                attempt=int(step > 1500),
                step=step % 1500,
                epoch=None if step % 7 else float(step // 7),
                values={"accuracy": odd if step == 999 else step / 3000}
                | ({} if step % 5 else {"loss": 1}),
                samples_per_s=None if step % 4 else 100.0 + step,
                parts_s={} if step % 2 else {"data": 0.1},
            )
            for step in range(2000)
        ]
        slow, fast = RunData.of(EXPERIMENT, events), RunData(EXPERIMENT)
        fast.add_rows(
            [
                (seq, event.type, getattr(event, "trial", None), event.time_unix_s, to_json(event))
                for seq, event in enumerate(events, start=1)
            ]
        )
        for name in ("accuracy", "loss", THROUGHPUT):
            for curve, other in zip(
                slow.series.curves(name), fast.series.curves(name), strict=True
            ):
                np.testing.assert_array_equal(curve.points, other.points)
        assert fields_of(slow) == fields_of(fast)


class TestLookingAgain:
    def test_a_second_look_gets_only_what_is_new(self):
        series = series_of(report(0, 1, 0.1), report(0, 2, 0.2))
        first, place = series.since("accuracy", 0, BEGINNING)
        series.add([report(0, 3, 0.3)])
        second, place = series.since("accuracy", 0, place)
        assert (first[:, 3].tolist(), second[:, 3].tolist()) == ([0.1, 0.2], [0.3])
        assert len(series.since("accuracy", 0, place)[0]) == 0

    def test_points_that_were_taken_back_begin_another_generation(self):
        series = series_of(report(0, 1, 0.1), report(0, 2, 0.2))
        _, place = series.since("accuracy", 0, BEGINNING)
        series.add([report(0, 2, 0.9, attempt=1)])
        again, later = series.since("accuracy", 0, place)
        assert again[:, 3].tolist() == [0.1, 0.9]
        assert later.generation != place.generation

    @given(st.lists(st.integers(1, 300), min_size=1, max_size=12))
    def test_looks_put_together_are_the_curve_however_often_it_is_thinned(self, sizes):
        series, seen, place, step = RunSeries(EXPERIMENT, column_capacity=64), [], BEGINNING, 0
        for size in sizes:
            series.add(report(0, step + n, float(step + n)) for n in range(size))
            step += size
            new, later = series.since("accuracy", 0, place)
            seen = [*(seen if later.generation == place.generation else []), *new[:, 3].tolist()]
            place = later
        assert seen == series.curve(0, "accuracy").value.tolist()


class TestBundle:
    def test_best_so_far_is_a_stair_over_all_trials(self):
        curves = [curve_of(0, [0.1, 0.5, 0.2, math.nan]), curve_of(1, [0.3, 0.4, math.inf, 0.6])]
        assert bundle(curves, "step", "maximize").best.tolist() == [[1, 0.3], [2, 0.5], [4, 0.6]]
        assert bundle(curves, "step", "minimize").best.tolist() == [[1, 0.1], [4, 0.1]]

    def test_the_best_come_first_and_the_rest_become_a_band(self):
        curves = [curve_of(trial, np.full(50, trial / 200)) for trial in range(200)]
        bounded = bundle(curves, "epoch", "maximize", max_curves=10, max_points=200)
        assert [curve.trial for curve in bounded.curves] == list(range(199, 189, -1))
        assert sum(map(len, bounded.curves)) <= 200
        assert bounded.num_trials == 200
        assert bounded.band is not None
        np.testing.assert_allclose(bounded.band.middle, np.median(np.arange(200) / 200))
        np.testing.assert_allclose(bounded.band.low, np.quantile(np.arange(200) / 200, 0.1))

    def test_a_trial_that_must_be_there_is_there(self):
        curves = [curve_of(trial, [trial / 200]) for trial in range(200)]
        kept = bundle(curves, "step", "maximize", max_curves=5, always=[0]).curves
        assert [curve.trial for curve in kept] == [0, 199, 198, 197, 196]

    def test_points_without_an_epoch_are_left_out_of_epochs(self):
        curve = Curve(0, "accuracy", np.array([[1, np.nan, 1, 0.1], [2, 1.0, 2, 0.2]]))
        assert bundle([curve], "epoch", "maximize").curves[0].value.tolist() == [0.2]
        assert bundle([], "epoch", "maximize").num_trials == 0

    @example([[math.nan]] * 4)
    @given(st.lists(st.lists(any_float, min_size=1, max_size=30), max_size=12))
    def test_nan_and_infinity_never_become_best(self, columns):
        curves = [curve_of(trial, values) for trial, values in enumerate(columns)]
        for goal, extreme in (("maximize", max), ("minimize", min)):
            bounded = bundle(curves, "step", goal, max_curves=3)
            finite = [value for values in columns for value in values if math.isfinite(value)]
            assert np.isfinite(bounded.best).all()
            assert len(bounded.best) == 0 if not finite else bounded.best[-1, 1] == extreme(finite)
