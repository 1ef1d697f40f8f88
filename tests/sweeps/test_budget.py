from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from workbench.cli.errors import NOTHING_COMPLETE, exit_code_of_run
from workbench.cli.options import next_commands
from workbench.experiment import Experiment
from workbench.experiment.automl import concluding_s
from workbench.experiment.experiment import DEFAULT_TRIALS
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import (
    AttemptEnded,
    DriverStarted,
    EnergyMetered,
    Event,
    Noted,
    ReplayPlanned,
    RunStateChanged,
    SettingsChanged,
    TrialEnded,
    TrialProposed,
    TrialReported,
    TrialStarted,
)
from workbench.runs.descriptions import how_to_extend, why_not_resumed
from workbench.store.history import History, cost_of, failure_groups
from workbench.sweeps.budget import (
    begun_ending,
    ending_now,
    extended,
    has_room,
    honest_ending,
    reason_to_end,
)
from workbench.sweeps.conclusion import natural_end

OWN: dict[str, Any] = {
    "train": "json:dumps",
    "objectives": [{"metric": "loss", "goal": "minimize"}],
    "search": {"x": {"low": 0.0, "high": 1.0}},
}
POPULATION: dict[str, Any] = {
    "sampler": {"name": "pbt", "options": {"population": 3, "every": 2, "length": 4}},
    "search": {"x": {"low": 0.0, "high": 1.0}},
}


NUM_DIFFERENT = 7  # of the configurations below. The next one is the first again


def make_history(losses: list[float | None] = [], **fields: Any) -> History:  # noqa: B006
    """A run with one configuration for each loss; None failed.

    Trial n ends n + 1 s after the start.
    """
    return History.of(Experiment(**OWN | fields), make_events(losses))


def make_events(losses: Sequence[float | None]) -> list[Event]:
    events: list[Event] = [
        DriverStarted(pid=1, host="here", num_cpus=1, time_unix_s=100.0),
        RunStateChanged(state="running", time_unix_s=100.0),
    ]
    for number, loss in enumerate(losses):
        now = 101.0 + number
        events += [
            TrialProposed(
                trial=number,
                params={"x": 0.5 + 0.01 * (number % NUM_DIFFERENT)},
                configuration=number,
                seed=1,
                time_unix_s=now,
            ),
            TrialStarted(trial=number, attempt=0, worker_pids=[], time_unix_s=now),
            TrialEnded(
                trial=number,
                attempt=0,
                time_unix_s=now,
                state="failed" if loss is None else "complete",
                values={} if loss is None else {"loss": loss},
            ),
        ]
    return events


@pytest.mark.parametrize(
    ("fields", "allowed"),
    [
        ({}, DEFAULT_TRIALS),
        ({"budget": {"trials": 7}}, 7),
        ({"budget": {"time": 60}}, None),
        ({"budget": {"plateau": 3}}, None),
        ({"budget": {"time": 60, "trials": 3}}, 3),
        ({"sampler": "grid", "search": {"x": {"choices": [1, 2]}}}, None),
        ({"objectives": [{"metric": "loss", "goal": "minimize", "target": 0.1}]}, DEFAULT_TRIALS),
        ({"search": {}, "budget": {"trials": 7}}, 1),
        (
            {
                "search": {"x": 1, "y": {"choices": [2]}, "z": {"low": 3, "high": 3}},
                "budget": {"time": 60},
            },
            1,
        ),
        ({"search": {}, "repeats": 4}, 1),
    ],
)
def test_no_run_is_endless_by_accident(fields: dict[str, Any], allowed: int | None) -> None:
    assert make_history(**fields).experiment.max_configurations() == allowed


def test_a_run_without_limits_in_time_is_never_ended_early() -> None:
    assert reason_to_end(make_history([1.0, 2.0, 3.0] * 10), 1e9) is None


TRACEBACK = (
    'Traceback (most recent call last):\n  File "mine.py", line {line}, in train\n{error}: shape'
    " ({text})"
)


