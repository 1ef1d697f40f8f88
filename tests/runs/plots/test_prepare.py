from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from workbench.experiment import Experiment, Objective
from workbench.experiment.federated import Federated
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import (
    Clone,
    DriverStarted,
    Event,
    Segment,
    TrialEnded,
    TrialProposed,
    TrialReported,
    TrialStarted,
)
from workbench.runs.plots.figures import draw_curves
from workbench.runs.plots.figures_trials import draw_slice, draw_timeline
from workbench.runs.plots.parameter_axes import ParameterAxis
from workbench.runs.plots.prepare import (
    CurvesData,
    Line,
    default_metric,
    prepare_convergence,
    prepare_throughput,
    readable_range,
    time_unit,
)
from workbench.runs.plots.prepare_search import ImportanceData, prepare_importance
from workbench.runs.plots.prepare_trials import (
    ParallelData,
    ParallelLine,
    ParetoData,
    SlicePanel,
    TimelineBar,
    TimelineData,
    prepare_parallel,
    prepare_pareto,
    prepare_slice,
    prepare_timeline,
)
from workbench.runs.plots.run_data import RunData

EXPERIMENT = Experiment(
    train="package.module:function",
    objectives=[{"metric": "accuracy", "goal": "maximize", "target": 0.9}],
    search={
        "rate": {"low": 0.01, "high": 1.0, "log": True},
        "kind": {"choices": ["a", "b"]},
        "depth": {"low": 1, "high": 3, "when": {"kind": "b"}},
        "fixed": 5,
    },
)


def trial_events(number, params, reports, end=None, *, at_s=0.0):
    begin = 1000.0 + at_s
    yield TrialProposed(
        time_unix_s=begin, trial=number, params=params, configuration=number, seed=number
    )
    yield TrialStarted(time_unix_s=begin + 1, trial=number, attempt=0, worker_pids=[1])
    for step, value in enumerate(reports, start=1):
        now = begin + 1 + 10 * step
        values = {"accuracy": value}
        yield TrialReported(
            time_unix_s=now,
            trial=number,
            step=step,
            epoch=step / 2,
            values=values,
            samples_per_s=50.0,
        )
    if end:
        finished = begin + 2 + 10 * len(reports)
        values = {"accuracy": reports[-1]}
        yield TrialEnded(time_unix_s=finished, trial=number, attempt=0, state=end, values=values)


@pytest.fixture(scope="module")
def small_run() -> RunData:
    return RunData.of(
        EXPERIMENT,
        [
            DriverStarted(time_unix_s=1000.0, pid=1, host="here", num_cpus=1),
            *trial_events(
                0, {"rate": 0.1, "kind": "a", "fixed": 5}, [0.2, math.nan, 0.6], "complete"
            ),
            *trial_events(
                1, {"rate": 1.0, "kind": "b", "depth": 2, "fixed": 5}, [0.5, 0.8], "complete"
            ),
            *trial_events(
                2, {"rate": 0.01, "kind": "b", "depth": 3, "fixed": 5}, [0.1], "pruned", at_s=40
            ),
        ],
    )


def test_a_narrow_logarithmic_range_of_whole_numbers_has_its_ends_as_marks():
    experiment = Experiment(
        train="package.module:function",
        objectives=[{"metric": "accuracy", "goal": "maximize"}],
        search={"width": {"low": 16, "high": 64, "log": True}},
    )
    trials = [
        trial_events(number, {"width": width}, [0.5], "complete")
        for number, width in enumerate((20, 32))
    ]
    run = RunData.of(experiment, [event for events in trials for event in events])
    assert ParameterAxis("width", "log", ((0.0, "16"), (1.0, "64"))) in prepare_parallel(run).axes


def test_convergence_by_epoch_is_exactly_this(small_run):
    assert prepare_convergence(small_run) == CurvesData(
        metric="accuracy",
        x_title="Epoch",
        y_title="accuracy (higher is better)",
        lines=(
            Line(2, "pruned", (0.5,), (0.1,)),
            Line(0, "complete", (0.5, 1.0, 1.5), (0.2, None, 0.6)),
            Line(1, "complete", (0.5, 1.0), (0.5, 0.8)),
        ),
        goal="maximize",
        best_trial=1,
        best_x=(0.5, 1.0, 1.5),
        best_y=(0.5, 0.8, 0.8),
        target=0.9,
        num_trials=3,
        axis="epoch",
    )


