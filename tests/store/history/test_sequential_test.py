from __future__ import annotations

import itertools
import math
import statistics

import numpy as np
import pytest
from scipy import stats

from workbench.foundation.errors import ArgumentError
from workbench.store.history.noise_floor import NoiseFloor, RepeatedTrainings, noise_floor_of
from workbench.store.history.sequential_test import CurveEvidence, decide, spending_quantiles

CERTAIN = NoiseFloor(deviation=1.0, num_degrees=400.0, num_groups=100, num_trainings=1000)
BASELINE = [0.0, 0.1, -0.1, 0.0]


@pytest.mark.parametrize(
    "information",
    [(0.8, 4 / 3, 12 / 7, 2.0), (0.5, 2 / 3, 0.75), (1.0, 2.0, 3.0, 4.0)],
    ids=["four runs of the baseline", "one run", "equal steps"],
)
@pytest.mark.parametrize("error", [0.04, 0.01])
def test_the_error_is_spent_as_the_joint_normal_distribution_says(
    information: tuple[float, ...], error: float
) -> None:
    quantiles = spending_quantiles(information, error)
    for num in range(1, len(information) + 1):
        seen = np.array(information[:num])
        correlation = np.sqrt(np.minimum.outer(seen, seen) / np.maximum.outer(seen, seen))
        stays = stats.multivariate_normal.cdf(
            np.array(quantiles[:num]),
            cov=correlation,  # pyright: ignore[reportArgumentType]
            abseps=1e-6,
            releps=1e-6,
        )
        assert 1 - stays == pytest.approx(
            error * (information[num - 1] / information[-1]) ** 4, abs=5e-5
        )


def test_many_looks_spend_the_error_exactly() -> None:
    """With hundreds of thousands of walks, which only share the definition."""
    information = tuple(1 / (1 / 4 + 1 / runs) for runs in range(1, 31))
    quantiles = np.array(spending_quantiles(information, 0.1))
    steps = np.sqrt(np.diff([0.0, *information]))
    score = np.cumsum(np.random.default_rng(3).normal(size=(100_000, 30)) * steps, axis=1)
    share = np.mean((score / np.sqrt(information) > quantiles).any(axis=1))
    assert share == pytest.approx(0.1, abs=0.004)


def welch(first: float, second: float, degrees: tuple[float, float]) -> tuple[float, float]:
    """Return the standard error of a difference, and its degrees of freedom."""
    return math.sqrt(first + second), (first + second) ** 2 / (
        first**2 / degrees[0] + second**2 / degrees[1]
    )


def test_the_first_look_knows_little_about_the_spread_of_the_candidate() -> None:
    baseline, candidate = [1.0, 2.0, 3.0, 2.5], [3.2]
    answer = decide(baseline, candidate, error=0.05, max_runs=1)
    variance = float(np.var(baseline, ddof=1))
    scale, degrees = welch(variance / 4, variance, (3, 1))
    student = stats.t(degrees)
    effect = 3.2 - np.mean(baseline)
    assert answer.effect == pytest.approx(effect)
    assert answer.probability == pytest.approx(student.cdf(effect / scale))
    assert answer.low == pytest.approx(effect - student.ppf(1 - 0.05 * 0.95) * scale)
    assert answer.high == pytest.approx(effect + student.ppf(1 - 0.05 * 0.05) * scale)


def test_the_floor_joins_the_spread_of_the_baseline() -> None:
    floor = NoiseFloor(deviation=0.5, num_degrees=6.0, num_groups=9, num_trainings=50)
    baseline, candidate = [1.0, 2.0, 3.0], [3.5, 4.5, 5.5]
    answer = decide(baseline, candidate, floor, max_runs=3)
    first = (6 * 0.25 + 2 * np.var(baseline, ddof=1)) / 8
    second = (first + 2 * np.var(candidate, ddof=1)) / 3
    scale, degrees = welch(first / 3, second / 3, (8, 3))
    assert answer.probability == pytest.approx(stats.t(degrees).cdf(2.5 / scale))


def test_a_large_gain_is_found_early_and_a_loss_is_given_up() -> None:
    assert decide(BASELINE, [6.0, 6.1], CERTAIN, max_runs=3).decision == "better"
    assert decide(BASELINE, [6.0, 6.1, 6.0], CERTAIN).decision == "better"
    lost = decide(BASELINE, [-2.0], CERTAIN)
    assert (lost.decision, lost.more_runs) == ("not better", 0)
    undecided = decide(BASELINE, [1.5], CERTAIN)
    assert undecided.decision == "more"
    assert 1 <= undecided.more_runs <= 5