def failing(number: int, *, at_s: float = 1.0, **changes: Any) -> list[Event]:
    """A trial that raises an error before its first report."""
    given = {
        "line": 7,
        "error": "ValueError",
        "text": number,
        "how": number,
        "reason": "error",
        **changes,
    }
    return [
        TrialProposed(
            trial=number,
            params={"x": 0.5, "how": given["how"]},
            seed=1,
            time_unix_s=100.0 + at_s,
            configuration=changes.get("configuration", number),
        ),
        TrialEnded(
            trial=number,
            attempt=0,
            time_unix_s=100.0 + at_s,
            state="failed",
            reason=given["reason"],
            message=f"{given['error']}: shape ({given['text']})",
            traceback=TRACEBACK.format(**given),
        ),
    ]


def after(events: Sequence[Event], **fields: Any) -> History:
    history = make_history(**fields)
    for event in events:
        history.apply(event)
    return history


def test_one_error_in_each_trials_own_folder_ends_the_run_at_once() -> None:
    history = make_history()
    for number in range(3):
        own = f"/runs/a1/trials/{number:05d}/checkpoints/run.py"
        for event in failing(number):
            if isinstance(event, TrialEnded):
                text = f'Traceback (most recent call last):\n  File "{own}", line 9, in main\n'
                event = event.model_copy(update={"traceback": f"{text}ValueError: shape (0)"})
            history.apply(event)
    ending = ending_now(history, 110.0)
    assert ending is not None
    assert (ending.state, ending.reason) == ("failed", "failures")
    assert [group.place for group in failure_groups(history)] == ["run.py:9"]


def test_the_same_error_in_the_first_trials_ends_the_run_at_once_as_failed() -> None:
    def first(num_trials: int) -> list[Event]:
        return [event for number in range(num_trials) for event in failing(number)]

    assert ending_now(after(first(2)), 110.0) is None
    ending = ending_now(after(first(3)), 110.0)
    assert ending is not None
    assert (ending.state, ending.reason) == ("failed", "failures")
    message = (
        "the first 3 trials failed with the same error before reporting loss: ValueError: shape (0)"
    )
    assert ending.message == message
    assert (
        begun_ending(after([*first(3), ending.model_copy(update={"state": "stopping"})])).state
        == "failed"
    )


@pytest.mark.parametrize(
    "other",
    [
        {"line": 8},
        {"error": "KeyError"},
        {"reason": "oom"},
        {"configuration": 1},
    ],
    ids=["another place", "another type", "out of memory", "a repeat"],
)
def test_other_failures_among_the_first_do_not_end_the_run(other: dict[str, Any]) -> None:
    assert ending_now(after([*failing(0), *failing(1), *failing(2, **other)]), 110.0) is None


def test_an_error_that_one_choice_may_cause_needs_more_trials() -> None:
    search = {"x": {"low": 0.0, "high": 1.0}, "how": {"choices": ["a", "b"]}}

    def of(choices: str) -> History:
        events = [event for number, how in enumerate(choices) for event in failing(number, how=how)]
        return after(events, search=search)

    assert [
        ending_now(of(choices), 110.0) is None for choices in ("aab", "aaa", "aaaaa", "aaaaaa")
    ] == [
        False,
        True,
        True,
        False,
    ]


def test_a_run_with_any_result_goes_on_and_a_resumed_one_counts_anew() -> None:
    three = [event for number in range(3) for event in failing(number)]
    report = TrialReported(trial=3, step=1, values={"loss": 1.0}, time_unix_s=103.0)
    proposed = failing(3)[0]
    assert ending_now(after([*three, proposed, report]), 110.0) is None
    again = DriverStarted(pid=2, host="here", num_cpus=1, time_unix_s=200.0)
    assert ending_now(after([*three, again]), 201.0) is None
    fixed_wrong = [event for number in range(3, 6) for event in failing(number, at_s=110)]
    assert ending_now(after([*three, again, *fixed_wrong]), 220.0) is not None


def test_a_run_of_nothing_but_failures_is_not_complete() -> None:
    complete = RunStateChanged(state="complete", reason="trials")
    failed = honest_ending(complete, after([*failing(0), *failing(1, line=9)]))
    assert (failed.state, failed.reason) == ("failed", "failures")
    assert (
        failed.message
        == "all 2 trials failed in different ways: the first with ValueError: shape (0)"
    )
    assert (
        honest_ending(complete, after(failing(0))).message
        == "the only trial failed: ValueError: shape (0)"
    )
    assert honest_ending(complete, make_history()).state == "complete"
    assert honest_ending(complete, make_history([1.0])).state == "complete"
    stopped = RunStateChanged(state="stopped", reason="person")
    assert honest_ending(stopped, after(failing(0))).state == "stopped"


