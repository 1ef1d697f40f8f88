"""Short trainings beside each other: who is ended early, who wins, and what the budget allows."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.advisor.race import Race

REPORT_S = 0.02
WHOLE_S = 20.0


class Track:
    """Candidates whose value rises as 1 - exp(-speed t), on a clock of its own."""

    def __init__(self, noise: float = 0.0, broken: frozenset[float] = frozenset()) -> None:
        self.now_s = 0.0
        self.spent_s: dict[float, float] = {}
        self._noise = noise
        self._broken = broken

    def clock(self) -> float:
        return self.now_s

    def train(
        self, speed: float, repeat: int, goes_on: Callable[[float, float | None], bool]
    ) -> bool:
        real = speed * math.exp(random.Random(f"{speed} {repeat}").gauss(0.0, self._noise))
        elapsed_s = 0.0
        while elapsed_s < WHOLE_S:
            elapsed_s += REPORT_S
            self.now_s += REPORT_S
            self.spent_s[speed] = self.spent_s.get(speed, 0.0) + REPORT_S
            value = math.nan if speed in self._broken else 1.0 - math.exp(-real * elapsed_s)
            if not goes_on(elapsed_s, value):
                return False
        return True


def run(track: Track, speeds: list[float], *, target: float | None, budget_s: float) -> Race[float]:
    race: Race[float] = Race(track.train, target=target, budget_s=budget_s, clock=track.clock)
    for speed in speeds:
        if race.may_explore:
            race.run(speed)
    race.confirm()
    return race


def winner(
    names: list[str], outcome: Callable[[str, int], tuple[float, float]], *, budget_s: float
) -> str:
    """Race `names`, whose trainings take the seconds and come to the value that `outcome` says."""
    clock = [0.0]

    def train(name: str, repeat: int, goes_on: Callable[[float, float | None], bool]) -> bool:
        took_s, value = outcome(name, repeat)
        clock[0] += took_s
        return not goes_on(took_s, value)

    race: Race[str] = Race(train, target=0.9, budget_s=budget_s, clock=lambda: clock[0])
    for name in names:
        race.run(name)
    race.confirm()
    return race.standings()[0].entrant


@given(st.lists(st.floats(0.2, 20.0), min_size=2, max_size=8, unique=True))
def test_the_fastest_of_the_candidates_wins(speeds: list[float]) -> None:
    race = run(Track(), speeds, target=0.9, budget_s=1000.0)
    winner = race.standings()[0]
    assert winner.time_s is not None
    exact_s = math.log(10.0) / max(speeds)
    assert winner.time_s <= exact_s + 2 * REPORT_S


def test_a_hopeless_candidate_is_ended_long_before_the_time_to_beat() -> None:
    track = Track()
    race = run(track, [1.0, 0.05], target=0.99, budget_s=100.0)
    assert race.courses[1].reached_s is None
    assert track.spent_s[0.05] < 0.3 * math.log(100.0)


def test_who_is_a_little_behind_at_first_may_still_catch_up() -> None:
    def train(name: str, _: int, goes_on: Callable[[float, float | None], bool]) -> bool:
        for tick in range(1, 101):
            late_s = 0.1 * tick
            value = 0.1 * late_s if name == "steady" else 0.055 * late_s**1.5
            if not goes_on(late_s, value):
                return False
        return True

    ticks = iter(range(10_000))
    race: Race[str] = Race(
        train, target=0.9, budget_s=9000.0, clock=lambda: float(next(ticks)) * 1e-3
    )
    race.run("steady")
    assert race.run("late").reached_s == pytest.approx(6.45, abs=0.2)
    assert race.standings()[0].entrant == "late"


def test_one_lucky_training_does_not_win_where_there_is_time_to_try_again() -> None:
    speeds = [round(0.9 + 0.02 * index, 2) for index in range(8)] + [1.6]
    wins = 0
    for offset in range(10):
        shifted = [speed + 1e-6 * offset for speed in speeds]
        race = run(Track(noise=0.25), shifted, target=0.95, budget_s=90.0)
        wins += race.standings()[0].entrant == shifted[-1]
    assert wins >= 7


def test_who_misses_the_target_in_most_trainings_stands_behind_who_reaches_it() -> None:
    def outcome(name: str, repeat: int) -> tuple[float, float]:
        reaches = name == "sure" or repeat == 0
        return 1.0 if name == "lucky" else 1.1, 1.0 if reaches else 0.1

    assert winner(["lucky", "sure"], outcome, budget_s=60.0) == "sure"


def test_values_that_are_not_finite_never_win() -> None:
    race = run(Track(broken=frozenset({5.0})), [5.0, 1.0], target=0.9, budget_s=200.0)
    assert race.standings()[0].entrant == 1.0
    assert (
        race.score(race.courses[0]) is None
        or race.score(race.courses[0]) > race.courses[1].reached_s
    )


def test_without_a_target_the_best_value_at_the_same_time_wins() -> None:
    race = run(Track(), [0.1, 0.4, 0.2], target=None, budget_s=60.0)
    assert race.standings()[0].entrant == 0.4
    assert race.standings()[0].time_s is None


@pytest.mark.parametrize("target", [0.9, None])
def test_the_budget_is_kept_but_for_the_report_that_is_under_way(target: float | None) -> None:
    track = Track()
    run(track, [0.01 * (index + 1) for index in range(50)], target=target, budget_s=30.0)
    assert track.now_s <= 30.0 + 3 * REPORT_S


def test_better_trainings_have_lower_scores() -> None:
    race = run(Track(), [1.0, 2.0, 0.3], target=0.9, budget_s=200.0)
    scores = {course.entrant: race.score(course) for course in race.courses if course.repeat == 0}
    assert scores[2.0] < scores[1.0] < scores[0.3]  # type: ignore[operator]


def test_slow_starters_cost_little_until_somebody_has_reached_the_target() -> None:
    """Rates that are far too low come first, as a belief that is wrong would put them."""
    track = Track()
    race: Race[float] = Race(track.train, target=0.9, budget_s=32.0, clock=track.clock)
    waiting = [0.01, 0.03, 0.9, 0.05, 1.0]
    while race.may_explore:
        entrant = race.again(has_more=bool(waiting))
        if entrant is None:
            if not waiting:
                break
            entrant = waiting.pop(0)
        race.run(entrant)
    assert race.standings()[0].entrant == 1.0
    assert track.spent_s[0.01] < 5.0
    assert race.standings()[0].time_s == pytest.approx(math.log(10.0), abs=2 * REPORT_S)


def test_the_best_of_the_heats_gets_all_the_time_that_it_needs() -> None:
    track = Track()
    race: Race[float] = Race(track.train, target=0.9, budget_s=30.0, clock=track.clock)
    for speed in (0.05, 0.1, 0.2, 0.02):
        race.run(speed)
    entrants = []
    while (entrant := race.again(has_more=False)) is not None:
        entrants.append(entrant)
        race.run(entrant)
    assert entrants[:2] == [0.2, 0.1]
    assert race.courses[-1].reached_s == pytest.approx(math.log(10.0) / 0.2, abs=2 * REPORT_S)


def test_one_training_is_not_believed_where_there_is_time_for_more() -> None:
    def outcome(name: str, repeat: int) -> tuple[float, float]:
        if name == "steady":
            return 1.0, 1.0
        return (0.2 if repeat == 0 else 3.0), 1.0

    assert winner(["lucky", "steady"], outcome, budget_s=40.0) == "steady"
