"""How sure the best result of a run is."""

from __future__ import annotations

import random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.experiment import Experiment
from workbench.foundation.events import ProgramKept, TrialEnded, TrialProposed, TrialStarted
from workbench.store.history import History
from workbench.store.history.certainty import (
    Certainty,
    certainty_of,
    describe_luck,
    noise_of,
    shrink,
    survivors,
)

_VALUES = st.floats(-100, 100)


def history_of(groups: list[list[float]], **changes: object) -> History:
    """Make a history with the complete trainings of some configurations."""
    fields = {
        "train": "m:f",
        "objectives": [{"metric": "score", "goal": "maximize"}],
        "budget": {"trials": 99},
        "search": {"x": {"low": 0.0, "high": 1.0}},
    }
    history = History(Experiment(**fields | changes))
    number = 0
    for configuration, values in enumerate(groups):
        for repeat, value in enumerate(values):
            history.apply(
                TrialProposed(
                    trial=number,
                    params={"x": 0.5},
                    configuration=configuration,
                    repeat=repeat,
                    seed=repeat,
                )
            )
            history.apply(
                TrialEnded(trial=number, attempt=0, state="complete", values={"score": value})
            )
            number += 1
    return history


def known(history: History) -> Certainty:
    found = certainty_of(history)
    assert found is not None
    return found


def test_nothing_is_stated_where_nothing_was_trained_twice() -> None:
    assert certainty_of(history_of([[0.1], [0.3], [0.2]])) is None
    assert certainty_of(history_of([])) is None


def test_of_configurations_that_were_trained_once_the_lead_and_the_cost_of_knowing_more_are_stated() -> (
    None
):
    assert (
        describe_luck(history_of([[0.1], [0.5], [0.25], [0.2]]))
        == "It leads the second best, 0.25, by 0.25. Each configuration was trained once, so this"
        " may be luck: confirm.best=3 would train the best 3 again, with at most 12 trainings"
    )
    assert (describe_luck(history_of([[0.5], [0.5]])) or "").startswith(
        "The second best has 0.5, too. "
    )
    lowest = history_of(
        [[1.0], [0.25], [0.75]], objectives=[{"metric": "score", "goal": "minimize"}]
    )
    assert (describe_luck(lowest) or "").startswith("It leads the second best, 0.75, by 0.5. ")


def test_the_best_is_compared_with_trials_of_its_version_of_the_code_only() -> None:
    history = history_of([[0.9], [0.8]])
    history.apply(ProgramKept(version=2, why="changed"))
    for number, value in ((2, 0.1), (3, 0.25)):
        history.apply(
            TrialProposed(trial=number, params={"x": 0.5}, configuration=number, repeat=0, seed=0)
        )
        history.apply(TrialStarted(trial=number, attempt=0, worker_pids=[1], program=2))
        history.apply(
            TrialEnded(trial=number, attempt=0, state="complete", values={"score": value})
        )
    assert (describe_luck(history) or "").startswith("It leads the second best, 0.1, by 0.15. ")


def test_nothing_is_said_of_luck_where_there_is_nothing_to_compare_or_the_noise_is_known() -> None:
    assert describe_luck(history_of([])) is None
    assert describe_luck(history_of([[0.5]])) is None
    repeated = history_of([[0.9, 0.5], [0.2, 0.3]])
    assert describe_luck(repeated) == known(repeated).describe()


def test_the_expected_value_rests_on_the_trainings_after_the_choice() -> None:
    found = known(history_of([[0.9, 0.5, 0.7], [0.8, 0.4, 0.3], [0.2]], confirm={"best": 2}))
    assert found.is_retrained
    assert (found.num_trainings, found.num_compared) == (2, 1)
    assert found.expected == pytest.approx(0.6)
    assert found.observed == pytest.approx(0.7)
    # Closed form: the squares within are 0.08 and 0.14, with 4 degrees of freedom; t(4, 0.95) =
    # 2.131847.
    half = 2.131847 * (0.22 / 4 / 2) ** 0.5
    assert (found.low, found.high) == pytest.approx((0.6 - half, 0.6 + half), rel=1e-5)
    assert (
        found.describe()
        == "Expect score 0.6 (0.2465 to 0.9535), the mean of 2 trainings after it was chosen; "
        "at least 82 % sure that it is better than the other one that was trained again"
    )


def test_repeats_of_all_shrink_the_best_towards_the_others() -> None:
    found = known(history_of([[1.0, 0.8], [0.7, 0.5], [0.4, 0.4], [0.6, 0.6]], repeats=2))
    assert not found.is_retrained
    assert 0.6 < found.expected < found.observed == pytest.approx(0.9)