def test_a_run_whose_time_is_over_before_any_trial_began_has_done_nothing() -> None:
    history = make_history(budget={"time": 5})
    history.apply(
        TrialProposed(trial=0, params={"x": 0.5}, configuration=0, seed=1, time_unix_s=101.0)
    )
    ending = ending_now(history, 106.0)
    assert ending is not None
    failed = honest_ending(ending, history)
    assert (failed.state, failed.reason) == ("failed", "time")
    words = "the time budget of 5 s is used up before any trial started"
    assert failed.message == words
    history.apply(failed)
    assert exit_code_of_run(history, "failed") == NOTHING_COMPLETE
    assert why_not_resumed("failed", history) == f"ended: {words}"
    assert how_to_extend(history) == {"time": "5s"}
    commands = next_commands("run", "failed", history)
    assert commands == ["extend it  workbench extend run --more-time 5s"]

    begun = make_history(budget={"time": 5})
    begun.apply(
        TrialProposed(trial=0, params={"x": 0.5}, configuration=0, seed=1, time_unix_s=101.0)
    )
    begun.apply(TrialStarted(trial=0, attempt=0, worker_pids=[], time_unix_s=102.0))
    assert honest_ending(ending, begun) == ending


@pytest.mark.parametrize(
    ("losses", "reached"), [([0.3, 0.2], False), ([0.3, 0.1], True), ([0.05], True)]
)
def test_the_target_counts_when_it_is_met_exactly_or_passed(
    losses: list[float], reached: bool
) -> None:
    objectives = [{"metric": "loss", "goal": "minimize", "target": 0.1}]
    reason = reason_to_end(make_history(losses, objectives=objectives), 200.0)  # type: ignore[arg-type]
    assert reason == (
        ("target", f"trial {len(losses) - 1} reached the target") if reached else None
    )


@pytest.mark.parametrize(("now_unix_s", "over"), [(129.9, False), (130.0, True), (500.0, True)])
def test_the_time_counts_from_the_first_driver_on(now_unix_s: float, over: bool) -> None:
    reason = reason_to_end(make_history(budget={"time": "30s"}), now_unix_s)
    assert reason == (("time", "the time budget of 30 s is used up") if over else None)


def test_the_wait_for_the_first_driver_counts_where_users_waited_for_the_result() -> None:
    history = make_history(budget={"time": "40s"})
    history.apply(SettingsChanged(settings={}, waited_s=14.2))
    assert history.active_s(110.0) == pytest.approx(24.2)
    assert reason_to_end(history, 125.7) is None
    assert reason_to_end(history, 125.8) == ("time", "the time budget of 40 s is used up")


def test_the_time_between_two_drivers_does_not_count() -> None:
    history = make_history([1.0], budget={"time": "30s"})
    history.apply(DriverStarted(pid=2, host="here", num_cpus=1, time_unix_s=1000.0))
    history.apply(RunStateChanged(state="running", time_unix_s=1000.0))
    assert reason_to_end(history, 1028.9) is None
    assert reason_to_end(history, 1029.1) == ("time", "the time budget of 30 s is used up")