def test_what_a_failed_trial_had_reported_is_not_the_best_so_far():
    run = RunData.of(
        EXPERIMENT,
        [
            DriverStarted(time_unix_s=1000.0, pid=1, host="here", num_cpus=1),
            *trial_events(0, {"rate": 0.1, "kind": "a", "fixed": 5}, [0.2, 0.6], "complete"),
            *trial_events(1, {"rate": 1.0, "kind": "a", "fixed": 5}, [0.9, 0.95], "failed"),
            *trial_events(2, {"rate": 0.2, "kind": "a", "fixed": 5}, [0.3, 0.7]),
        ],
    )
    data = prepare_convergence(run)
    assert data.best_y == (0.3, 0.7)
    assert 1 in {line.trial for line in data.lines}


def test_a_lucky_report_of_a_complete_trial_is_not_the_best_so_far():
    lucky = list(
        trial_events(0, {"rate": 0.1, "kind": "a", "fixed": 5}, [0.2, 0.9, 0.5], "complete")
    )
    lucky[-1] = lucky[-1].model_copy(update={"values": {"accuracy": 0.5}})
    started = DriverStarted(time_unix_s=1000.0, pid=1, host="here", num_cpus=1)
    assert prepare_convergence(RunData.of(EXPERIMENT, [started, *lucky])).best_y == (0.2, 0.5, 0.5)
    assert prepare_convergence(RunData.of(EXPERIMENT, [started, *lucky[:-1]])).best_y[-1] == 0.9


@pytest.mark.parametrize(
    ("axis", "title", "first_x"),
    [("step", "Step", (1.0,)), ("time", "Run time (s)", (51.0,))],
)
def test_convergence_has_every_axis(small_run, axis, title, first_x):
    data = prepare_convergence(small_run, axis=axis)
    assert (data.x_title, data.lines[0].x) == (title, first_x)


def test_throughput_has_neither_best_nor_target(small_run):
    data = prepare_throughput(small_run)
    assert (data.best_x, data.target, data.y_title) == ((), None, "Throughput (samples/s)")
    assert {line.y for line in data.lines} == {(50.0,), (50.0, 50.0), (50.0, 50.0, 50.0)}


def test_unknown_axes_and_metrics_are_refused(small_run):
    with pytest.raises(ExperimentError, match="step, epoch, time"):
        prepare_convergence(small_run, axis="days")
    with pytest.raises(ExperimentError, match="allowed: accuracy"):
        prepare_convergence(small_run, metric="los")


def test_parallel_coordinates_are_exactly_these(small_run):
    data = prepare_parallel(small_run)
    assert data == ParallelData(
        metric="accuracy",
        goal="maximize",
        axes=(
            ParameterAxis("rate", "log", ((0.0, "0.01"), (0.5, "0.1"), (1.0, "1"))),
            ParameterAxis("kind", "category", ((0.0, "a"), (1.0, "b"))),
            ParameterAxis(
                "depth", "linear", ((0.0, "1"), (0.5, "2"), (1.0, "3")), conditional=True
            ),
            data.axes[-1],
        ),
        lines=(
            ParallelLine(2, None, (0.0, 1.0, 1.0, None)),
            ParallelLine(0, 0.6, (0.5, 0.0, None, 0.0)),
            ParallelLine(1, 0.8, (1.0, 1.0, 0.5, 1.0)),
        ),
        colour_range=(0.6, 0.8),
        best_trial=1,
    )
    assert data.axes[-1].name == "accuracy"


def test_a_slice_leaves_out_trials_without_the_parameter(small_run):
    data = prepare_slice(small_run)
    assert [panel.name for panel in data.panels] == ["rate", "kind", "depth"]
    assert data.panels[2] == SlicePanel(
        "depth",
        "linear",
        (),
        (1, 2),
        ("complete", "pruned"),
        (2.0, 3.0),
        (0.8, 0.1),
        tick_every=1,
        x_range=(1.0, 3.0),
    )


def test_a_slice_counts_the_trials_outside_its_axis():
    good = [
        list(trial_events(at, {"rate": 0.1 + 0.01 * at}, [0.8 + 0.001 * at], "complete"))
        for at in range(30)
    ]
    far = trial_events(30, {"rate": 0.9}, [0.1], "pruned")
    data = prepare_slice(RunData.of(EXPERIMENT, [*itertools.chain(*good), *far]))
    assert data.y_range is not None
    assert data.num_cut == sum(value < data.y_range[0] for value in data.panels[0].y) > 0
    note = draw_slice(data, str).layout.annotations[-1].text
    assert note.startswith(f"{data.num_cut} trials below 0.")


