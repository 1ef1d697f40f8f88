"""A replay beside its original."""

from __future__ import annotations

import math
from typing import Any

import pytest

from workbench.experiment import Experiment
from workbench.foundation.events import Event, ReplayPlanned, TrialEnded, TrialProposed
from workbench.runs.replay_comparison import compare
from workbench.store.history import History

EXPERIMENT = Experiment(
    train="json:dumps",
    objectives=({"metric": "loss", "goal": "minimize"},),  # type: ignore[arg-type]
    search={"x": {"low": 0.0, "high": 9.0}},  # type: ignore[arg-type]
)


def proposals(xs: list[float]) -> list[TrialProposed]:
    return [
        TrialProposed(trial=index, params={"x": x}, configuration=index, seed=1)
        for index, x in enumerate(xs)
    ]


def history(
    xs: list[float], losses: list[float | None], replay_of: list[float] | None = None
) -> History:
    events: list[Event] = []
    if replay_of is not None:
        events.append(ReplayPlanned(of_run_id="first", proposals=proposals(replay_of)))
    events += proposals(xs)
    for trial, loss in enumerate(losses):
        fields: dict[str, Any] = {"state": "pruned"} if loss is None else {"state": "complete"}
        events.append(TrialEnded(trial=trial, attempt=0, values={"loss": loss or 0.0}, **fields))
    return History.of(EXPERIMENT, events)


def test_proposals_are_counted_and_the_largest_difference_is_named() -> None:
    original = history([1, 2, 3, 4], [0.5, 0.25, 0.125, None])
    replay = history([1, 2, 3.5], [0.5, 0.5, 0.25], replay_of=[1, 2, 3, 4])

    comparison = compare(original, replay)

    assert comparison is not None
    assert (comparison.num_recorded, comparison.num_identical, comparison.num_compared) == (4, 2, 3)
    assert (comparison.largest_difference, comparison.metric, comparison.trial) == (0.25, "loss", 1)
    assert str(comparison) == (
        "replay of first: 2 of 4 proposals identical; largest difference of loss 0.25 (trial 1), "
        "3 trials complete in both"
    )


def test_trials_that_ended_otherwise_are_counted_and_not_compared() -> None:
    comparison = compare(
        history([1, 2], [0.5, None]), history([1, 2], [None, None], replay_of=[1, 2])
    )

    assert comparison is not None
    assert (comparison.num_compared, comparison.num_otherwise, comparison.largest_difference) == (
        0,
        1,
        None,
    )
    assert (
        str(comparison)
        == "replay of first: 2 of 2 proposals identical; 1 trial ended in another state"
    )


@pytest.mark.parametrize(
    ("first", "second", "difference"),
    [
        (math.nan, math.nan, 0.0),
        (math.nan, 1.0, math.inf),
        (math.inf, math.inf, 0.0),
        (math.inf, 1.0, math.inf),
    ],
)
def test_values_that_are_no_numbers_differ_unless_they_are_the_same(
    first: float, second: float, difference: float
) -> None:
    comparison = compare(history([1], [first]), history([1], [second], replay_of=[1]))
    assert comparison is not None
    assert comparison.largest_difference == difference


def test_a_run_that_replays_none_is_not_compared() -> None:
    assert compare(history([1], [0.5]), history([1], [0.5])) is None