def test_gpu_time_is_what_all_trials_hold_together_waiting_left_out() -> None:
    history = make_history(budget={"gpu_time": "1m", "trials": 9})
    for trial in range(2):
        history.apply(TrialProposed(trial=trial, params={"x": 0.5}, configuration=trial, seed=1))

    def start(trial: int, attempt: int, gpus: list[list[str]], now: float) -> None:
        history.apply(
            TrialStarted(trial=trial, attempt=attempt, worker_pids=[], gpus=gpus, time_unix_s=now)
        )

    start(0, 0, [["0"], ["1"]], 100.0)
    start(1, 0, [["2"]], 105.0)
    assert history.gpu_s(110.0) == 2 * 10 + 5
    history.apply(
        AttemptEnded(
            trial=0, attempt=0, reason="lost", message="", is_retry=True, time_unix_s=112.0
        )
    )
    assert history.gpu_s(120.0) == 2 * 12 + 15
    assert history.trials[0].duration_s == 0.0  # up to its last event before: its start
    start(0, 1, [["0"]], 125.0)
    history.apply(
        TrialEnded(trial=1, attempt=0, state="complete", values={"loss": 1.0}, time_unix_s=130.0)
    )
    assert history.gpu_s(135.0) == 2 * 12 + 10 + 25
    assert reason_to_end(history, 135.5) is None
    assert reason_to_end(history, 136.0) == (
        "gpu_time",
        "the budget of 1 min of GPU time is used up",
    )
    with pytest.raises(ExperimentError, match=r"gpu_time of 1 min is used up") as error:
        extended(history, {"budget.trials": 3}, 136.0)
    assert error.value.field == "budget.gpu_time"
    assert extended(history, {"budget.gpu_time": 30.0}, 137.0) == {"budget.gpu_time": 61.0 + 30.0}


def test_the_last_attempt_of_a_trial_that_the_run_interrupts_counts_once() -> None:
    history = make_history()
    history.apply(TrialProposed(trial=0, params={"x": 0.5}, configuration=0, seed=1))
    history.apply(TrialStarted(trial=0, attempt=0, worker_pids=[], gpus=[["0"]], time_unix_s=100.0))
    history.apply(TrialReported(trial=0, attempt=0, step=1, values={}, time_unix_s=110.0))
    history.apply(AttemptEnded(trial=0, attempt=0, reason="stopped", message="", time_unix_s=112.0))
    history.apply(TrialEnded(trial=0, attempt=0, state="stopped", time_unix_s=115.0))
    assert (history.trials[0].duration_s, history.gpu_s(120.0)) == (10.0, 12.0)


def test_an_energy_budget_ends_the_run_and_counts_from_what_was_metered_when_it_is_extended() -> (
    None
):
    history = make_history(budget={"energy": "2kWh", "trials": 9})
    assert history.in_force.budget.energy == 2000.0
    history.apply(EnergyMetered(total_wh=1999.0))
    assert reason_to_end(history, 100.0) is None
    history.apply(EnergyMetered(total_wh=2010.0))
    assert reason_to_end(history, 100.0) == ("energy", "the energy budget of 2 kWh is used up")
    with pytest.raises(ExperimentError, match=r"budget.energy of 2 kWh is used up") as error:
        extended(history, {"budget.trials": 3}, 100.0)
    assert error.value.field == "budget.energy"
    assert extended(history, {"budget.energy": 500.0}, 100.0) == {"budget.energy": 2510.0}


def test_a_run_costs_what_its_active_time_costs() -> None:
    history = make_history([1.0], budget={"money": "0.30 EUR", "price": "36 EUR/h", "trials": 9})
    history.apply(DriverStarted(pid=2, host="here", num_cpus=1, time_unix_s=1000.0))
    history.apply(RunStateChanged(state="running", time_unix_s=1000.0))
    earlier_s = history.active_s(1000.0)
    assert cost_of(history, 1010.0) == pytest.approx((earlier_s + 10.0) * 0.01)
    assert reason_to_end(history, 1000.0 + 29.9 - earlier_s) is None
    ending = ("money", "the budget of 0.30 EUR is used up")
    assert reason_to_end(history, 1000.0 + 30.1 - earlier_s) == ending
    with pytest.raises(ExperimentError, match=r"budget.money of 0.30 EUR is used up"):
        extended(history, {"budget.trials": 3}, 1040.0)
    more = extended(history, {"budget.money": 1.0}, 1000.0 + 40.0 - earlier_s)
    assert more == {"budget.money": pytest.approx(1.4)}


def test_a_price_of_gpus_counts_the_time_that_trials_hold_them() -> None:
    history = make_history(budget={"money": 0.5, "price": "$36/GPU-h"})
    history.apply(TrialProposed(trial=0, params={"x": 0.5}, configuration=0, seed=1))
    history.apply(
        TrialStarted(trial=0, attempt=0, worker_pids=[], gpus=[["0"], ["1"]], time_unix_s=100.0)
    )
    assert cost_of(history, 120.0) == pytest.approx(0.4)
    assert reason_to_end(history, 125.0) == ("money", "the budget of $0.50 is used up")