def test_what_the_curves_leave_out_is_noted_inside_where_no_legend_can_reach():
    good = [
        list(trial_events(at, {"rate": 0.1}, [0.8, 0.8 + 0.001 * at], "complete"))
        for at in range(30)
    ]
    far = trial_events(30, {"rate": 0.9}, [-9.0], "pruned")
    data = prepare_convergence(RunData.of(EXPERIMENT, [*itertools.chain(*good), *far]))
    note = draw_curves(data, title="").layout.annotations[-1]
    assert (note.text, note.y, note.yanchor) == ("1 point outside the axis", 0, "bottom")


def test_the_curve_of_a_continuation_begins_on_that_of_the_stopped_trial():
    stopped = list(trial_events(0, {"rate": 0.1}, [0.1, 0.2, 0.3], "pruned"))
    proposed, started, *reports = trial_events(
        1, {"rate": 0.1}, [0.0, 0.0, 0.4, 0.5], "complete", at_s=100
    )
    resumed = proposed.model_copy(update={"resumes": 0, "configuration": 0})
    data = prepare_convergence(
        RunData.of(EXPERIMENT, [*stopped, resumed, started, *reports[2:]]), axis="step"
    )
    assert {line.trial: line.x for line in data.lines} == {0: (1.0, 2.0, 3.0), 1: (2.0, 3.0, 4.0)}
    assert next(line.y for line in data.lines if line.trial == 1) == (0.2, 0.4, 0.5)


def test_the_curve_of_a_clone_begins_where_it_leaves_its_parent():
    parent = list(trial_events(0, {"rate": 0.1}, [0.1, 0.2, 0.3, 0.4], "complete"))
    proposed, started, *reports = trial_events(
        1, {"rate": 0.5}, [0.0, 0.0, 0.0, 0.6], "complete", at_s=100
    )
    lines = {}
    for begins_from in ("weights", "start"):
        clone = Clone(of=0, begins_from=begins_from, step=2)
        cloned = proposed.model_copy(update={"clone": clone})
        data = prepare_convergence(
            RunData.of(EXPERIMENT, [*parent, cloned, started, *reports[3:]]), axis="step"
        )
        [lines[begins_from]] = [(line.x, line.y) for line in data.lines if line.trial == 1]
    assert lines["weights"] == ((2.0, 4.0), (0.2, 0.6)), "not at the last step of its parent"
    assert lines["start"] == ((4.0,), (0.6,))


def test_members_of_a_population_are_joined_and_lead_to_the_best():
    """Member 0 trains trial 0. Member 1 continues it as trial 2 in place of its own trial 1."""
    experiment = EXPERIMENT.model_copy(update={"name": "population"})
    events = []
    for number, begin, values, continues in (
        (0, 0, [0.1, 0.4], None),
        (1, 0, [0.1, 0.2], None),
        (2, 2, [0.0, 0.0, 0.6, 0.7], 0),
        (3, 4, [0.0, 0.0, 0.0, 0.0, 0.8], 2),
    ):
        proposed, started, *reports = trial_events(
            number, {"rate": 0.1}, values, "complete", at_s=100 * number
        )
        segment = Segment(member=number % 2, begin=begin, end=len(values), continues=continues)
        events += [proposed.model_copy(update={"segment": segment}), started, *reports[begin:]]
    data = prepare_convergence(RunData.of(experiment, events), axis="step", max_curves=3)
    joints = {line.trial: line.joint for line in data.lines}
    assert joints == {0: None, 2: (2.0, 0.4), 3: (4.0, 0.7)}, "not trial 1, whose place is taken"
    assert data.path == (0, 2, 3)


def test_curves_of_federated_training_are_of_its_target_by_round():
    federated = Federated.model_validate(
        {"clients": 4, "target": {"metric": "val_accuracy", "at_least": 0.9}}
    )
    experiment = EXPERIMENT.model_copy(
        update={
            "federated": federated,
            "objectives": (Objective(metric="rounds_to_target", goal="minimize"),),
        }
    )
    assert default_metric(experiment) == "val_accuracy"
    assert default_metric(EXPERIMENT) == "accuracy"
    events = [
        event.model_copy(update={"values": {"val_accuracy": 0.5}, "epoch": float(event.step)})
        if isinstance(event, TrialReported)
        else event
        for event in trial_events(0, {"rate": 0.1}, [0.1, 0.2], "complete")
    ]
    data = prepare_convergence(RunData.of(experiment, events))
    assert (data.metric, data.x_title) == ("val_accuracy", "Round")