def test_the_decision_is_better_exactly_above_zero() -> None:
    for shift in np.linspace(0, 4, 21):
        answer = decide(BASELINE, [shift, shift + 0.2, shift - 0.1], CERTAIN)
        assert answer.low is not None
        assert answer.high is not None
        assert answer.effect is not None
        assert (answer.decision == "better") == (answer.low > 0)
        assert answer.low < answer.effect < answer.high


def test_at_the_limit_there_is_always_a_decision() -> None:
    assert decide(BASELINE, [1.0] * 6, CERTAIN).decision == "not better"
    assert decide(BASELINE, [1.0] * 9, CERTAIN) == decide(BASELINE, [1.0] * 6, CERTAIN)


def test_one_baseline_run_takes_its_spread_from_the_floor() -> None:
    assert decide([0.0], [7.0, 7.5, 6.5], CERTAIN).decision == "better"
    unknown = decide([0.0], [7.0])
    assert (unknown.decision, unknown.probability, unknown.effect) == ("more", 0.5, 7.0)
    assert (unknown.low, unknown.high) == (None, None)
    assert unknown.more_runs > 0


@pytest.mark.parametrize(("baseline", "candidate"), [([], [1.0]), ([1.0, 2.0], []), ([], [])])
def test_without_results_of_both_more_are_needed(
    baseline: list[float], candidate: list[float]
) -> None:
    answer = decide(baseline, candidate, CERTAIN)
    assert (answer.decision, answer.probability, answer.effect) == ("more", 0.5, None)
    assert answer.more_runs > 0


def test_equal_repeats_do_not_mean_that_there_is_no_noise() -> None:
    assert decide([0.95, 0.95], [0.96]).decision != "better"
    assert decide([0.95] * 6, [0.96] * 6).decision == "better"
    same = decide([0.95, 0.95], [0.95])
    assert (same.decision, same.more_runs) == ("more", 5)
    assert (same.probability, same.low, same.high) == (0.5, 0.0, 0.0)


def test_curves_sharpen_the_probability_and_nothing_else() -> None:
    plain = decide(BASELINE, [1.0, 1.2], CERTAIN)
    sharper = decide(BASELINE, [1.0, 1.2], CERTAIN, curves=CurveEvidence(1.1, 0.5))
    # The candidate's results agree by chance, so its variance is 0.8 of the baseline's.
    _, degrees = welch(0.9901 / 4, 0.8 * 0.9901 / 2, (403, 2))
    sharp = stats.t(degrees).cdf(1.1 / math.sqrt(0.5 * 0.9901 * (1 / 4 + 0.4) / (1 / 4 + 1 / 2)))
    assert sharper.probability == pytest.approx(sharp, abs=1e-3)
    assert (sharper.low, sharper.high, sharper.decision) == (plain.low, plain.high, plain.decision)


@pytest.mark.parametrize("error", [0.0, 0.5, math.nan])
def test_an_impossible_error_is_an_error(error: float) -> None:
    with pytest.raises(ArgumentError, match=r"error: .* above 0 and below 0\.5"):
        decide(BASELINE, [1.0], error=error)


@pytest.mark.parametrize("max_runs", [0, 101])
def test_an_impossible_limit_is_an_error(max_runs: int) -> None:
    with pytest.raises(ArgumentError, match=r"max_runs: .* from 1 to 100"):
        decide(BASELINE, [1.0], max_runs=max_runs)


class Sessions:
    """Sessions of one baseline and a candidate, looked at after each run."""

    def __init__(
        self, seed: int, gain: float, *, num_baseline: int = 4, has_floor: bool = True
    ) -> None:
        self.random = np.random.default_rng(seed)
        self.gain = gain
        self.num_baseline = num_baseline
        # The spreads of groups differ by a factor of about 1.3.
        spreads = np.exp(0.25 * self.random.normal(size=20))
        groups = [RepeatedTrainings(list(self.random.normal(0, spread, 9))) for spread in spreads]
        self.floor = noise_floor_of(groups) if has_floor else None

    def play(self) -> tuple[bool, int, bool]:
        """Return whether the candidate was accepted, its runs, and whether all bounds were true."""
        spread = math.exp(0.25 * self.random.normal())
        baseline = list(self.random.normal(0, spread, self.num_baseline))
        runs = list(self.random.normal(self.gain * spread, spread, 6))
        is_true = True
        for num in itertools.count(1):
            answer = decide(baseline, runs[:num], self.floor)
            if answer.low is None or answer.high is None:
                assert self.floor is None
                continue
            is_true &= answer.low <= self.gain * spread <= answer.high
            if answer.decision != "more":
                return answer.decision == "better", num, is_true
        raise AssertionError

    def rates(self, num: int) -> tuple[float, float, float]:
        accepted, runs, true = zip(*(self.play() for _ in range(num)), strict=True)
        return float(np.mean(accepted)), float(np.mean(runs)), float(np.mean(true))