def test_a_part_of_a_gpu_counts_as_that_part() -> None:
    history = make_history(budget={"gpu_time": 10}, resources={"gpus_per_worker": 0.25})
    history.apply(TrialProposed(trial=0, params={"x": 0.5}, configuration=0, seed=1))
    history.apply(
        TrialStarted(trial=0, attempt=0, worker_pids=[], gpus=[["0"], ["0"]], time_unix_s=100.0)
    )
    assert history.gpu_s(120.0) == 10.0
    assert reason_to_end(history, 120.0) == (
        "gpu_time",
        "the budget of 10 s of GPU time is used up",
    )


@pytest.mark.parametrize(
    ("losses", "without"),
    [
        ([], 0),
        ([None, None], 0),
        ([1.0], 0),
        ([1.0, 2.0, None], 2),
        ([2.0, 3.0, 1.0, 5.0], 1),
        ([1, 1, 1], 2),
        ([2.0, 1.0, 1.0, 3.0], 2),
    ],
)
def test_a_plateau_is_counted_from_the_end_of_the_best(
    losses: list[float | None], without: int
) -> None:
    history = make_history(losses, budget={"plateau": 2})
    assert history.num_configurations_without_improvement() == without
    reason = reason_to_end(history, 200.0)
    assert reason == (
        ("plateau", "no better configuration among the last 2") if without == 2 else None
    )


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_a_tie_is_no_improvement_whichever_was_proposed_first(order: Sequence[int]) -> None:
    losses = [1.0, 1.0, 1.0, 2.0]
    events = make_events(losses)
    ends = [event for event in events if isinstance(event, TrialEnded)]
    history = make_history([])
    for event in events[2:]:
        if not isinstance(event, TrialEnded):
            history.apply(event)
    for at, number in enumerate(order):
        history.apply(ends[number].model_copy(update={"time_unix_s": 200.0 + at}))
        # Counted independently: how many ended after the first one with the lowest loss.
        so_far = [losses[other] for other in order[: at + 1]]
        without = at - so_far.index(min(so_far))
        assert history.num_configurations_without_improvement() == without


@pytest.mark.parametrize(
    ("gain", "losses", "used_s", "improved_by"),
    [
        ({"at_least": 0.5, "per": "2s"}, [5.0, 4.0, 3.9, 3.8], 5.0, "0.1"),
        ({"at_least": 0.1, "per": "2s"}, [5.0, 4.0, 3.9, 3.8], 5.0, None),
        ({"at_least": 0.5, "per": "2s"}, [5.0, 4.0, 3.9, 3.8], 4.0, "0.2"),
        ({"at_least": 0.5, "per": "2s"}, [None, None, 3.9, 3.9], 4.0, None),  # nothing to compare
        ({"at_least": 0.5, "per": "9s"}, [5.0, 5.0, 5.0], 8.9, None),  # not used up yet
        ({"at_least": 0.5, "per": "2s"}, [5.0, 5.0], 4.5, None),  # no trial has ended since then
        # 3.6 EUR/h are 0.001 EUR for a second.
        ({"at_least": 0.5, "per": "0.002 EUR"}, [5.0, 4.0, 3.9, 3.8], 5.0, "0.1"),
        ({"at_least": 0.5, "per": "0.004 EUR"}, [5.0, 4.0, 3.9, 3.8], 5.0, None),
    ],
)
def test_a_run_ends_when_its_last_hour_or_euro_has_bought_too_little(
    gain: dict[str, Any], losses: list[float | None], used_s: float, improved_by: str | None
) -> None:
    history = make_history(losses, budget={"gain": gain, "price": "3.6 EUR/h"})
    expected = None
    if improved_by is not None:
        per = gain["per"]
        expected = ("gain", f"the last {per} improved loss by {improved_by}, less than 0.5")
    assert reason_to_end(history, 100.0 + used_s) == expected


