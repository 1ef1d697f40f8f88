"""Runs whose trials train in turns: each has its first part before any has its second."""

from __future__ import annotations

import pytest

from tests.services.sweeps import Sweep
from workbench.foundation.events import AttemptEnded, Event, TrialEnded
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