def test_the_timeline_runs_from_start_to_end(small_run):
    assert prepare_timeline(small_run) == TimelineData(
        "s",
        (
            TimelineBar(0, "complete", None, 1.0, 32.0, 1),
            TimelineBar(1, "complete", None, 1.0, 22.0, 1),
            TimelineBar(2, "pruned", None, 41.0, 52.0, 1),
        ),
    )


def test_importance_is_sorted_and_finite():
    given = {
        "a": (0.1, 0.05, 0.2),
        "b": (0.7, 0.6, 0.9),
        "c": (math.nan, 0.0, 1.0),
        "d": (0.1, 0.0, 0.3),
        "e": (0.0, 0.0, 0.2),
    }
    assert prepare_importance({"a": (0.99, 0.003, 0.99)}).unclear == ("a",)
    assert prepare_importance(given) == ImportanceData(
        ("b", "a", "d"),
        (0.7, 0.1, 0.1),
        (0.6, 0.05, 0.0),
        (0.9, 0.2, 0.3),
        by_chance=("e",),
        unclear=("d",),
    )


def test_the_front_is_apart_from_the_beaten_and_the_infeasible(two_objectives):
    events = [DriverStarted(time_unix_s=0.0, pid=1, host="here", num_cpus=1)]
    for number, (error, speed, memory) in enumerate(
        [(1, 1, 1), (2, 2, 1), (3, 1, 1), (0, 9, 10), (math.nan, 5, 1)]
    ):
        events.append(TrialProposed(trial=number, params={}, configuration=number, seed=0))
        values = {"error": error, "speed": speed, "memory": memory}
        events.append(TrialEnded(trial=number, attempt=0, state="complete", values=values))
    run = RunData.of(two_objectives, events)
    run.history.chosen_trial = 2
    assert prepare_pareto(run) == ParetoData(
        metrics=("error", "speed"),
        titles=("error (lower is better)", "speed (higher is better)"),
        front=((0, (1.0, 1.0)), (1, (2.0, 2.0))),
        beaten=((2, (3.0, 1.0)),),
        infeasible=((3, (0.0, 9.0)),),
        pairs=((0, 1),),
        chosen=((2, (3.0, 1.0)),),
    )