def test_an_extended_run_may_use_the_amount_once_more_before_its_gain_is_judged() -> None:
    history = make_history([5.0, 5.0, 5.0, 5.0], budget={"gain": {"at_least": 1, "per": "2s"}})
    assert reason_to_end(history, 104.0) is not None
    history.apply(RunStateChanged(state="complete", reason="gain", time_unix_s=104.0))
    history.apply(RunStateChanged(state="running", time_unix_s=104.0))
    assert reason_to_end(history, 105.9) is None


def test_limits_that_were_changed_count_from_then_on() -> None:
    history = make_history([1.0, 2.0, 3.0], budget={"trials": 9, "plateau": 5})
    assert reason_to_end(history, 200.0) is None

    history.apply(SettingsChanged(settings={"budget.plateau": 2, "budget.trials": 3}))
    assert reason_to_end(history, 200.0) == ("plateau", "no better configuration among the last 2")
    assert (has_room(history), history.max_trials()) == (False, 3)
    assert history.experiment.budget.trials == 9

    history.apply(SettingsChanged(settings={"budget.trials": 4}))
    assert has_room(history)


def test_what_is_added_counts_from_the_limit_or_from_what_was_used_if_that_is_more() -> None:
    budget = {"trials": 5, "time": 60.0}
    assert extended(make_history([1.0], budget=budget), {"budget.trials": 10}, 110.0) == {
        "budget.trials": 15
    }
    lowered = make_history([1.0, 2.0, 3.0], budget=budget)
    lowered.apply(SettingsChanged(settings={"budget.trials": 1}))
    assert extended(lowered, {"budget.trials": 10}, 110.0) == {"budget.trials": 13}
    both = extended(lowered, {"budget.trials": 1, "budget.time": 30}, 190.0)
    assert both == {"budget.trials": 4, "budget.time": 120.0}


@pytest.mark.parametrize(
    ("fields", "more", "field"),
    [
        ({"budget": {"trials": 3}}, {}, None),
        ({"budget": {"trials": 3}}, {"budget.trials": 0}, "budget.trials"),
        ({"budget": {"trials": 3}}, {"budget.trials": -2}, "budget.trials"),
        ({"budget": {"trials": 3}}, {"budget.trials": "four"}, "budget.trials"),
        ({"budget": {"trials": 3}}, {"budget.time": 9}, "budget.time"),
        ({"budget": {"trials": 3, "time": 60}}, {"budget.time": 9}, "budget.trials"),
        ({"budget": {"trials": 9, "time": 30}}, {"budget.trials": 9}, "budget.time"),
        ({"budget": {"trials": 9, "plateau": 2}}, {"budget.trials": 9}, "budget.plateau"),
        (
            {"objectives": [{"metric": "loss", "goal": "minimize", "target": 1}]},
            {"budget.trials": 9},
            None,
        ),
    ],
)
def test_an_extension_after_which_the_run_would_end_at_once_is_refused(
    fields: dict[str, Any], more: dict[str, Any], field: str | None
) -> None:
    with pytest.raises(ExperimentError) as refusal:
        extended(make_history([1.0, 2.0, 3.0], **fields), more, 140.0)
    assert refusal.value.field == field


def test_a_replay_has_nothing_to_be_extended_by_and_ends_when_it_was_told_to() -> None:
    objectives = [{"metric": "loss", "goal": "minimize", "target": 5.0}]
    proposals = [
        TrialProposed(trial=number, params={}, configuration=number, seed=1) for number in range(9)
    ]
    history = make_history([], objectives=objectives, budget={"trials": 3, "time": 1, "plateau": 1})
    history.apply(ReplayPlanned(of_run_id="first", proposals=proposals))
    for event in make_events([1.0, 2.0, 3.0]):
        history.apply(event)

    assert reason_to_end(history, 1e9) is None
    assert (has_room(history), history.max_trials()) == (True, 9)
    with pytest.raises(ExperimentError, match="replays first"):
        extended(history, {"budget.trials": 1}, 200.0)


@pytest.mark.parametrize(
    ("fields", "losses", "message"),
    [
        (
            POPULATION,
            [1.0] * 6,
            (
                r"to its end, with 6 trials\. Start a run that trains longer"
                r" \(sampler\.options\.length\)"
            ),
        ),
        (
            {"sampler": "grid", "search": {"x": {"choices": [1, 2]}}},
            [1.0, 2.0],
            (
                r"every combination of its space has been tried\. Start a run with more values in"
                r" `search`"
            ),
        ),
    ],
)
def test_what_can_be_done_is_named_where_a_run_has_nothing_left_to_try(
    fields: dict[str, Any], losses: list[float | None], message: str
) -> None:
    history = make_history(losses, **fields)
    history.apply(natural_end(history, True))
    with pytest.raises(ExperimentError, match=message):
        extended(history, {"budget.trials": 10}, 200.0)