@pytest.mark.slow
def test_sessions_accept_gains_and_few_edits_that_change_nothing() -> None:
    accepted, _, true = Sessions(1, 0.0).rates(150)
    assert accepted <= 0.09  # 5 % and two standard errors
    assert true >= 0.91
    accepted, num_runs, _ = Sessions(2, 2.0).rates(100)
    assert accepted >= 0.8
    assert num_runs <= 4


@pytest.mark.slow
@pytest.mark.parametrize("num_baseline", [1, 2, 4, 12])
def test_the_error_holds_over_all_looks(num_baseline: int) -> None:
    accepted, _, true = Sessions(3, 0.0, num_baseline=num_baseline).rates(1000)
    assert accepted <= 0.055
    assert true >= 0.945
    _, _, true = Sessions(4, 1.0, num_baseline=num_baseline).rates(1000)
    assert true >= 0.945


@pytest.mark.slow
@pytest.mark.parametrize("has_floor", [True, False])
def test_a_change_that_only_scatters_three_times_as_much_is_rarely_accepted(
    has_floor: bool,
) -> None:
    random = np.random.default_rng(6)
    floor = NoiseFloor(1.0, 8.0, 20, 100) if has_floor else None
    num_accepted = 0
    for _ in range(1000):
        baseline, runs = list(random.normal(0, 1, 4)), list(random.normal(0, 3, 6))
        answers = (decide(baseline, runs[:num], floor) for num in range(1, 7))
        ends = next(answer for answer in answers if answer.decision != "more")
        num_accepted += ends.decision == "better"
    assert num_accepted <= 85  # 95 to 100 with the common spread alone


@pytest.mark.slow
@pytest.mark.parametrize("num_baseline", [1, 2, 3])
def test_the_error_also_holds_without_a_floor(num_baseline: int) -> None:
    accepted, _, _ = Sessions(5, 0.0, num_baseline=num_baseline, has_floor=False).rates(1000)
    assert accepted <= 0.06  # 5 % and one and a half standard errors


def test_one_baseline_run_without_a_floor_shares_the_spread_of_the_candidate() -> None:
    candidate = [0.97, 0.95, 0.96, 0.98]
    answer = decide([0.94], candidate)
    # Student's test with the variance of the candidate and its 3 degrees of freedom.
    variance = statistics.variance(candidate) * (1 / 1 + 1 / 4)
    value = (statistics.fmean(candidate) - 0.94) / math.sqrt(variance)
    assert answer.probability == pytest.approx(float(stats.t.cdf(value, df=3)))
    assert answer.decision != "better"


def test_a_candidate_whose_results_scatter_counts_with_its_own_spread() -> None:
    floor = NoiseFloor(1e-2, 17.0, 20, 100)
    baseline, narrow = [0.90, 0.91, 0.89, 0.90], [0.92, 0.93, 0.925, 0.935, 0.93]
    scattered = [0.88, 0.97, 0.90, 0.99, 0.90]  # the same mean
    assert decide(baseline, narrow, floor).decision == "better"
    answer = decide(baseline, scattered, floor)
    assert answer.decision == "not better"
    assert answer.low is not None
    # Welch's interval with the spread of each side is at least as wide as the usual one.
    own = np.var(scattered, ddof=1) / 5 + np.var(baseline, ddof=1) / 4
    assert answer.effect is not None
    assert answer.effect - answer.low > 2 * math.sqrt(own)


@pytest.mark.parametrize("num_baseline", [1, 3])
def test_a_candidate_that_scatters_unlike_the_floor_must_pass_with_its_own_spread(
    num_baseline: int,
) -> None:
    floor = NoiseFloor(0.1, 50.0, 20, 100)
    baseline = [0.0, 0.05, -0.05][:num_baseline]
    candidate = [0.6, 1.0, 1.4]  # its variance is 16 times that of the floor
    variance = statistics.variance(candidate)
    if num_baseline == 1:  # then nothing says that the floor fits the baseline either
        scale, degrees = math.sqrt(variance * (1 + 1 / 3)), 2.0
    else:
        known = (50 * 0.01 + 2 * statistics.variance(baseline)) / 52
        scale, degrees = welch(known / 3, variance / 3, (52, 2))
    expected = 1.0 - stats.t(degrees).ppf(1 - 0.05 / 5) * scale
    answer = decide(baseline, candidate, floor)
    assert answer.low == pytest.approx(expected)
    assert answer.decision != "better"
    alike = decide(baseline, [0.95, 1.0, 1.05], floor)
    assert alike.decision == "better"
