from __future__ import annotations

import math
from typing import Any

from workbench.experiment import Experiment
from workbench.experiment.plan import PartialPlan
from workbench.foundation.events import (
    AttemptEnded,
    DriverStarted,
    Event,
    ResizeMeasured,
    RunStateChanged,
    TrialEnded,
    TrialProposed,
    TrialReported,
    TrialResized,
    TrialStarted,
)
from workbench.store.history import History


def experiment(**changes: Any) -> Experiment:
    return Experiment(
        **{
            "train": "module:function",
            "objectives": [{"metric": "accuracy", "goal": "maximize"}],
            "search": {"x": {"low": 0.0, "high": 1.0}},
            **changes,
        }
    )


def trial(
    number: int, values: dict[str, float], state: Any = "complete", **proposed: Any
) -> list[Event]:
    return [
        TrialProposed(
            **{
                "trial": number,
                "params": {"x": 0.5},
                "configuration": number,
                "seed": 0,
                **proposed,
            }
        ),
        TrialStarted(trial=number, attempt=0, worker_pids=[1]),
        TrialReported(trial=number, step=7, values=values),
        TrialEnded(trial=number, attempt=0, state=state, values=values, step=7),
    ]


def test_a_trial_is_printed_in_one_line() -> None:
    history = History.of(experiment(), [*trial(7, {"accuracy": 0.98}), *trial(8, {}, "failed")[:1]])
    assert repr(history.trials[7]) == "trial 7, complete, accuracy=0.98, x=0.5"
    assert repr(history.trials[8]) == "trial 8, waiting, x=0.5"


def test_nan_and_infinity_never_win() -> None:
    events = [
        *trial(0, {"accuracy": math.nan}),
        *trial(1, {"accuracy": 0.5}),
        *trial(2, {"accuracy": math.inf}),
    ]
    history = History.of(experiment(), events)
    best = history.best()
    assert best is not None
    assert best.number == 1
    assert [item.number for item in history.ranked()] == [1]


def test_a_pruned_trial_is_not_the_best_however_good_it_looked() -> None:
    history = History.of(
        experiment(), [*trial(0, {"accuracy": 0.9}, "pruned"), *trial(1, {"accuracy": 0.5})]
    )
    assert [item.number for item in history.ranked()] == [1]


def test_a_broken_constraint_makes_a_trial_ineligible_and_so_does_a_missing_value() -> None:
    limited = experiment(constraints=[{"metric": "memory_gb", "at_most": 8}])
    events = [
        *trial(0, {"accuracy": 0.9, "memory_gb": 9}),
        *trial(1, {"accuracy": 0.8}),
        *trial(2, {"accuracy": 0.7, "memory_gb": 8}),
    ]
    assert [item.number for item in History.of(limited, events).ranked()] == [2]


