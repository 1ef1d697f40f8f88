"""Runs in turns that are stopped, extended or cloned on the way, or that lose a worker."""

from __future__ import annotations

import os
import signal

import pytest

from tests.services.sweeps import Sweep
from tests.sweeps.test_runs_in_turns import STEPS, start, turns_of
from workbench.foundation.events import (
    AttemptEnded,
    CommandHandled,
    TrialReported,
    TrialStarted,
)
from workbench.runs import Run
from workbench.store.database import Store

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("free_pool")]

SLOW = {"steps": STEPS, "pause_s": 0.1}


def ended_turns(sweep: Sweep) -> list[tuple[int, int | None]]:
    return sorted((event.trial, event.turn) for event in sweep.of(AttemptEnded) if event.turn)


def steps_of(sweep: Sweep, trial: int) -> set[int]:
    return {event.step for event in sweep.of(TrialReported, trial)}


@pytest.mark.slow
def test_a_worker_that_is_killed_in_a_turn_costs_an_attempt_and_no_turn(store: Store) -> None:
    sweep = start(store, options=SLOW).drive()
    report = sweep.wait_for(TrialReported, lambda event: event.step == 3)
    os.kill(sweep.history.trials[report.trial].worker_pids[0], signal.SIGKILL)
    sweep.wait("complete")
    [lost] = [event for event in sweep.of(AttemptEnded) if event.turn is None]
    assert (lost.trial, lost.reason, lost.is_retry) == (report.trial, "lost", True)
    assert ended_turns(sweep) == [(trial, turn) for trial in range(4) for turn in (1, 2)]
    assert [trial.state for trial in sweep.trials] == ["complete"] * 4
    assert all(steps_of(sweep, number) == {*range(1, STEPS + 1)} for number in range(4))
    assert sweep.trials[report.trial].attempts == 4
    sweep.assert_sound()


@pytest.mark.slow
def test_a_run_that_is_stopped_and_resumed_goes_on_in_the_same_turn(store: Store) -> None:
    sweep = start(store, options=SLOW).drive()
    sweep.wait_for(TrialReported, lambda event: event.step == 3)
    store.command(sweep.run_id, "stop", {})
    sweep.wait("stopped")
    before = ended_turns(sweep)
    assert [turn for _, turn in before].count(1) == 4
    assert [turn for _, turn in before].count(2) < 4
    sweep.drive().wait("complete")
    assert ended_turns(sweep) == [(trial, turn) for trial in range(4) for turn in (1, 2)]
    assert all(steps_of(sweep, number) == {*range(1, STEPS + 1)} for number in range(4))
    sweep.assert_sound()


def test_the_trials_of_an_extension_catch_up_turn_by_turn(store: Store) -> None:
    sweep = start(
        store, search={"x": {"low": 0.0, "high": 1.0}}, sampler="random", budget={"trials": 2}
    )
    sweep.launch("inline")
    Run(store, sweep.run_id).extend(trials=2, launcher="inline")
    assert sweep.state == "complete"
    later = [(trial, turn) for trial, turn in turns_of(sweep.events) if trial >= 2]
    assert [turn for _, turn in later] == [1, 1, 2, 2, None, None]
    assert {trial for trial, _ in later} == {2, 3}
    sweep.assert_every_step_was_reported(STEPS)
    sweep.assert_sound()


def test_a_clone_trains_the_turns_that_its_parent_had_before_it(store: Store) -> None:
    sweep = start(store, options=SLOW, search={"x": {"choices": [0.3, 0.1]}}).drive()
    ended = sweep.wait_for(AttemptEnded, lambda event: event.turn == 1)
    x = 0.4 - float(sweep.history.trials[ended.trial].params["x"])  # type: ignore[arg-type]
    arguments = {"trial": ended.trial, "set": {"x": round(x, 1)}}
    number = store.command(sweep.run_id, "clone", arguments)
    answer = sweep.wait_for(CommandHandled, lambda event: event.command == number)
    assert answer.done, answer.message
    sweep.wait("complete")
    cloned = sweep.trials[-1]
    assert cloned.clone is not None
    assert (cloned.clone.of, cloned.clone.turn) == (ended.trial, 1)
    assert [turn for trial, turn in turns_of(sweep.events) if trial == cloned.number] == [2, None]
    # Its parent may have saved a step of its second turn that the driver has yet to hear of.
    steps = steps_of(sweep, cloned.number)
    assert steps in ({3, 4, 5, 6}, {4, 5, 6})
    assert min(steps) > cloned.clone.step
    assert [trial.state for trial in sweep.trials] == ["complete"] * 3
    assert len(sweep.of(TrialStarted, cloned.number)) == 2
    sweep.assert_sound()


@pytest.mark.slow
def test_trials_on_two_workers_have_the_same_values_with_and_without_turns(store: Store) -> None:
    fields = {
        "train": None,
        "model": {"name": "mlp", "hidden_width": 16, "dropout": 0.2},
        "data": "digits",
        "objectives": [{"metric": "val_loss", "goal": "minimize"}],
        "search": {"lr": {"choices": [0.1, 0.01]}},
        "training": {"epochs": 6, "optimizer": "sgd"},
        "plan": {"workers": 2},
    }
    whole = start(store, **fields, early_stop={}).launch("inline")
    turns = start(store, **fields, early_stop={"turns": 3}).launch("inline")
    assert [trial.attempts for trial in turns.trials] == [3, 3]
    assert [trial.values for trial in turns.trials] == [trial.values for trial in whole.trials]
    turns.assert_sound()