def test_without_noise_nothing_is_corrected() -> None:
    found = known(history_of([[0.5, 0.5], [0.2, 0.2]], repeats=2))
    assert (found.expected, found.low, found.high, found.chance) == (0.5, 0.5, 0.5, 1.0)
    assert (
        found.describe()
        == "score 0.5 does not depend on the seed; at least 99 % sure that it is better than the"
        " other one"
    )


def test_lower_is_better_where_the_objective_is_minimized() -> None:
    goal = [{"metric": "score", "goal": "minimize"}]
    found = known(
        history_of([[0.1, 0.11, 0.1], [0.9, 0.91, 0.9]], objectives=goal, confirm={"best": 2})
    )
    assert found.chance > 0.99
    assert found.expected == pytest.approx(0.105)


def test_a_shrunken_mean_has_the_value_of_the_closed_form() -> None:
    # Variances 1, means 0, 2 and 4: middle 2, Q = 8, between = (8 - 2) / (3 - 1) = 3, kept = 3 / 4.
    value, variance = shrink([0.0, 2.0, 4.0], [1.0, 1.0, 1.0], 2)
    assert value == pytest.approx(2 + 0.75 * 2)
    assert variance == pytest.approx(0.75 + 0.25**2 * 4 / 3 + 2 * (0.25 * 2) ** 2)


@given(st.lists(st.tuples(_VALUES, st.floats(1e-3, 10)), min_size=1, max_size=9), st.data())
def test_shrinking_never_leaves_the_range_of_the_means(
    given: list[tuple[float, float]], data: st.DataObject
) -> None:
    means, variances = [each[0] for each in given], [each[1] for each in given]
    value, variance = shrink(means, variances, data.draw(st.integers(0, len(given) - 1)))
    assert min(means) - 1e-6 <= value <= max(means) + 1e-6
    assert variance >= 0


@given(st.lists(_VALUES, min_size=2, max_size=5), st.lists(_VALUES, min_size=2, max_size=5))
def test_the_chances_of_two_configurations_add_up_to_one(
    first: list[float], second: list[float]
) -> None:
    noise = noise_of([first, second])
    assert noise is not None
    assert noise.chance_greater(first, second) + noise.chance_greater(
        second, first
    ) == pytest.approx(1.0)


@given(st.lists(st.lists(_VALUES, min_size=1, max_size=4), min_size=1, max_size=5))
def test_the_leader_always_stays_in_the_race(values: list[list[float]]) -> None:
    groups = dict(enumerate(values))
    left = survivors(groups, list(groups), certainty=0.95, num_rounds=4)
    assert max(fmean(groups[number]) for number in left) == max(map(fmean, values))
    assert set(left) <= set(groups)


def test_the_correction_removes_most_of_the_luck_of_the_best() -> None:
    luck, error, covered = [], [], 0
    for seed in range(300):
        draw = random.Random(seed)
        true = [draw.gauss(0.0, 1.0) for _ in range(12)]
        groups = [[value + draw.gauss(0.0, 1.0) for _ in range(2)] for value in true]
        history = history_of(groups, repeats=2)
        best, found = history.best(), known(history)
        assert best is not None
        luck.append(found.observed - true[best.configuration])
        error.append(found.expected - true[best.configuration])
        covered += found.low <= true[best.configuration] <= found.high
    assert fmean(luck) > 0.4
    assert abs(fmean(error)) < 0.1
    assert 0.84 < covered / 300 < 0.96


def test_a_race_keeps_the_best_as_often_as_it_promises() -> None:
    kept = 0
    for seed in range(300):
        draw = random.Random(seed)
        groups: dict[int, list[float]] = {
            number: [draw.gauss(-0.3 * number, 1.0)] for number in range(3)
        }
        racing = [0, 1, 2]
        for _ in range(5):
            for number in racing:
                groups[number].append(draw.gauss(-0.3 * number, 1.0))
            racing = survivors(groups, racing, certainty=0.9, num_rounds=5)
        kept += 0 in racing
    assert kept / 300 >= 0.9


def test_nobody_is_told_to_confirm_what_the_run_confirms_by_itself() -> None:
    asked = describe_luck(history_of([[0.1], [0.5]], confirm={"best": 2}))
    assert (
        asked
        == "It leads the second best, 0.1, by 0.4. Each configuration was trained once, so this may"
        " be luck"
    )
