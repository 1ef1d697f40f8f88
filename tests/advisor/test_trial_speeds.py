"""What the trials of a run show of the speed of plans and the cost of a restart."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.advisor.speed_history import Speed
from workbench.advisor.trial_speeds import AttemptSpeed, TrialSpeeds
from workbench.experiment.plan import PartialPlan, Plan
from workbench.foundation.events import (
    AttemptEnded,
    DriverStarted,
    Event,
    PlanMeasured,
    TrialEnded,
    TrialPlanned,
    TrialProposed,
    TrialReported,
    TrialStarted,
)

PAIR = PartialPlan.of(workers=2, micro_batch=32)


def planned(workers: int, *, trial: int = 0, at_s: float = 0.0) -> TrialPlanned:
    plan: dict[str, Any] = {
        "workers": workers,
        "micro_batch": 64 // workers,
        "accumulation": 1,
        "global_batch": 64,
    }
    strategy = "single" if workers == 1 else "ddp"
    plan |= {"precision": "fp32", "strategy": strategy}
    return TrialPlanned(trial=trial, plan=plan, time_unix_s=at_s)


def attempt(workers: int, *speeds: float, trial: int = 0, **params: Any) -> list[Event]:
    return [
        TrialProposed(trial=trial, params=params, configuration=trial, seed=0),
        TrialStarted(trial=trial, attempt=0, worker_pids=[1] * workers),
        planned(workers, trial=trial),
        *(
            TrialReported(trial=trial, step=n, samples_per_s=speed)
            for n, speed in enumerate(speeds)
        ),
    ]


def speeds_of(*events: Event) -> TrialSpeeds:
    speeds = TrialSpeeds()
    for event in events:
        speeds.apply(event)
    return speeds


def test_the_usual_speed_is_the_median_without_the_first_report_of_an_attempt() -> None:
    speeds = speeds_of(*attempt(2, 5.0, 1000.0, 1100.0, 1900.0), *attempt(1, 5.0, 600.0, trial=1))
    assert speeds.usual(1, PAIR) == 1100.0
    assert speeds.current(1) == 600.0
    assert speeds.usual(1, PartialPlan.of(workers=3, micro_batch=32)) is None
    assert speeds.usual(1, PartialPlan.of(workers=2, micro_batch=16)) is None


def test_speeds_of_another_model_size_or_batch_say_nothing_but_those_of_another_rate_do() -> None:
    pair = attempt(2, 5.0, 1000.0, hidden_width=64, lr=0.1)
    same = speeds_of(*pair, *attempt(1, 5.0, 600.0, trial=1, hidden_width=64, lr=0.2))
    wider = speeds_of(*pair, *attempt(1, 5.0, 600.0, trial=1, hidden_width=128, lr=0.1))
    assert (same.usual(1, PAIR), wider.usual(1, PAIR)) == (1000.0, None)


def test_the_speed_of_a_trial_is_unknown_until_its_second_report_and_between_attempts() -> None:
    speeds = speeds_of(*attempt(1, 5.0))
    assert speeds.current(0) is None
    speeds.apply(TrialReported(trial=0, step=2, samples_per_s=600.0))
    speeds.apply(TrialReported(trial=0, step=1, samples_per_s=50.0, told_again=True))
    assert speeds.current(0) == 600.0
    speeds.apply(AttemptEnded(trial=0, attempt=0, reason="resized", message=""))
    assert speeds.current(0) is None


@pytest.mark.parametrize(
    ("reason", "known"), [("lost", [4.0]), ("resized", [4.0]), ("stopped", [])]
)
def test_a_restart_costs_the_time_until_training_goes_on_unless_nobody_wanted_it_to(
    reason: Any, known: list[float]
) -> None:
    ended = AttemptEnded(trial=0, attempt=0, reason=reason, message="", time_unix_s=100.0)
    speeds = speeds_of(*attempt(1), ended, planned(1, at_s=104.0))
    assert speeds.restarts_s == known
    assert speeds.last_restart_s(0) == (known[0] if known else None)


def test_the_time_until_another_driver_came_is_no_cost_of_a_restart() -> None:
    ended = AttemptEnded(trial=0, attempt=0, reason="resized", message="", time_unix_s=100.0)
    driver = DriverStarted(pid=1, host="here", num_cpus=2)
    assert speeds_of(*attempt(1), ended, driver, planned(1, at_s=9000.0)).restarts_s == []


def test_earlier_measurements_of_the_same_plan_count_beside_those_of_the_run() -> None:
    def earlier(workers: int, speed: float) -> Speed:
        plan = Plan(workers, 32, 1, "fp32", "ddp", "none", "none")
        event = PlanMeasured(setting="", plan=plan.to_json(), samples_per_s=speed)
        found = Speed.of("earlier", event)
        assert found is not None
        return found

    speeds = speeds_of(*attempt(2, 5.0, 1200.0), *attempt(1, 5.0, 600.0, trial=1))
    assert speeds.usual(1, PAIR, [earlier(2, 1000.0), earlier(4, 3000.0)]) == 1100.0


def test_an_attempt_is_a_measurement_once_it_has_ended_and_reported_often_enough() -> None:
    ended = TrialEnded(trial=0, attempt=0, state="complete", step=3)
    speeds = speeds_of(*attempt(2, 5.0, 1000.0, 1100.0, 1200.0))
    assert speeds.take_measured() == []
    speeds.apply(ended)
    plan = Plan(2, 32, 1, "fp32", "ddp", "none", "none")
    assert speeds.take_measured() == [AttemptSpeed(0, plan, 1100.0, (), False)]
    assert speeds.take_measured() == []
    assert speeds_of(*attempt(2, 5.0, 1000.0), ended).take_measured() == []


def test_an_attempt_knows_the_samples_of_an_epoch_once_one_has_ended() -> None:
    # 23 steps of 64 samples an epoch; between evaluations, epochs are parts.
    reports = [
        TrialReported(trial=0, step=step, epoch=epoch, samples_per_s=100.0)
        for step, epoch in ((10, 10 / 23), (23, 1.0), (30, 30 / 23), (46, 2.0))
    ]
    speeds = speeds_of(*attempt(2), *reports, TrialEnded(trial=0, attempt=0, state="complete"))
    assert [speed.num_train_samples for speed in speeds.take_measured()] == [23 * 64]
    speeds = speeds_of(
        *attempt(2),
        reports[0],
        reports[0],
        reports[0],
        TrialEnded(trial=0, attempt=0, state="complete"),
    )
    assert [speed.num_train_samples for speed in speeds.take_measured()] == [None]


def test_both_plans_of_a_trial_that_was_resized_are_measurements() -> None:
    resized = AttemptEnded(trial=0, attempt=0, reason="resized", message="")
    ended = TrialEnded(trial=0, attempt=1, state="complete", step=3)
    again = attempt(2, 5.0, 1000.0, 1000.0)
    measured = speeds_of(*attempt(1, 5.0, 600.0, 600.0), resized, *again, ended).take_measured()
    assert [(speed.plan.workers, speed.samples_per_s) for speed in measured] == [
        (1, 600.0),
        (2, 1000.0),
    ]


def test_trials_that_overlap_are_beside_each_other_and_others_are_alone() -> None:
    def ended(trial: int) -> TrialEnded:
        return TrialEnded(trial=trial, attempt=0, state="complete", step=3)

    speeds = (5.0, 600.0, 600.0)
    first, second, third = (attempt(1, *speeds, trial=trial) for trial in range(3))
    measured = speeds_of(*first, *second, ended(0), ended(1), *third, ended(2)).take_measured()
    assert [speed.beside_others for speed in measured] == [True, True, False]
