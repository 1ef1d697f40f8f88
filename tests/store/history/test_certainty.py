"""How sure the best result of a run is, and what its score rests on."""

from __future__ import annotations

import math
import random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from workbench.experiment import Experiment
from workbench.experiment.metric_declarations import METRICS, declaration_of
from workbench.foundation.events import (
    Clone,
    Event,
    ProgramKept,
    RepeatedTraining,
    RepeatsInherited,
    TrialEnded,
    TrialPlanned,
    TrialProposed,
    TrialStarted,
    TrialTested,
    from_json,
    to_json,
)
from workbench.store.history import History
from workbench.store.history.certainty import (
    Certainty,
    certainty_lines,
    certainty_of,
    describe_evidence,
    describe_luck,
    noise_of,
    noise_with_inherited,
    num_to_confirm,
    rate_interval,
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
                    params={"x": (configuration + 1) / (len(groups) + 1)},
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


def propose_again(history: History, like: int, value: float) -> None:
    """Train the configuration of a trial once more, as one that was enqueued."""
    number = len(history.trials)
    history.apply(
        TrialProposed(
            trial=number,
            params=history.trials[like].params,
            configuration=history.num_configurations(),
            repeat=0,
            seed=history.trials[like].seed,
            source="enqueued",
        )
    )
    history.apply(TrialEnded(trial=number, attempt=0, state="complete", values={"score": value}))


def known(history: History) -> Certainty:
    certainty = certainty_of(history)
    assert certainty is not None
    return certainty


def test_nothing_is_stated_where_nothing_was_trained_twice() -> None:
    assert certainty_of(history_of([[0.1], [0.3], [0.2]])) is None
    assert certainty_of(history_of([])) is None


def test_of_configurations_trained_once_the_lead_and_the_cost_of_knowing_more_are_stated() -> None:
    assert (
        describe_luck(history_of([[0.1], [0.5], [0.25], [0.2]]))
        == "It leads the second best, 0.25, by 0.25. Each configuration was trained once, so this"
        " may be luck. extend --confirm 3 would train the best 3 again with other seeds, each at"
        " most 4 times: 12 trainings"
    )
    tied = describe_luck(history_of([[0.5], [0.5]])) or ""
    assert tied.startswith(
        "Another configuration has 0.5 too. Each configuration was trained once, so it is open"
        " which is best. extend --confirm 2"
    )
    tied = describe_luck(history_of([[0.5], [0.2], [0.5], [0.5]])) or ""
    assert tied.startswith("2 other configurations have 0.5 too. ")
    assert num_to_confirm(history_of([[0.1], [0.5], [0.25], [0.2]])) == 3
    assert num_to_confirm(history_of([[0.5], [0.5]])) == 2
    assert num_to_confirm(history_of([[0.5]])) == 0, "it has no rival"
    lowest = history_of(
        [[1.0], [0.25], [0.75]], objectives=[{"metric": "score", "goal": "minimize"}]
    )
    assert (describe_luck(lowest) or "").startswith("It leads the second best, 0.75, by 0.5. ")


def test_the_best_is_compared_with_trials_of_its_version_of_the_code_only() -> None:
    history = history_of([[0.9], [0.8]])
    history.apply(ProgramKept(version=2, why="changed"))
    for number, value in ((2, 0.1), (3, 0.25)):
        history.apply(
            TrialProposed(
                trial=number, params={"x": number / 9}, configuration=number, repeat=0, seed=0
            )
        )
        history.apply(TrialStarted(trial=number, attempt=0, worker_pids=[1], program=2))
        history.apply(
            TrialEnded(trial=number, attempt=0, state="complete", values={"score": value})
        )
    assert (describe_luck(history) or "").startswith("It leads the second best, 0.1, by 0.15. ")


@pytest.mark.parametrize("like", [0, 1])
def test_a_configuration_that_was_enqueued_again_is_not_another_one(like: int) -> None:
    once, twice = history_of([[0.5], [0.25], [0.1]]), history_of([[0.5], [0.25], [0.1]])
    propose_again(twice, like, (0.5, 0.25)[like])
    assert (once.num_different_configurations(), twice.num_different_configurations()) == (3, 3)
    assert (once.num_configurations(), twice.num_configurations()) == (3, 4)
    assert describe_luck(twice) == describe_luck(once)
    assert num_to_confirm(twice) == num_to_confirm(once) == 3
    alone = history_of([[0.5]])
    propose_again(alone, 0, 0.5)
    assert describe_luck(alone) is None, "it has no rival but itself"


def test_a_repeated_configuration_shows_the_noise_if_only_a_command_without_seed_repeats_it() -> (
    None
):
    scores = [[0.5], [0.25]]
    for command, has_noise in (("fit {args}", True), ("fit --seed {seed} {args}", False)):
        history = history_of(scores, train=None, command=command)
        propose_again(history, 1, 0.29)
        assert (certainty_of(history) is not None) == has_noise, command
    # Two values with a difference of 0.04 have the variance 0.0008, with 1 degree of freedom, for
    # which Student's distribution is Cauchy's.
    history = history_of(scores, train=None, command="fit {args}")
    propose_again(history, 1, 0.29)
    assert known(history).num_compared == 1
    error = math.sqrt(0.0008 * (1 / 1 + 1 / 2))
    assert known(history).chance == pytest.approx(0.5 + math.atan(0.23 / error) / math.pi)


def test_other_code_and_inherited_weights_make_another_configuration() -> None:
    history = history_of([[0.5], [0.25]])
    history.apply(ProgramKept(version=2, why="changed"))
    for number, program, clone in (
        (2, 2, None),
        (3, 1, Clone(of=0, begins_from="weights", step=3)),
        (4, 1, Clone(of=0, begins_from="start")),
    ):
        history.apply(
            TrialProposed(
                trial=number,
                params=history.trials[0].params,
                configuration=number,
                repeat=0,
                seed=0,
                clone=clone,
            )
        )
        history.apply(TrialStarted(trial=number, attempt=0, worker_pids=[1], program=program))
    keys = [history.key_of(trial) for trial in history.trials.values()]
    assert len(set(keys)) == 4
    assert keys[4] == keys[0]


def test_nothing_is_said_of_luck_where_there_is_nothing_to_compare_or_the_noise_is_known() -> None:
    assert describe_luck(history_of([])) is None
    assert describe_luck(history_of([[0.5]])) is None
    repeated = history_of([[0.9, 0.5], [0.2, 0.3]])
    assert describe_luck(repeated) == known(repeated).describe()


def test_the_expected_value_rests_on_the_trainings_after_the_choice() -> None:
    certainty = known(history_of([[0.9, 0.5, 0.7], [0.8, 0.4, 0.3], [0.2]], confirm={"best": 2}))
    assert certainty.is_retrained
    assert (certainty.num_trainings, certainty.num_compared) == (2, 1)
    assert certainty.expected == pytest.approx(0.6)
    assert certainty.observed == pytest.approx(0.7)
    # Closed form: the squares within are 0.08 and 0.14, with 4 degrees of freedom; t(4, 0.95) =
    # 2.131847.
    half = 2.131847 * (0.22 / 4 / 2) ** 0.5
    assert (certainty.low, certainty.high) == pytest.approx((0.6 - half, 0.6 + half), rel=1e-5)
    assert (
        certainty.describe()
        == "Expect score 0.6 (0.2465 to 0.9535), the mean of 2 trainings after it was chosen. "
        "It is better than the other one that was trained again with at least 82 % certainty"
    )


def test_repeats_of_all_shrink_the_best_towards_the_others() -> None:
    certainty = known(history_of([[1.0, 0.8], [0.7, 0.5], [0.4, 0.4], [0.6, 0.6]], repeats=2))
    assert not certainty.is_retrained
    assert 0.6 < certainty.expected < certainty.observed == pytest.approx(0.9)


def test_without_noise_nothing_is_corrected() -> None:
    certainty = known(history_of([[0.5, 0.5], [0.2, 0.2]], repeats=2))
    assert (certainty.expected, certainty.low, certainty.high, certainty.chance) == (
        0.5,
        0.5,
        0.5,
        1.0,
    )
    assert (
        certainty.describe()
        == "score 0.5 does not depend on the seed. It is better than the other one with at least"
        " 99 % certainty"
    )


def test_lower_is_better_where_the_objective_is_minimized() -> None:
    goal = [{"metric": "score", "goal": "minimize"}]
    certainty = known(
        history_of([[0.1, 0.11, 0.1], [0.9, 0.91, 0.9]], objectives=goal, confirm={"best": 2})
    )
    assert certainty.chance > 0.99
    assert certainty.expected == pytest.approx(0.105)


def test_a_shrunken_mean_has_the_value_of_the_closed_form() -> None:
    # Variances 1, means 0, 2 and 4: middle 2, Q = 8, between = (8 - 2) / (3 - 1) = 3, kept = 3 / 4.
    value, variance = shrink([0.0, 2.0, 4.0], [1.0, 1.0, 1.0], 2)
    assert value == pytest.approx(2 + 0.75 * 2)
    assert variance == pytest.approx(0.75 + 0.25**2 * 4 / 3 + 2 * (0.25 * 2) ** 2)


@given(st.lists(st.tuples(_VALUES, st.floats(1e-3, 10)), min_size=1, max_size=9), st.data())
def test_shrinking_never_leaves_the_range_of_the_means(
    given: list[tuple[float, float]], data: st.DataObject
) -> None:
    means, variances = [pair[0] for pair in given], [pair[1] for pair in given]
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
        best, certainty = history.best(), known(history)
        assert best is not None
        luck.append(certainty.observed - true[best.configuration])
        error.append(certainty.expected - true[best.configuration])
        covered += certainty.low <= true[best.configuration] <= certainty.high
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


def repeats_of(*groups: list[float], num_steps: int | None = None) -> RepeatsInherited:
    repeated = [
        RepeatedTraining(values=values, seeds=[*range(100, 100 + len(values))], num_steps=num_steps)
        for values in groups
    ]
    return RepeatsInherited(from_run_ids=["a", "b"], groups=repeated)


def test_trainings_of_earlier_runs_show_the_noise_of_configurations_trained_once() -> None:
    error, covered = [], 0
    for seed in range(200):
        draw = random.Random(seed)
        true = [draw.gauss(0.0, 1.0) for _ in range(12)]
        history = history_of([[value + draw.gauss(0.0, 1.0)] for value in true])
        history.apply(repeats_of(*[[draw.gauss(5.0, 1.0) for _ in range(5)] for _ in range(4)]))
        best, certainty = history.best(), known(history)
        assert best is not None
        error.append(certainty.expected - true[best.configuration])
        covered += certainty.low <= true[best.configuration] <= certainty.high
        assert (certainty.num_inherited, certainty.num_earlier_runs) == (20, 2)
    assert abs(fmean(error)) < 0.15
    assert 0.84 < covered / 200 < 0.96


def test_it_is_said_which_trainings_show_the_noise() -> None:
    history = history_of([[0.1], [0.5], [0.25]])
    history.apply(repeats_of([0.4, 0.5, 0.45], [0.1, 0.15, 0.05]))
    assert (
        "6 trainings of 2 earlier runs show how much trainings differ. It is better than the 2"
        " others with at least"
    ) in (describe_luck(history) or "")
    assert num_to_confirm(history) == 0, "the ranking is clear"
    alike = history_of([[0.5], [0.5]])
    alike.apply(repeats_of([0.4, 0.5, 0.45], [0.1, 0.15, 0.05]))
    assert (describe_luck(alike) or "").endswith(
        "The ranking is open: the other one may be as good. extend --confirm 2 would train the best"
        " 2 again with other seeds, each at most 4 times: 8 trainings"
    )


def test_own_and_inherited_trainings_are_pooled_by_their_degrees_of_freedom() -> None:
    own = [[1.0, 3.0, 2.0], [4.0, 5.0, 6.0]]
    alone = noise_with_inherited([], repeats_of([0.0, 2.0], [0.0, 1.0], [3.0, 5.0]))
    both = noise_with_inherited(own, repeats_of([0.0, 2.0], [0.0, 1.0], [3.0, 5.0]))
    assert alone is not None
    assert both is not None
    expected = (4 * 1.0 + alone.num_degrees * alone.variance) / (4 + alone.num_degrees)
    assert both.variance == pytest.approx(expected)
    assert both.num_degrees == pytest.approx(4 + alone.num_degrees)


def test_a_run_with_the_same_trainings_shows_nothing_new_about_the_noise() -> None:
    groups = [[0.1, 0.2, 0.15], [0.5, 0.4, 0.45]]
    alone, again = history_of(groups), history_of(groups)
    same = [RepeatedTraining(values=values, seeds=[0, 1, 2]) for values in groups]
    again.apply(RepeatsInherited(from_run_ids=["a"], groups=same))
    assert certainty_of(again) == certainty_of(alone)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python fit.py {args}", "If your program takes a seed, pass it {seed} in the command"),
        ("python fit.py --seed {seed} {args}", "score 0.5 does not depend on the seed"),
    ],
)
def test_equal_trainings_of_a_command_show_nothing_if_it_passes_no_seed(
    command: str, expected: str
) -> None:
    history = history_of([[0.5, 0.5], [0.25, 0.25]], train=None, command=command, repeats=2)
    described = describe_luck(history) or ""
    assert expected in described
    assert ("better than" in described) == ("{seed}" in command)


