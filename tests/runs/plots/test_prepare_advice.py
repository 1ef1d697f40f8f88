from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from tests.builders.advice import (
    EXPERIMENT,
    GIB,
    advice,
    events,
    interval,
    peak_bytes,
    plan,
    step_s,
)
from tests.builders.recorded_runs import append
from workbench.experiment.plan import PartialPlan
from workbench.foundation.events import (
    AdviceGiven,
    CandidateTried,
    DriverStarted,
    Event,
    PlanMeasured,
    RatesTested,
    TrialEnded,
    TrialPlanned,
    TrialProposed,
    TrialReported,
    TrialStarted,
)
from workbench.runs.plots.figures_advice import ADVICE_FIGURES
from workbench.runs.plots.prepare_advice import (
    BatchData,
    Fit,
    Points,
    Predictions,
    WorkersGroup,
    prepare_memory,
    prepare_predictions,
    prepare_scaling,
    prepare_step_time,
    prepare_throughput_by_batch,
)
from workbench.runs.plots.prepare_learning import (
    prepare_candidates,
    prepare_noise,
    prepare_rates,
    prepare_time_to_target,
)
from workbench.runs.plots.run_data import RunData
from workbench.store.database import Store


def run_of(*found: Event) -> RunData:
    return RunData.of(
        EXPERIMENT, [DriverStarted(time_unix_s=0.0, pid=1, host="here", num_cpus=1), *found]
    )


def measured(its_plan: dict[str, Any], time_s: float | None, **fields: Any) -> PlanMeasured:
    return PlanMeasured(**({"setting": "a", "plan": its_plan, "step_time_s": time_s} | fields))


def reported(trial: int, step: int, scale: float | None, *, attempt: int = 0) -> TrialReported:
    return TrialReported(
        trial=trial,
        attempt=attempt,
        step=step,
        epoch=step / 10,
        gradient_signal_sqr=None if scale is None else math.copysign(2.0, scale),
        gradient_noise=None if scale is None else 2.0 * abs(scale),
    )


def started(
    trial: int, its_plan: dict[str, Any], *, at_s: float = 0.0, attempt: int = 0
) -> list[Event]:
    return [
        TrialStarted(time_unix_s=at_s, trial=trial, attempt=attempt, worker_pids=[1]),
        TrialPlanned(time_unix_s=at_s, trial=trial, attempt=attempt, plan=its_plan),
    ]


def proposed(trial: int) -> Event:
    return TrialProposed(time_unix_s=0.0, trial=trial, params={}, configuration=trial, seed=0)


@pytest.fixture(scope="module")
def example() -> RunData:
    return RunData.of(EXPERIMENT, events())


def test_measured_steps_without_an_advice_are_exactly_this():
    run = run_of(
        measured(plan(1, 16), 0.5, step_time_spread_s=0.25),
        measured(plan(1, 8), 0.01),
        measured({**plan(1, 8), "precision": "fp32"}, 0.03),
        measured(plan(1, 64), None, fits=False),
        measured(plan(2, 8), 5.0, setting="another"),
    )
    as_usual = Points(
        (8, 16),
        (10.0, 500.0),
        (10.0, 375.0),
        (10.0, 625.0),
        (
            "8 samples = 8 x 1 accumulated x 1 worker, bf16, single",
            "16 samples = 16 x 1 accumulated x 1 worker, bf16, single",
        ),
    )
    otherwise = Points(
        (8,), (30.0,), (30.0,), (30.0,), ("8 samples = 8 x 1 accumulated x 1 worker, fp32, single",)
    )
    shown = prepare_step_time(run)
    assert shown == BatchData(
        title="Step time by micro batch",
        subtitle="Flat while the device has spare capacity, then rising.",
        y_title="Step time (ms)",
        groups=(WorkersGroup(1, as_usual, otherwise, Fit()),),
        choice=Points(),
    )


def test_the_slowest_step_is_the_lowest_throughput():
    group = prepare_throughput_by_batch(
        run_of(measured(plan(2, 8), 0.1, step_time_spread_s=0.1))
    ).groups[0]
    assert group.measured.y == pytest.approx((160.0,))
    assert group.measured.low == pytest.approx((16 / 0.15,))
    assert group.measured.high == pytest.approx((16 / 0.05,))


def test_curves_say_where_they_leave_what_was_measured(example):
    shown = prepare_throughput_by_batch(example)
    assert [group.workers for group in shown.groups] == [1, 2, 4]
    assert shown.groups[1].fit.beyond == (False, False, False, False, False, True)
    assert shown.groups[1].fit.y[3] == pytest.approx(128 / step_s(2, 64))
    assert all(shown.groups[2].fit.beyond)
    assert shown.groups[2].measured.x == ()
    assert shown.subtitle.endswith("(dashed: beyond what was measured).")
    assert shown.choice.x == (128.0,)