def test_single_repeats_are_not_shown_as_better_than_the_best_configuration(
    one_objective, make_events
):
    repeated = one_objective.replace(repeats=2)
    events = [
        event.model_copy(update={"configuration": event.trial // 2, "repeat": event.trial % 2})
        if isinstance(event, TrialProposed)
        else event
        for event in make_events(one_objective, 6)
    ]
    data = prepare_convergence(RunData.of(repeated, events))
    assert data.best_name == "a repeat of the best"
    assert data.best_x == ()
    assert (
        prepare_convergence(RunData.of(one_objective, make_events(one_objective, 6))).best_x != ()
    )


def test_of_several_objectives_each_has_its_best_trial(two_objectives, make_events):
    run = RunData.of(two_objectives, make_events(two_objectives, 30))
    extremes = {metric: trial.number for metric, trial in run.history.extremes().items()}
    for metric, number in extremes.items():
        data = prepare_convergence(run, metric=metric)
        assert (data.best_trial, data.best_name) == (number, f"best {metric}")
    assert prepare_throughput(run).best_trial is None


def test_one_objective_has_no_front(small_run):
    with pytest.raises(ExperimentError, match="a single objective"):
        prepare_pareto(small_run)


def test_an_axis_is_cut_only_where_a_few_values_squeeze_the_rest():
    calm = np.linspace(0.9, 1.0, 100)
    assert readable_range(calm, "minimize", None) == (None, 0)
    shown, num_cut = readable_range(np.append(calm, [50.0, np.inf, np.nan]), "minimize", 0.5)
    assert shown is not None
    assert shown[0] < 0.5
    assert 0.98 < shown[1] < 1.1
    assert num_cut >= 1


def test_many_trials_become_a_bounded_picture(one_objective, make_events):
    run = RunData.of(one_objective, make_events(one_objective, 2000))
    data = prepare_convergence(run)
    assert len(data.lines) == 60
    assert data.lines[-1].trial == data.best_trial == run.history.best().number
    assert data.band is not None
    assert data.band.num_trials == data.num_trials == 2000
    parallel = prepare_parallel(run)
    assert len(parallel.lines) == 1000
    assert parallel.lines[-1].trial == data.best_trial
    assert parallel.num_left_out == 900
    slices, best = prepare_slice(run), run.history.best()
    shown = [panel.trials for panel in slices.panels]
    assert sum(map(len, shown)) <= 4000
    has_best = [panel.name for panel in slices.panels if data.best_trial in panel.trials]
    assert has_best == [panel.name for panel in slices.panels if panel.name in best.params]
    assert all(list(trials) == sorted(trials) for trials in shown)
    num_shown = len({number for trials in shown for number in trials})
    num_known = len(run.history.in_state("complete", "pruned"))
    assert num_shown + slices.num_left_out == num_known
    notes = [note.text for note in draw_slice(slices, str).layout.annotations]
    assert any(text.startswith(f"{num_shown:,} of {num_known:,} trials") for text in notes)
    throughput = prepare_throughput(run)
    assert len(throughput.lines) <= 61
    assert {0, 1999, data.best_trial} <= {line.trial for line in throughput.lines}


@pytest.mark.parametrize(
    ("seconds", "unit"), [(0, "s"), (179, "s"), (180, "min"), (11_000, "h"), (1e6, "days")]
)
def test_time_is_shown_in_a_unit_that_reads_easily(seconds, unit):
    assert time_unit(seconds)[0] == unit


@pytest.mark.parametrize("goal", ["minimize", "maximize"])
def test_a_close_up_shows_where_curves_end_and_counts_what_it_cuts_off(goal):
    sign = 1.0 if goal == "minimize" else -1.0
    experiment = Experiment(
        train="package.module:function",
        objectives=[{"metric": "score", "goal": goal}],
        search={"x": {"low": 0.0, "high": 1.0}},
    )
    recorded: list[Event] = []
    shown: list[float] = []
    for trial in range(5):
        recorded += [
            TrialProposed(trial=trial, params={"x": trial / 5}, configuration=trial, seed=0),
            TrialStarted(trial=trial, attempt=0, worker_pids=[1]),
        ]
        values = [sign * (100.0 * 0.5**step + trial) for step in range(20)]
        shown += values
        recorded += [
            TrialReported(trial=trial, step=step + 1, values={"score": value})
            for step, value in enumerate(values)
        ]
        recorded.append(
            TrialEnded(
                trial=trial, attempt=0, state="complete", values={"score": values[-1]}, step=20
            )
        )
    run = RunData.of(experiment, recorded)
    usual = prepare_convergence(run).y_range
    assert usual is not None
    assert usual[1] - usual[0] > 30
    data = prepare_convergence(run, close_up=True)
    assert data.y_range is not None
    low, high = data.y_range
    assert high - low < 8, "a fourteenth of what all points span"
    best = sign * 100.0 * 0.5**19
    assert low < best < high
    assert data.num_cut == sum(not low <= value <= high for value in shown) > 0


def test_a_timeline_of_very_many_trials_says_how_many_it_shows():
    recorded: list[Event] = []
    for trial in range(2500):
        recorded += [
            TrialProposed(trial=trial, params={"x": 0.5}, configuration=trial, seed=0),
            TrialStarted(time_unix_s=1e9 + trial, trial=trial, attempt=0, worker_pids=[1]),
        ]
    experiment = EXPERIMENT.replace(search={"x": {"low": 0.0, "high": 1.0}})
    run = RunData.of(experiment, recorded)
    data = prepare_timeline(run)
    assert len(data.bars) + data.num_left_out == 2500
    assert {data.bars[0].trial, data.bars[-1].trial} == {0, 2499}
    (note,) = draw_timeline(data, lambda trial: "").layout.annotations
    assert note.text == "1,000 of 2,500 trials"


def test_trials_that_report_once_are_drawn_over_the_run_time():
    trial = (trial_events(n, {"rate": 0.1}, [0.1 * n], "complete", at_s=9 * n) for n in range(3))
    started = DriverStarted(time_unix_s=1000.0, pid=1, host="here", num_cpus=1)
    run = RunData.of(EXPERIMENT, [started, *itertools.chain.from_iterable(trial)])
    data = prepare_convergence(run)
    assert data.axis == "time"
    assert sorted(line.x for line in data.lines) == [(11.0,), (20.0,), (29.0,)]


def test_the_target_of_a_federation_is_a_line_in_the_chart_of_its_metric():
    target = {"metric": "accuracy", "at_least": 0.85}
    experiment = EXPERIMENT.model_copy(
        update={
            "objectives": (Objective(metric="rounds_to_target", goal="minimize"),),
            "federated": Federated(clients=2, target=target),  # pyright: ignore
        }
    )
    started = DriverStarted(time_unix_s=1000.0, pid=1, host="here", num_cpus=1)
    events = trial_events(0, {"rate": 0.1}, [0.2, 0.9])
    data = prepare_convergence(RunData.of(experiment, [started, *events]))
    assert (data.y_title, data.target, data.best_x) == ("accuracy", 0.85, ())