@pytest.mark.parametrize("scale", [0.01, 100.0])
def test_trainings_of_earlier_runs_do_not_count_if_those_of_the_run_contradict_them(
    scale: float,
) -> None:
    draw = random.Random(1)
    own = [[scale * draw.gauss(0.0, 1.0) for _ in range(6)] for _ in range(3)]
    inherited = repeats_of(*[[draw.gauss(0.0, 1.0) for _ in range(6)] for _ in range(6)])
    assert noise_with_inherited(own, inherited) == noise_of(own)


def test_the_noise_of_longer_trainings_is_corrected_for_the_length() -> None:
    draw = random.Random(2)
    groups = [
        RepeatedTraining(
            values=[draw.gauss(0.0, 1 / length) for _ in range(9)],
            seeds=[*range(9)],
            num_steps=100 * length,
        )
        for length in (1, 2, 4, 8) * 5
    ]
    inherited = RepeatsInherited(from_run_ids=["a"], groups=groups)
    noise = [noise_with_inherited([], inherited, budget=budget) for budget in (100, 800)]
    assert [spread.variance**0.5 for spread in noise if spread] == [
        pytest.approx(1.0, rel=0.3),
        pytest.approx(1 / 8, rel=0.3),
    ]


def test_a_race_with_inherited_trainings_keeps_the_best_and_ends_sooner() -> None:
    kept, rounds = 0, {True: 0, False: 0}
    for seed in range(200):
        draw = random.Random(seed)
        earlier = repeats_of(*[[draw.gauss(0.0, 1.0) for _ in range(5)] for _ in range(8)])
        for is_known in (True, False):
            race = random.Random(seed)
            groups = {number: [race.gauss(-2.5 * number, 1.0)] for number in range(3)}
            racing = [0, 1, 2]
            for _ in range(5):
                rounds[is_known] += 1
                for number in racing:
                    groups[number].append(race.gauss(-2.5 * number, 1.0))
                racing = survivors(
                    groups,
                    racing,
                    certainty=0.9,
                    num_rounds=5,
                    inherited=earlier if is_known else None,
                )
                if len(racing) == 1:
                    break
            kept += is_known and 0 in racing
    assert kept / 200 >= 0.9
    assert rounds[True] < 0.9 * rounds[False]


