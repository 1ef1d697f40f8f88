"""Which trial counts where none is named, and what a choice by hand gives up."""

from __future__ import annotations

import pytest

from tests.builders.recorded_runs import EXPERIMENT, begin, trial_events
from workbench.experiment import Experiment
from workbench.foundation.errors import ArgumentError
from workbench.foundation.events import Event
from workbench.store.history import History
from workbench.store.history.history import (
    check_choice,
    chosen_by_hand,
    chosen_or_best,
    describe_choice,
)


def history_of(*results: tuple[float, float]) -> History:
    """Return a run of two objectives and a constraint.

    A complete trial for each result, and a failed one.
    """
    experiment = Experiment(
        **EXPERIMENT
        | {
            "objectives": [
                {"metric": "val_accuracy", "goal": "maximize"},
                {"metric": "cost", "goal": "minimize"},
            ],
            "constraints": [{"metric": "cost", "at_most": 9}],
        }
    )
    events: list[Event] = [*begin()]
    for number, (accuracy, cost) in enumerate(results):
        *training, end = trial_events(number, at_s=number, accuracy=accuracy)
        events += [
            *training,
            end.model_copy(update={"values": {"val_accuracy": accuracy, "cost": cost}}),
        ]
    failed = trial_events(len(results), at_s=9, state="failed", reason="error")
    return History.of(experiment, [*events, *failed])


@pytest.fixture
def history() -> History:
    return history_of((0.9, 5.0), (0.8, 1.0), (0.85, 2.0), (0.99, 12.0))


def test_the_best_counts_until_a_trial_is_chosen(history: History) -> None:
    best = chosen_or_best(history)
    assert best is not None
    assert (best.number, chosen_by_hand(history), describe_choice(history)) == (0, None, None)

    history.chosen_trial = 2
    chosen = chosen_or_best(history)
    assert chosen is history.trials[2]
    assert history.best() is best, "limits and samplers go on with the best"
    document = history.to_json()
    assert document["best"]["trial"] == 2


def test_a_choice_states_what_it_gives_up_against_the_extremes_of_the_front(
    history: History,
) -> None:
    history.chosen_trial = 2
    assert (
        describe_choice(history) == "val_accuracy 0.85 (front's best 0.9), cost 2 (front's best 1)"
    )
    history.chosen_trial = 0
    assert (
        describe_choice(history) == "val_accuracy 0.9 (the front's best), cost 5 (front's best 1)"
    )


@pytest.mark.parametrize(
    ("number", "problem"),
    [
        (7, "the run has no trial 7; allowed: 0 to"),
        (4, "trial 4 is failed, not complete"),
        (3, "trial 3 violates a constraint or has a result that is not finite"),
    ],
)
def test_only_a_complete_trial_that_keeps_all_constraints_can_be_chosen(
    history: History, number: int, problem: str
) -> None:
    with pytest.raises(ArgumentError, match=problem) as refused:
        check_choice(history, number)
    assert number == 7 or "such as 0, 2, 1" in str(refused.value)
    history.chosen_trial = number
    assert chosen_by_hand(history) is None


def test_nothing_can_be_chosen_before_a_trial_is_complete() -> None:
    with pytest.raises(ArgumentError, match="no other trial can be chosen yet"):
        check_choice(history_of(), 0)