def test_a_few_of_many_trials_are_ranked_as_among_all_without_a_look_at_the_others(
    monkeypatch: Any,
) -> None:
    events: list[Event] = []
    for number in range(60):
        place = {"configuration": number // 2, "repeat": number % 2}
        events += trial(number, {"accuracy": number * 7 % 13 / 13}, **place)
    history = History.of(experiment(repeats=2), events)
    some = [history.trials[number] for number in (3, 8, 9, 40)]
    expected = [each for each in history.ranked() if each in some]
    seen: list[int] = []
    is_feasible = history.is_feasible
    monkeypatch.setattr(
        history, "is_feasible", lambda each: seen.append(each.number) or is_feasible(each)
    )
    assert history.ranked(some) == expected
    assert seen == [3, 8, 9, 40]


def test_repeats_are_ranked_by_the_mean_of_their_configuration() -> None:
    events = [
        *trial(0, {"accuracy": 0.99}, configuration=0, repeat=0),
        *trial(1, {"accuracy": 0.51}, configuration=0, repeat=1),
        *trial(2, {"accuracy": 0.80}, configuration=1, repeat=0),
        *trial(3, {"accuracy": 0.82}, configuration=1, repeat=1),
    ]
    history = History.of(experiment(repeats=2), events)
    assert [item.configuration for item in history.ranked()] == [1, 1, 0, 0]
    assert history.num_configurations() == 2


def test_a_configuration_with_few_of_its_repeats_comes_after_those_with_all() -> None:
    events = [
        *trial(0, {"accuracy": 0.80}, configuration=0, repeat=0),
        *trial(1, {"accuracy": 0.70}, configuration=0, repeat=1),
        *trial(2, {"accuracy": 0.99}, configuration=1, repeat=0),
    ]
    history = History.of(experiment(repeats=2), events)
    assert [trial.number for trial in history.ranked()] == [0, 1, 2]
    assert History.of(experiment(repeats=2), trial(0, {"accuracy": 0.99})).best() is not None


def test_the_front_holds_what_no_trial_beats_everywhere() -> None:
    both = experiment(
        objectives=[
            {"metric": "accuracy", "goal": "maximize"},
            {"metric": "cost", "goal": "minimize"},
        ]
    )
    events = [
        *trial(0, {"accuracy": 0.9, "cost": 5.0}),
        *trial(1, {"accuracy": 0.8, "cost": 1.0}),
        *trial(2, {"accuracy": 0.7, "cost": 2.0}),
        *trial(3, {"accuracy": math.nan, "cost": 0.0}),
    ]
    assert [item.number for item in History.of(both, events).front()] == [0, 1]


def test_the_target_is_reached_by_a_complete_trial_only() -> None:
    wanted = experiment(objectives=[{"metric": "accuracy", "goal": "maximize", "target": 0.9}])
    assert not History.of(wanted, trial(0, {"accuracy": 0.95}, "pruned")).target_reached()
    assert History.of(wanted, trial(0, {"accuracy": 0.9})).target_reached()


def test_unfinished_trials_of_a_run_that_ended_are_stopped_until_it_is_resumed() -> None:
    history = History.of(
        experiment(),
        [
            *trial(0, {"accuracy": 0.5})[:3],
            AttemptEnded(trial=0, attempt=0, reason="stopped", message="the run ended"),
            RunStateChanged(state="stopped", reason="person"),
        ],
    )
    assert history.trials[0].state == "stopped"
    history.apply(RunStateChanged(state="running"))
    assert history.trials[0].state == "waiting"


def test_the_time_between_two_drivers_does_not_count() -> None:
    def started(time_unix_s: float) -> DriverStarted:
        return DriverStarted(pid=1, host="here", num_cpus=2, time_unix_s=time_unix_s)

    history = History(experiment())
    assert history.active_s(500.0) == 0.0
    history.apply(started(100.0))
    history.apply(RunStateChanged(state="running", time_unix_s=130.0))
    history.apply(started(1000.0))
    assert history.active_s(1010.0) == 40.0
    history.apply(RunStateChanged(state="complete", time_unix_s=1020.0))
    assert history.active_s(9999.0) == 50.0


def test_a_trial_counts_its_reports_and_attempts() -> None:
    events = trial(0, {"accuracy": 0.5})
    retried = TrialStarted(trial=0, attempt=1, worker_pids=[2])
    history = History.of(experiment(), [*events[:3], retried, events[2], events[3]])
    assert (history.trials[0].attempts, history.trials[0].reports, history.trials[0].last_step) == (
        2,
        2,
        7,
    )
    assert history.to_json()["trials"][0]["values"] == {"accuracy": 0.5}


def test_the_time_of_a_trial_is_that_of_its_attempts_and_not_the_time_between_them() -> None:
    proposed, started, reported, _ = trial(0, {"accuracy": 0.5})

    def at(event, time_s, **changes):
        return event.model_copy(update={"time_unix_s": time_s, **changes})

    lost = AttemptEnded(
        trial=0, attempt=0, reason="lost", message="the driver ended", time_unix_s=5000.0
    )
    again = at(started, 5010.0, attempt=1)
    events = [
        at(proposed, 90.0),
        at(started, 100.0),
        at(reported, 130.0),
        lost,
        again,
        at(reported, 5017.0),
    ]
    history = History.of(experiment(), events)
    assert history.trials[0].trained_s == 30.0
    history.apply(at(lost, 5020.0, attempt=1))
    assert history.trials[0].trained_s == 37.0


def test_a_trial_that_grew_says_what_was_expected_and_what_it_brought() -> None:
    resized = TrialResized(
        trial=0,
        attempt=0,
        from_workers=1,
        to_workers=2,
        samples_per_s=1000.0,
        expected_samples_per_s=1900.0,
        left_s=60.0,
        assumed_restart_s=5.0,
        expected_saving_s=23.4,
    )
    ended = AttemptEnded(
        trial=0,
        attempt=0,
        reason="resized",
        message="it grows",
        next_plan={"workers": 2, "micro_batch": 32},
    )
    history = History.of(experiment(), [*trial(0, {"accuracy": 0.5})[:3], resized, ended])
    grown = history.trials[0]
    assert (grown.state, grown.decided_plan) == (
        "waiting",
        PartialPlan.of(workers=2, micro_batch=32),
    )
    assert not grown.ran_out_of_memory
    assert (
        grown.resizes[0].describe()
        == "grew from 1 to 2 workers: 1,000 -> about 1,900 samples/s, expected to end 23.4 s"
        " earlier"
    )
    found = {"trial": 0, "attempt": 1, "from_workers": 1, "to_workers": 2, "samples_per_s": 1500.0}
    history.apply(ResizeMeasured(**found, restart_s=6.0, saving_s=14.0))
    assert (
        grown.resizes[0].describe()
        == "grew from 1 to 2 workers: 1,000 -> 1,500 samples/s. The restart took 6 s, and the trial"
        " ends 14 s earlier (expected: 23.4 s earlier)"
    )
    [told] = history.to_json()["trials"][0]["resizes"]
    assert (told["expected_saving_s"], told["measured"]["saving_s"]) == (23.4, 14.0)
    history.apply(ResizeMeasured(**found, restart_s=25.0, saving_s=-5.0))
    assert "the trial ends 5 s later" in grown.resizes[0].describe()

    changes = {"from_workers": 2, "to_workers": 1, "expected_saving_s": -20.0}
    shrunk = resized.model_copy(
        update={**changes, "cause": "request", "for_run": "other", "expected_samples_per_s": 600.0}
    )
    history.apply(shrunk)
    assert grown.resizes[1].describe() == (
        "shrank from 2 to 1 worker because run other waited for some: 1,000 -> about 600 samples/s,"
        " expected to end 20 s later"
    )
    history.apply(resized.model_copy(update={"cause": "guard", "from_workers": 1}))
    assert grown.resizes[2].describe() == (
        "went back from 1 to 2 workers and its checkpoint from before, because its validation fell"
        " behind the forecast"
    )