def test_nobody_is_told_to_confirm_what_the_run_confirms_by_itself() -> None:
    asked = describe_luck(history_of([[0.1], [0.5]], confirm={"best": 2}))
    assert (
        asked
        == "It leads the second best, 0.1, by 0.4. Each configuration was trained once, so this may"
        " be luck"
    )


@pytest.mark.parametrize("num_right", [0, 1, 7, 180, 359, 360])
@pytest.mark.parametrize("certainty", [0.8, 0.95, 0.99])
def test_the_interval_of_a_rate_is_that_of_scipy(num_right: int, certainty: float) -> None:
    expected = binomtest(num_right, 360).proportion_ci(certainty, method="wilson")
    assert rate_interval(num_right / 360, 360, certainty) == pytest.approx(
        (expected.low, expected.high), abs=1e-12
    )


def test_the_interval_of_a_rate_is_that_of_a_textbook() -> None:
    """Newcombe, Two-sided confidence intervals for the single proportion, 1998, table I, method
    3.
    """
    published = {
        (81, 263): (0.2553, 0.3662),
        (15, 148): (0.0624, 0.1605),
        (0, 20): (0.0, 0.1611),
        (1, 29): (0.0061, 0.1718),
    }
    for (num_right, num_samples), ends in published.items():
        assert rate_interval(num_right / num_samples, num_samples) == pytest.approx(ends, abs=6e-5)