def test_a_choice_that_accumulates_is_not_held_against_single_steps():
    known = advice()
    known["choice"]["plan"] = plan(2, 64, 2)
    run = run_of(AdviceGiven(advice=known))
    assert prepare_step_time(run).choice == Points()
    assert prepare_throughput_by_batch(run).choice.x == (64.0,)


def test_scaling_is_held_against_one_worker(example):
    shown = prepare_scaling(example)
    assert [line.micro_batch for line in shown.lines] == [8, 128]
    assert shown.workers == (1, 2, 4)
    last = shown.lines[-1]
    assert last.measured.x == (1, 2)
    assert last.predicted.y == pytest.approx(
        (1.0, step_s(1, 128) / step_s(2, 128), step_s(1, 128) / step_s(4, 128))
    )
    assert last.predicted.low[0] == last.predicted.high[0] == 1.0
    assert last.predicted.beyond == (False, False, True)


def test_scaling_shows_trials_of_a_run_without_an_advice(tmp_path):
    """Trials of most runs differ in work.

    Only those with the same are compared, read from a store.
    """

    def trial(number: int, workers: int, step_time_s: float, width: int = 16) -> list[Event]:
        speed = workers * 32 / step_time_s
        params = {"lr": 0.01 * (number + 1), "width": width}
        return [
            TrialProposed(trial=number, params=params, configuration=number, seed=0),
            TrialStarted(
                trial=number, attempt=0, worker_pids=[1] * workers, plan=plan(workers, 32)
            ),
            *(TrialReported(trial=number, step=step, samples_per_s=speed) for step in range(3)),
            TrialEnded(trial=number, attempt=0, state="complete", step=3),
        ]

    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run_id = store.create_run(EXPERIMENT)
        sixteen = [*trial(0, 1, 0.10), *trial(1, 2, 0.125), *trial(2, 2, 0.12), *trial(3, 2, 0.13)]
        append(store, run_id, [*sixteen, *trial(4, 2, 9.0, width=32)])
        shown = prepare_scaling(
            RunData.of(EXPERIMENT, (item.event for item in store.events(run_id)))
        )
    (line,) = shown.lines
    assert (shown.workers, line.micro_batch, line.measured.x) == ((1, 2), 32, ())
    assert line.trials.x == (1, 2)
    assert line.trials.y == pytest.approx((1.0, 0.10 / 0.125))


def test_memory_tells_measured_estimated_and_too_large_apart(example):
    shown = prepare_memory(example)
    assert (shown.unit, shown.limit, shown.choice_is_measured) == ("GiB", 8.0, True)
    assert shown.estimated.y == pytest.approx(
        tuple(peak_bytes(each) / GIB for each in shown.estimated.x)
    )
    assert max(shown.measured.x) == 128
    assert (shown.too_large.x, shown.too_large.y) == ((256,), (8.0,))
    assert shown.too_large.texts[0].endswith("CUDA out of memory")


def test_predictions_meet_probes_and_trials(example):
    shown = prepare_predictions(example)
    assert len(shown.probes.x) == 10
    assert [text.split(":")[0] for text in shown.trials.texts] == ["trial 1", "trial 2", "trial 0"]
    assert (
        shown.subtitle
        == "On the diagonal, a prediction was exact. 13 of 13 plans lie within 10% of it."
    )


def test_a_prediction_between_micro_batches_lies_on_the_curve():
    rows = [
        {
            "workers": 1,
            "micro_batch": size,
            "step_time_s": size / 100,
            "low_s": size / 200,
            "high_s": size / 50,
        }
        for size in (8, 32)
    ]
    predictions = Predictions({"choice": {"plan": plan(1, 8)}, "curves": {"step_time": rows}})
    between = predictions.of_plan(PartialPlan.from_json(plan(1, 16)))
    assert between is not None
    assert (between.value, between.low, between.high) == pytest.approx((0.16, 0.08, 0.32))
    others = [plan(1, 64), plan(2, 16), plan(1, 16, 2), {**plan(1, 16), "precision": "fp32"}, {}]
    assert [predictions.of_plan(PartialPlan.from_json(other)) for other in others] == [None] * 5


def test_a_trial_counts_with_the_plan_of_its_last_attempt():
    def speed(at_s: float, attempt: int, samples_per_s: float) -> Event:
        return TrialReported(
            time_unix_s=at_s, trial=0, attempt=attempt, step=int(at_s), samples_per_s=samples_per_s
        )

    run = run_of(
        AdviceGiven(time_unix_s=1.0, advice=advice()),
        proposed(0),
        *started(0, plan(1, 128), at_s=2.0),
        *(speed(3.0 + each, 0, 1.0) for each in range(5)),
        *started(0, plan(2, 128), at_s=10.0, attempt=1),
        *(speed(11.0 + each, 1, 256 / 0.06) for each in range(3)),
    )
    assert prepare_predictions(run).trials.x == pytest.approx((60.0,))


