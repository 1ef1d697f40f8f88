"""Runs whose trials train in turns: each has its first part before any has its second."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.services.sweeps import Sweep
from workbench.foundation.events import (
    AttemptEnded,
    DriverStarted,
    Event,
    TrialEnded,
    TrialReported,
    TrialStarted,
)
from workbench.store.database import Store

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("free_pool")]

STEPS = 6


def start(store: Store, **fields: object) -> Sweep:
    """A run whose trials save each of their steps, and end at 6 - x."""
    return Sweep.create(
        store,
        "go_on",
        **{
            "options": {"steps": STEPS, "pause_s": 0.0},
            "search": {"x": {"choices": [0.3, 0.1, 0.2, 0.0]}},
            "sampler": "grid",
            "early_stop": {"turns": 3, "length": STEPS},
            **fields,
        },
    )


def turns_of(events: list[Event]) -> list[tuple[int, int | None]]:
    """The trial and the turn of each end, in order. None for the end of a trial."""
    return [
        (event.trial, event.turn if isinstance(event, AttemptEnded) else None)
        for event in events
        if isinstance(event, AttemptEnded | TrialEnded)
    ]


def test_every_trial_has_its_turn_before_the_next_one(store: Store) -> None:
    sweep = start(store).launch("inline")
    assert sweep.state == "complete"
    by_worth = [sweep.trial_with(x=x).number for x in (0.0, 0.1, 0.2, 0.3)]
    assert turns_of(sweep.events) == [
        *((trial, 1) for trial in range(4)),
        *((trial, 2) for trial in by_worth),
        *((trial, None) for trial in by_worth),
    ]
    sweep.assert_every_step_was_reported(STEPS)
    sweep.assert_sound()
    trial = sweep.trials[0]
    assert (trial.turn, trial.setbacks, trial.attempts) == (2, [], 3)


def test_several_trials_at_once_leave_no_place_idle(store: Store) -> None:
    sweep = start(store, resources={"concurrency": 2}).launch("inline")
    started = [(event.trial, event.attempt) for event in sweep.of(TrialStarted)]
    assert sorted(started[:4]) == [(trial, 0) for trial in range(4)]
    sweep.assert_every_step_was_reported(STEPS)
    sweep.assert_sound()


@pytest.mark.slow
@pytest.mark.parametrize("turn", [1, 2])
def test_a_killed_driver_loses_and_repeats_no_turn(turn: int, store: Store) -> None:
    sweep = start(store, options={"steps": STEPS, "pause_s": 0.1}).launch()
    sweep.wait_for(AttemptEnded, lambda event: event.turn == turn)
    os.kill(sweep.of(DriverStarted)[-1].pid, signal.SIGKILL)
    sweep.wait("complete")
    ended = [(event.trial, event.turn) for event in sweep.of(AttemptEnded) if event.turn]
    assert sorted(ended) == [(trial, turn) for trial in range(4) for turn in (1, 2)]
    for trial in sweep.trials:
        steps = {report.step for report in sweep.of(TrialReported, trial.number)}
        assert (trial.state, steps) == ("complete", {*range(1, STEPS + 1)})
    first = [event.turn for event in sweep.of(AttemptEnded) if event.turn]
    assert first == [1] * 4 + [2] * 4, "every first turn was before every second one"
    sweep.assert_sound()


SCRIPT = """
import pathlib, sys, time
epochs, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])
saved = folder / "epoch"
first = int(saved.read_text()) + 1 if saved.exists() else 1
for epoch in range(first, epochs + 1):
    print(f"epoch {epoch} loss {1 / epoch}", flush=True)
    saved.write_text(str(epoch))
    time.sleep(0.5)
"""


@pytest.mark.slow
def test_a_script_starts_again_in_each_turn_and_states_the_cost(
    store: Store, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    sweep = start(
        store,
        train=None,
        command=f"python {script} {{epochs}} {{folder}} {{seed}} {{x}}",
        step="epoch",
        search={"x": {"choices": [0, 1]}, "epochs": 6},
        early_stop={"turns": 2},
    )
    sweep.launch("inline")
    assert [turn for _, turn in turns_of(sweep.events)] == [1, 1, None, None]
    for trial in sweep.trials:
        steps = [report.step for report in sweep.of(TrialReported, trial.number)]
        assert (trial.state, trial.attempts, sorted({*steps})) == ("complete", 2, [*range(1, 7)])
        assert len(steps) <= 7, "at most the last step of a turn is repeated"
    sweep.assert_sound()