@pytest.mark.parametrize(
    ("losses", "fields", "is_exhausted", "message"),
    [
        ([1.0], {"search": {}}, False, "tried its only configuration"),
        ([1.0], {"budget": {"trials": 1}}, False, "tried 1 configuration, its whole budget"),
        (
            [1.0, 2.0],
            {"budget": {"trials": 2}},
            False,
            "tried 2 configurations, its whole budget",
        ),
        (
            [1.0] * 9,
            {"budget": {"trials": 9}},
            False,
            "tried 7 configurations in 9 proposals",
        ),
        (
            [1.0, 2.0],
            {"sampler": "grid", "search": {"x": {"choices": [1, 2]}}},
            True,
            "every combination was tried",
        ),
        (
            [1.0, 2.0, 3.0],
            POPULATION | {"budget": {"trials": 3}},
            False,
            (
                "its budget ran out after 3 of the 6 trials that train the population to its end,"
                " so the best one may not be fully trained"
            ),
        ),
        ([1.0] * 6, POPULATION, True, "the population was trained to its end"),
    ],
)
def test_a_run_that_nothing_ended_early_says_what_was_tried(
    losses: list[float | None], fields: dict[str, Any], is_exhausted: bool, message: str
) -> None:
    ending = natural_end(make_history(losses, **fields), is_exhausted)
    assert (ending.state, ending.message) == ("complete", message)


@pytest.mark.parametrize(
    ("num_enqueued", "message"),
    [
        (0, "its budget was lowered to 2 when 3 configurations had already started"),
        (
            1,
            (
                "its budget was lowered to 2 when 3 configurations had already started. 1"
                " enqueued configuration was not tried"
            ),
        ),
    ],
)
def test_a_limit_below_what_had_begun_and_what_it_left_in_the_queue_are_stated(
    num_enqueued: int, message: str
) -> None:
    history = make_history([1.0, 2.0, 3.0], budget={"trials": 9})
    history.apply(SettingsChanged(settings={"budget.trials": 2}))
    assert natural_end(history, False, num_enqueued).message == message


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"budget": {"trials": 3}}, "--more-trials 10"),
        (POPULATION | {"budget": {"trials": 2}}, "--more-trials 4"),
    ],
)
def test_a_run_without_a_complete_trial_names_how_to_extend_it(
    fields: dict[str, Any], words: str
) -> None:
    history = History.of(
        Experiment(**OWN | fields),
        [
            *make_events([]),
            TrialProposed(trial=0, params={}, configuration=0, seed=0),
            TrialProposed(trial=1, params={}, configuration=1, seed=0),
        ],
    )
    assert next_commands("run", "complete", history) == [f"extend it  workbench extend run {words}"]


def test_failures_that_differ_in_numbers_only_are_one_kind() -> None:
    messages = ["no column x1 at 0.5", "no column x2 at 1e-05", "no table"]
    history = make_history([None] * 3)
    for number, message in enumerate(messages):
        history.apply(
            TrialEnded(
                trial=number, attempt=0, state="failed", reason="error", message=message, values={}
            )
        )
    groups = failure_groups(history)
    assert [(group.message, len(group.trials)) for group in groups] == [
        (f"{messages[0]} (values differ)", 2),
        (messages[2], 1),
    ]


def test_a_run_whose_trials_are_used_up_may_still_confirm_its_best() -> None:
    history = make_history([1.0, 2.0], budget={"trials": 2})
    history.apply(RunStateChanged(state="complete", reason="exhausted", time_unix_s=111.0))
    assert extended(history, {"confirm.best": 2}, 120.0) == {"confirm.best": 2}
    out_of_time = make_history([1.0, 2.0], budget={"time": 5})
    with pytest.raises(ExperimentError, match=r"budget\.time of 5 s is used up"):
        extended(out_of_time, {"confirm.best": 2}, 120.0)