@given(st.floats(0, 1), st.integers(1, 10**9))
def test_an_interval_holds_its_rate_and_stays_a_share(rate: float, num_samples: int) -> None:
    low, high = rate_interval(rate, num_samples)
    assert 0 <= low <= rate + 1e-9
    assert rate - 1e-9 <= high <= 1


MEASURED = {"model": "mlp", "data": "digits", "search": {"lr": {"low": 0.001, "high": 0.1}}}


def measured_history(
    values: list[float],
    *,
    metric: str = "val_accuracy",
    goal: str = "maximize",
    num_validation: int | None = 360,
    rates: tuple[str, ...] = ("val_accuracy",),
    tested: dict[str, float] | None = None,
    num_test: int = 0,
    side: dict[str, float] | None = None,
    **changes: object,
) -> History:
    """Make a history of complete trials with these values; the first is tested."""
    objective = {"metric": metric, "goal": goal}
    history = History(
        Experiment(**{**MEASURED, "objectives": [objective], "budget": {"trials": 9}, **changes})
    )
    for number, value in enumerate(values):
        events: list[Event] = [
            TrialProposed(
                trial=number,
                params={"lr": 0.01 / (number + 1)},
                configuration=number,
                repeat=0,
                seed=0,
            ),
            TrialPlanned(
                trial=number,
                plan={},
                num_validation=num_validation,
                num_test=num_test,
                rates=list(rates),
            ),
        ]
        if tested and not number:
            events.append(TrialTested(trial=number, values=tested))
        events.append(
            TrialEnded(
                trial=number, attempt=0, state="complete", values={metric: value, **(side or {})}
            )
        )
        for event in events:
            history.apply(from_json(to_json(event)))
    return history


