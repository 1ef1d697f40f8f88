"""Plans that are close are timed again until one is clearly the fastest.

Noise misleads less often then.
"""

from __future__ import annotations

import statistics
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.advisor.test_plan_measurement import survey_link
from workbench.advisor.retiming import may_be_fastest, time_closest_again, time_in_turns

TRUE_S = {"pipeline": 0.082, "tensor": 0.068, "allreduce": 0.217, "powersgd": 0.071}
NOISE = 0.15
seconds = st.floats(1e-4, 1e4)


class Timed:
    """Ways whose steps take what they truly take, but for noise that is drawn anew for each
    timing.
    """

    def __init__(self, seed: int, turns: int) -> None:
        self._random, self._turns = np.random.default_rng(seed), turns
        self.timings_s: dict[str, list[float]] = {way: [] for way in TRUE_S}
        self.time_again(list(TRUE_S))
        time_in_turns(lambda: self.timings_s, self.time_again, self._has_time)

    def time_again(self, ways: list[str]) -> None:
        for way in ways:
            self.timings_s[way].append(TRUE_S[way] * float(np.exp(self._random.normal(0.0, NOISE))))

    def _has_time(self) -> bool:
        self._turns -= 1
        return self._turns >= 0

    @property
    def lost(self) -> float:
        """How much slower the way is that looks fastest than the fastest."""
        looks = min(self.timings_s, key=lambda way: statistics.median(self.timings_s[way]))
        return TRUE_S[looks] / min(TRUE_S.values()) - 1.0


def test_close_ways_that_are_timed_again_are_confused_less_often() -> None:
    once, again = ([Timed(seed, turns) for seed in range(300)] for turns in (0, 6))
    assert statistics.mean(each.lost for each in once) > 0.03
    assert statistics.mean(each.lost for each in again) < 0.02
    assert all(len(each.timings_s["allreduce"]) == 1 for each in again), (
        "three times as slow, which is clear"
    )


@given(
    st.dictionaries(st.text(), st.lists(seconds, min_size=1, max_size=5), min_size=1, max_size=6)
)
def test_the_fastest_so_far_is_always_among_the_few_that_may_be(
    timed_s: dict[str, list[float]],
) -> None:
    candidates = may_be_fastest(timed_s)
    assert 1 <= len(candidates) <= 3
    middles = {way: statistics.median(map(np.log, each)) for way, each in timed_s.items()}
    assert middles[candidates[0]] == min(middles.values())
    assert [middles[way] for way in candidates] == sorted(middles[way] for way in candidates)


def test_the_more_timings_agree_the_smaller_a_difference_decides() -> None:
    def ways(count: int) -> list[str]:
        return may_be_fastest({"one": [1.0] * count, "other": [1.1] * count})

    assert ways(1) == ["one", "other"]
    assert ways(4) == ["one"]
    assert may_be_fastest({"one": [1.0, 0.8, 1.3, 1.1], "other": [1.1, 1.3, 0.9, 1.2]}) == [
        "one",
        "other",
    ]


def test_nothing_is_timed_again_where_there_is_no_choice() -> None:
    choices: list[dict[str, list[float]]] = [{}, {"one": [1.0]}, {"one": [1.0], "other": [2.0]}]
    for timed_s in choices:
        time_in_turns(partial(dict, timed_s), pytest.fail, lambda: True)


def test_the_advisor_times_the_order_of_micro_batches_again_that_no_model_tells_apart() -> None:
    measurer, _ = survey_link(exchange_s=2.0)
    before = measurer.num_measured
    time_closest_again(measurer, "time", None)
    assert measurer.num_measured > before
    best = measurer.fastest_plans("time", None)[0]
    assert measurer.knowledge.timings_s(best)


def test_the_advisor_times_nothing_again_when_its_time_is_used_up() -> None:
    measurer, _ = survey_link(exchange_s=2.0, budget_s=0.0)
    before = measurer.num_measured
    time_closest_again(measurer, "time", None)
    assert measurer.num_measured == before
