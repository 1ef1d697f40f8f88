"""What curves show is observed with its distance from the end of the training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from tests.builders.studies import make_experiment
from workbench.search.partial_results import CURVES, Reading, is_cut, observe, of_objective

EPOCHS: dict[str, BaseDistribution] = {"epochs": IntDistribution(1, 100)}


def _trial(
    state: TrialState,
    reports: Mapping[int, float],
    value: float | None = None,
    epochs: int | None = None,
) -> FrozenTrial:
    return create_trial(
        state=state,
        value=value,
        intermediate_values=dict(reports),
        params={} if epochs is None else {"epochs": epochs},
        distributions={} if epochs is None else EPOCHS,
    )


def test_an_observation_states_the_doublings_until_the_end() -> None:
    stopped = _trial(TrialState.PRUNED, {rung: rung / 10 for rung in range(1, 9)})
    seen = observe([stopped], Reading(num_epochs=32))
    np.testing.assert_allclose(
        seen.ahead, [2.0, 4.0], err_msg="the last rung, and the last one in its first third"
    )
    np.testing.assert_allclose(seen.values, [0.8, 0.2])


def test_complete_trials_are_observed_where_they_ended_whatever_their_length() -> None:
    short = _trial(TrialState.COMPLETE, {4: 0.5}, value=0.5, epochs=4)
    long = _trial(TrialState.COMPLETE, {4: 0.5, 16: 0.7}, value=0.7, epochs=16)
    stopped = _trial(TrialState.PRUNED, {4: 0.5}, epochs=8)
    seen = observe([short, long, stopped], Reading(num_epochs=64))
    assert list(zip(seen.rows, seen.ahead, seen.values, strict=True)) == [
        (0, 0.0, 0.5),
        (1, 0.0, 0.7),
        (1, 2.0, 0.5),
        (2, 1.0, 0.5),
    ]


def test_where_nothing_states_the_end_the_longest_training_shows_it() -> None:
    ended = _trial(TrialState.COMPLETE, {1: 3.0, 64: 1.0}, value=1.0)
    running = _trial(TrialState.RUNNING, {16: 2.0})
    seen = observe([ended, running], Reading(sign=-1.0))
    assert (seen.ahead[-1], seen.values[-1]) == (2.0, -2.0)


def test_a_value_that_is_the_best_report_is_read_as_the_best_so_far() -> None:
    stopped = _trial(TrialState.PRUNED, {1: 0.9, 10: 0.4})
    assert observe([stopped], Reading(follows_best=True)).values.tolist() == [0.9, 0.9]
    assert observe([stopped], Reading(follows_best=False)).values.tolist() == [0.4, 0.9]


def test_first_steps_are_counted_from_zero_by_some() -> None:
    seen = observe([_trial(TrialState.PRUNED, {0: 0.5, 4: 0.6})], Reading(num_epochs=8))
    np.testing.assert_allclose(seen.ahead, [1.0, 4.0])


MODEL: dict[str, Any] = {"train": None, "model": "mlp", "data": "digits"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, Reading(-1.0, None, False)),
        (
            {"objectives": [{"metric": "a", "goal": "maximize", "value": "best"}]},
            Reading(1.0, None, True),
        ),
        ({**MODEL, "training": {"epochs": 7}}, Reading(-1.0, 7, True)),
        (
            {**MODEL, "search": {"epochs": 9, "lr": {"low": 0.1, "high": 1.0}}},
            Reading(-1.0, 9, True),
        ),
    ],
)
def test_how_curves_are_read_follows_from_the_experiment(
    changes: dict[str, Any], expected: Reading
) -> None:
    assert Reading.of(make_experiment(**changes)) == [expected]


_REPORTS = st.dictionaries(st.integers(0, 50), st.floats(0, 1), min_size=1, max_size=50)


@given(
    st.lists(
        st.tuples(st.sampled_from(["pruned", "running", "complete"]), _REPORTS),
        min_size=1,
        max_size=5,
    )
)
def test_every_trial_with_reports_is_observed_in_few_points_and_none_beyond_its_end(
    drawn: list[tuple[str, dict[int, float]]],
) -> None:
    trials = [
        _trial(
            TrialState[state.upper()],
            reports,
            reports[max(reports)] if state == "complete" else None,
        )
        for state, reports in drawn
    ]
    seen = observe(trials, Reading())
    assert set(seen.rows) == set(range(len(trials)))
    assert (seen.ahead >= 0).all()
    for row, (state, reports) in enumerate(drawn):
        ahead = seen.ahead[seen.rows == row]
        assert len(ahead) <= min(5, len(reports) + 1)
        assert (np.diff(ahead) >= 0).all()
        assert (state == "complete") <= (ahead[0] == 0)
        assert math.isfinite(seen.values[seen.rows == row].sum())


def test_a_trial_of_several_objectives_is_read_as_one_of_each() -> None:
    shown = {1: [0.5, math.nan], 2: [0.7, 3.0]}
    stopped = create_trial(state=TrialState.PRUNED, user_attrs={CURVES: shown})
    assert is_cut(stopped)
    assert of_objective(stopped, 0).intermediate_values == {1: 0.5, 2: 0.7}
    assert of_objective(stopped, 1).intermediate_values == {2: 3.0}
    ended = create_trial(state=TrialState.COMPLETE, values=[0.7, 3.0], user_attrs={CURVES: shown})
    assert [of_objective(ended, index).value for index in (0, 1)] == [0.7, 3.0]
    assert ended.values == [0.7, 3.0]


def test_curves_of_several_objectives_are_what_the_trial_would_have_been_worth() -> None:
    objectives = [{"metric": "a", "goal": "maximize"}, {"metric": "b", "goal": "minimize"}]
    readings = Reading.of(make_experiment(**MODEL, objectives=objectives, training={"epochs": 7}))
    assert readings == [Reading(1.0, 7, False), Reading(-1.0, 7, False)]