def test_an_accuracy_comes_with_its_samples_its_interval_and_that_they_chose_it() -> None:
    assert describe_evidence(measured_history([1.0, 0.9, 0.8])) == [
        "val_accuracy 1 on 360 validation samples: between 0.989 and 1 with 95 % certainty",
        (
            "It was the best of 3 on the same samples, so expect a somewhat worse score on new"
            " data. Test samples would show how much worse"
        ),
    ]


def test_the_score_on_data_that_chose_nothing_stands_next_to_it() -> None:
    tested = measured_history(
        [1.0, 0.9], tested={"test_accuracy": 0.975, "test_loss": 0.1}, num_test=360
    )
    assert describe_evidence(tested)[1:] == [
        "On 360 test samples, which were not used to choose it, test_accuracy is 0.975: between"
        " 0.953 and 0.987 with 95 % certainty"
    ]


def test_only_the_test_of_the_best_trial_is_shown() -> None:
    worse = measured_history([0.8, 1.0], tested={"test_accuracy": 0.975}, num_test=360)
    assert "test_accuracy" not in " ".join(certainty_lines(worse))


def test_a_mean_states_its_samples_without_an_interval() -> None:
    mean = measured_history(
        [0.25, 0.5], metric="val_loss", goal="minimize", rates=("val_accuracy",)
    )
    assert describe_evidence(mean)[0] == "val_loss 0.25 was measured on 360 validation samples"


def test_one_trial_was_not_chosen_among_others() -> None:
    assert len(describe_evidence(measured_history([0.9]))) == 1


def test_what_no_samples_measure_has_none() -> None:
    assert (
        describe_evidence(measured_history([10.0, 20.0], metric="size_bytes", goal="minimize"))
        == []
    )
    assert describe_evidence(measured_history([])) == []


def test_runs_of_earlier_versions_state_what_they_know() -> None:
    old = measured_history([0.9, 0.8], num_validation=None, rates=())
    assert describe_evidence(old) == []
    assert (describe_luck(old) or "").startswith("It leads the second best, 0.8, by 0.1")
    assert from_json('{"type":"trial_planned","trial":0,"plan":{},"time_unix_s":1.0}').rates == []  # type: ignore


def test_a_function_says_itself_on_how_many_samples_it_measures() -> None:
    function = {"model": None, "data": None, "train": "m:f"}
    counted = {"num_val_samples": 50.0, "num_test_samples": 200.0, "test_accuracy": 0.9}
    assert describe_evidence(
        measured_history([0.96, 0.9], num_validation=None, rates=(), side=counted, **function)
    ) == [
        "val_accuracy 0.96 on 50 validation samples: between 0.865 and 0.989 with 95 % certainty",
        (
            "On 200 test samples, which were not used to choose it, test_accuracy is 0.9: between"
            " 0.85 and 0.935 with 95 % certainty"
        ),
    ]
    percent = measured_history(
        [96.0, 90.0], num_validation=None, rates=(), side={"num_val_samples": 50.0}, **function
    )
    assert describe_evidence(percent)[0] == "val_accuracy 96 was measured on 50 validation samples"
    unknown = measured_history([0.96, 0.9], num_validation=None, rates=(), **function)
    assert describe_evidence(unknown) == []


def test_only_a_share_of_samples_has_the_interval_of_a_rate() -> None:
    rates = {item.name for item in METRICS if item.is_rate}
    assert rates == {"accuracy", "top5_accuracy", "reward_accuracy", "recall_at_1"}
    assert all(item.unit == "share" for item in METRICS if item.is_rate)
    area = declaration_of("val_roc_auc")
    assert area is not None
    assert not area.is_rate