def test_a_run_that_searches_nothing_is_not_extended_by_the_same_trial() -> None:
    history = make_history([1.0], search={}, budget={"trials": 3, "time": 60})
    with pytest.raises(
        ExperimentError, match="nothing is searched, so another trial would repeat the first one"
    ):
        extended(history, {"budget.trials": 3}, 110.0)
    history.apply(RunStateChanged(state="complete", reason="trials", time_unix_s=111.0))
    assert how_to_extend(history) is None


def test_the_time_of_automl_does_not_run_out_while_other_runs_hold_the_workers() -> None:
    fields: dict[str, Any] = {
        "train": None,
        "model": "mlp",
        "data": {"name": "digits", "held_out": "hash"},
        "search": {"lr": {"low": 0.1, "high": 1.0}},
        "objectives": [{"metric": "val_loss", "goal": "minimize"}],
        "budget": {"time": 60},
    }
    proposed = TrialProposed(
        trial=0, params={"lr": 0.5}, configuration=0, seed=1, time_unix_s=101.0
    )
    held_up = Noted(level="info", message="waits for workers", is_held_up=True)
    history = make_history(**fields)
    history.apply(proposed)
    assert reason_to_end(history, 5000.0) is not None, "workers that start slowly use up the time"
    history.apply(held_up)
    assert reason_to_end(history, 5000.0) is None, "nothing was trained yet"
    history.apply(TrialStarted(trial=0, attempt=0, worker_pids=[1], time_unix_s=400.0))
    # Workers may take 10 s to start, and 15 s are kept for the end: 35 s are left to train.
    assert history.limited_s(400.0) == 10.0
    assert reason_to_end(history, 434.9) is None
    assert reason_to_end(history, 435.1) == ("time", "the time budget of 1 min is used up")
    history.apply(AttemptEnded(trial=0, attempt=0, reason="lost", message="", time_unix_s=420.0))
    assert history.limited_s(900.0) == 510.0, "nobody is in the way"
    history.apply(held_up)
    assert history.limited_s(900.0) == 40.0, "another wait"
    history.apply(TrialStarted(trial=0, attempt=1, worker_pids=[1], time_unix_s=900.0))
    assert history.limited_s(905.0) == 45.0
    own = make_history(budget={"time": 60})
    own.apply(proposed.model_copy(update={"params": {"x": 0.5}}))
    assert reason_to_end(own, 161.0) is not None, "a limit of a sweep is a time of day"


def test_a_run_of_automl_that_trained_nothing_is_complete() -> None:
    fields: dict[str, Any] = {
        "train": None,
        "model": "mlp",
        "data": {"name": "digits", "held_out": "hash"},
        "search": {"lr": {"low": 0.1, "high": 1.0}},
        "objectives": [{"metric": "val_loss", "goal": "minimize"}],
        "budget": {"time": 60},
    }
    ending = RunStateChanged(state="complete", reason="time", message="the time is used up")
    assert honest_ending(ending, make_history(**fields)).state == "complete"


def test_a_run_of_automl_keeps_a_quarter_of_its_time_to_choose_and_test() -> None:
    fields: dict[str, Any] = {
        "train": None,
        "model": "mlp",
        "data": {"name": "digits", "held_out": "hash"},
        "search": {"lr": {"low": 0.1, "high": 1.0}},
        "objectives": [{"metric": "val_loss", "goal": "minimize"}],
    }
    history = make_history(**fields, budget={"time": 150})
    assert concluding_s(history.in_force) == 37.5
    assert reason_to_end(history, 212.4) is None
    assert reason_to_end(history, 212.6) == ("time", "the time budget of 2 min 30 s is used up")
    for time_s, kept_s in ((8, 2.5), (3600, 120.0)):
        other = make_history(**fields, budget={"time": time_s})
        assert concluding_s(other.in_force) == kept_s
    with pytest.raises(ExperimentError, match=r"budget.time of 2 min 30 s is used up"):
        extended(
            make_history(**fields, budget={"time": 150, "trials": 3}), {"budget.trials": 3}, 240.0
        )
    assert concluding_s(make_history(budget={"time": 150}).in_force) == 0.0