def test_noise_is_a_line_a_trial_without_what_cannot_be_estimated():
    run = run_of(
        proposed(0),
        *started(0, plan(2, 32)),
        reported(0, 10, None),
        reported(0, 20, -3.0),
        reported(0, 30, 64.0),
        reported(0, 60, 128.0),
    )
    shown = prepare_noise(run)
    assert [(line.trial, line.x, line.scale) for line in shown.lines] == [
        (0, (3.0, 6.0), (64.0, 128.0))
    ]
    # Weights of 30 steps each: 64 / (64 + 64) and 64 / (128 + 64).
    assert shown.critical == pytest.approx((64.0, (64 / 2 + 128 / 3) / (1 / 2 + 1 / 3)))
    assert (shown.batches, shown.shown_trial, shown.x_title) == ((64,), 0, "Epoch")


def test_noise_that_a_lost_attempt_reported_is_taken_back():
    run = run_of(
        proposed(0),
        *started(0, plan(2, 32)),
        reported(0, 10, 50.0),
        reported(0, 20, 60.0),
        *started(0, plan(2, 32), attempt=1),
        reported(0, 15, 70.0, attempt=1),
    )
    assert prepare_noise(run).lines[0].scale == (50.0, 70.0)


def test_many_trials_of_noise_are_bounded():
    trials = [
        [proposed(trial), *started(trial, plan(2, 32)), reported(trial, 10, 9.0)]
        for trial in range(90)
    ]
    assert len(prepare_noise(run_of(*itertools.chain(*trials))).lines) == 20


def test_time_to_target_marks_the_candidates(example):
    shown = prepare_time_to_target(example)
    assert shown.unit == "min"
    assert shown.fit.x == (16, 32, 64, 128, 256, 512, 1024)
    assert [(name, points.x) for name, points in shown.marks] == [
        ("choice", (256.0,)),
        ("runner-up", (128.0,)),
        ("without advice", (32.0,)),
    ]


def test_losses_that_explode_are_cut_off(example):
    shown = prepare_rates(example)
    line = shown.lines[0]
    assert (line.name, line.suggested, line.highest_stable) == ("global batch 128", 2.1e-3, 1.6e-2)
    assert line.losses[-4:] == (None,) * 4
    assert shown.y_range is not None
    assert shown.y_range[1] < 3.1 < max(loss or 0.0 for loss in line.losses)


def test_a_test_in_which_nothing_stayed_finite_shows_nothing():
    event = RatesTested(
        setting="a", global_batch=8, rates=[0.1, 0.2], losses=[math.nan, math.inf], num_seeds=1
    )
    assert prepare_rates(run_of(event)).lines == ()


def test_candidates_are_lines_that_end_where_they_reach_the_target(example):
    shown = prepare_candidates(example)
    assert [line.name for line in shown.lines] == [
        "256 samples = 128 x 1 accumulated x 2 workers, lr 0.003",
        "128 samples = 64 x 1 accumulated x 2 workers, lr 0.0021",
    ]
    assert (shown.target, shown.x_title, shown.y_title) == (
        0.92,
        "Training time (s)",
        "val_accuracy (higher is better)",
    )
    assert shown.lines[0].reached_x == (shown.lines[0].x[-1],)


def test_a_candidate_that_was_tried_again_begins_a_line_anew():
    def tried(elapsed_s: float, accuracy: float) -> Event:
        return CandidateTried(
            plan=plan(1, 8),
            lr=0.1,
            elapsed_s=elapsed_s,
            step=1,
            epoch=1.0,
            values={"val_accuracy": accuracy},
        )

    line = prepare_candidates(run_of(tried(1.0, 0.1), tried(2.0, 0.2), tried(1.0, math.nan))).lines[
        0
    ]
    assert line.x == (1.0, 2.0, None, 1.0)
    assert line.y == (0.1, 0.2, None, None)


@pytest.mark.parametrize("name", ADVICE_FIGURES)
def test_without_data_it_says_what_would_bring_some(name):
    empty = ADVICE_FIGURES[name].prepare(run_of()).empty
    assert empty.endswith(".")
    assert len(empty) < 110


@pytest.mark.parametrize("name", ADVICE_FIGURES)
def test_a_run_with_everything_fills_every_figure(name, example):
    data = ADVICE_FIGURES[name].prepare(example)
    assert data.empty == ""
    assert len(data.subtitle) < 100


def test_only_what_belongs_to_advice_makes_a_record():
    assert not run_of(proposed(0), *started(0, plan(2, 32)), reported(0, 10, 5.0)).advice.exists
    assert run_of(measured(plan(1, 8), 0.1)).advice.exists
    assert run_of(AdviceGiven(advice={"choice": {"step_time_s": interval(1.0)}})).advice.exists
