"""Finds the best candidate by short trainings. Hopeless ones end early.

The first candidate to reach the target sets the time that the others must beat. Until then there
are heats, as in successive halving. Without a target, all candidates get the same time. The caller
proposes the candidates and trains them, so nothing here depends on Ray, torch or Optuna.
"""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Entrant = TypeVar("Entrant", bound=Hashable)
# No candidate is ended before this part of the time to beat: first reports are not representative.
_GRACE = 1 / 8
# After a time t, a candidate must be at least as good as the best one was after this part of t.
_SLACK = 0.5
# Until a candidate has reached the target, there are heats. In the first, this many candidates get
# this part of the budget each. The better half gets twice the time in the next heat, and so on. The
# last one gets all the time it needs.
_HEAT_PART = 1 / 20
_HEAT_SIZE = 6
# Without a target, this many trainings should fit into the budget.
_TRAININGS = 6
# Candidates within this factor of the best are repeated with other seeds.
_CLOSE = 1.25
_MAX_CLOSE = 4
_MAX_REPEATS, _MIN_REPEATS = 5, 3
# A training that misses the target counts as at least this many times the best time. A candidate
# only gets a time if at least this part of its trainings reached the target.
_MISSED = 3.0
_RELIABLE = 0.5
# The part of the budget that is reserved for repeats.
_CONFIRM_PART = 0.35
# The fastest training may have been lucky. Others may take this many times as long, and repeats
# twice that.
_LONGER = 1.15


@dataclass
class Course(Generic[Entrant]):
    """The progress of one training.

    Attributes:
        entrant: The candidate.
        repeat: The number of the training among those of its candidate, from 0.
        elapsed_s: The times of the reports, in seconds of training weighted by the price.
        best_values: The best value up to each report. Higher is better.
        reached_s: The time at which the target was reached, or None.
        ended_s: The time at which the training ended.
        is_whole: Whether it completed without being stopped.
        is_heat: Whether it only had the time of a heat. Missing the target then proves nothing.
        has_reported: Whether it reported the objective at all, finite or not.
    """

    entrant: Entrant
    repeat: int = 0
    elapsed_s: list[float] = field(default_factory=list)
    best_values: list[float] = field(default_factory=list)
    reached_s: float | None = None
    ended_s: float = 0.0
    is_whole: bool = False
    is_heat: bool = False
    has_reported: bool = False

    def add(self, elapsed_s: float, value: float | None, target: float | None) -> None:
        """Add a report. `value` is None or not finite if the objective is missing."""
        self.ended_s = elapsed_s
        self.has_reported |= value is not None
        if value is None or not math.isfinite(value):
            return
        best = value
        if self.best_values:
            best = max(value, self.best_values[-1])
        self.elapsed_s.append(elapsed_s)
        self.best_values.append(best)
        if target is not None and best >= target and self.reached_s is None:
            self.reached_s = elapsed_s

    def value_at(self, elapsed_s: float) -> float | None:
        """Return the best value up to a time, or None before the first report."""
        index = bisect.bisect_right(self.elapsed_s, elapsed_s)
        if not index:
            return None
        return self.best_values[index - 1]


Continues = Callable[[float, float | None], bool]
Train = Callable[[Entrant, int, Continues], bool]
"""(candidate, repeat, continues) -> whether the training completed.

It calls `continues(elapsed_s, value)` at each report, and stops when that returns False.
"""


@dataclass(frozen=True)
class Standing(Generic[Entrant]):
    """A candidate after the race.

    Attributes:
        entrant: The candidate.
        time_s: The mean time to the target, or None if too many trainings missed it. A training
            that missed it counts as a long one.
        times_s: The times of the trainings that reached the target.
        value: The mean of the best values at the common time, or None if none was reported.
        num_missed: How many trainings missed the target, not counting heats.
    """

    entrant: Entrant
    time_s: float | None
    times_s: tuple[float, ...]
    value: float | None
    num_missed: int = 0


class Race(Generic[Entrant]):
    """One race within a budget of time."""

    def __init__(
        self,
        train: Train[Entrant],
        *,
        target: float | None,
        budget_s: float,
        clock: Callable[[], float],
    ) -> None:
        """Prepare a race.

        Args:
            train: Trains one candidate.
            target: The value to reach, or None without a target. Higher is better.
            budget_s: Seconds that the race may take.
            clock: Returns seconds, such as `time.monotonic`.
        """
        self._train = train
        self._target = target
        self._clock = clock
        self._until_s = clock() + budget_s
        self._budget_s = budget_s
        self._heat_s, self._heat_size = _HEAT_PART * budget_s, _HEAT_SIZE
        self._heat: list[Course[Entrant]] = []
        self._promoted: list[Entrant] = []
        self.courses: list[Course[Entrant]] = []

    @property
    def left_s(self) -> float:
        """Seconds of the budget that are left."""
        return self._until_s - self._clock()

    @property
    def may_explore(self) -> bool:
        """Whether there is time for a new candidate. Some time is reserved for repeats."""
        best_s = self._best_time_s()
        kept_s = 0.02 * self._budget_s
        if best_s is not None:
            kept_s = max(kept_s, _LONGER * best_s)
        if best_s is not None and self._contested():
            kept_s = max(kept_s, _CONFIRM_PART * self._budget_s)
        return self.left_s > kept_s

    def run(self, entrant: Entrant) -> Course[Entrant]:
        """Train a candidate until it is done, hopeless, or out of time."""
        earlier = [course for course in self.courses if course.entrant == entrant]
        is_repeat = not all(course.is_heat for course in earlier)
        course = Course(entrant, repeat=len(earlier))
        reported = [course for course in self.courses if course.best_values]
        limit_s, ahead = self._limit_s(), self._ahead(reported)
        in_heat = self._target is not None and self._best_time_s() is None
        if self._best_time_s() is not None:
            limit_s *= _LONGER
            if is_repeat:
                limit_s *= 2.0

        def continues(elapsed_s: float, value: float | None) -> bool:
            course.add(elapsed_s, value, self._target)
            if course.reached_s is not None or elapsed_s >= limit_s or self.left_s <= 0.0:
                return False
            # Repeats are not ended early. A candidate whose slow trainings are cut off would seem
            # faster than it is.
            if ahead is None or is_repeat or elapsed_s < _GRACE * limit_s:
                return True
            wanted, reached = ahead.value_at(_SLACK * elapsed_s), course.value_at(elapsed_s)
            return wanted is None or (reached is not None and reached >= wanted)

        course.is_whole = self._train(entrant, course.repeat, continues)
        course.is_heat = in_heat and course.reached_s is None
        self.courses.append(course)
        if in_heat:
            self._heat.append(course)
        return course

    def again(self, *, has_more: bool) -> Entrant | None:
        """Return the next candidate that was promoted to another heat, or None if there is none.

        Args:
            has_more: Whether there are candidates that were not tried yet.
        """
        if self._fastest() is None:
            self._promote(has_more)
        if not self._promoted:
            return None
        return self._promoted.pop(0)

    def _promote(self, has_more: bool) -> None:
        """End a heat that is full, and promote its better half to the next one."""
        if self._target is None or self._promoted or not self._heat:
            return
        if has_more and len(self._heat) < self._heat_size:
            return
        ranked = sorted(
            (course for course in self._heat if course.best_values and not course.is_whole),
            key=lambda course: course.best_values[-1],
            reverse=True,
        )
        self._heat_size = max(1, min(self._heat_size, len(self._heat)) // 2)
        self._promoted = [course.entrant for course in ranked[: self._heat_size]]
        self._heat = []
        if self._heat_size > 1:
            self._heat_s *= 2.0
        else:
            self._heat_s = self._budget_s

    def confirm(self) -> None:
        """Repeat the candidates that are close to each other while time is left."""
        while contested := self._contested():
            time_s = contested[0].time_s
            if self.left_s < (self._limit_s() if time_s is None else _LONGER * time_s):
                return
            self.run(contested[0].entrant)

    def _contested(self) -> list[Standing[Entrant]]:
        """Return the close candidates that should be repeated, the least tried one first."""
        standings = self.standings()
        counts = Counter(course.entrant for course in self.courses if not course.is_heat)
        close = [standing for standing in standings if _is_close(standing, standings[0])][
            :_MAX_CLOSE
        ]
        # A single leader may have been lucky, so it is also repeated. Fewer repeats suffice,
        # because no other candidate is close.
        most = _MIN_REPEATS
        if len(close) > 1:
            most = _MAX_REPEATS
        waiting = [standing for standing in close if counts[standing.entrant] < most]
        return sorted(waiting, key=lambda standing: counts[standing.entrant])

    def standings(self) -> list[Standing[Entrant]]:
        """Return the candidates, the best first."""
        common_s, best_s = self._limit_s(), self._best_time_s()
        courses: dict[Entrant, list[Course[Entrant]]] = {}
        for course in self.courses:
            courses.setdefault(course.entrant, []).append(course)
        standings: list[Standing[Entrant]] = []
        for entrant, several in courses.items():
            times = [course.reached_s for course in several if course.reached_s is not None]
            # A heat only counts if the candidate had no full training.
            several = [course for course in several if not course.is_heat] or several[-1:]
            missed = [
                max(course.ended_s, _MISSED * (best_s or 0.0))
                for course in several
                if course.reached_s is None
            ]
            counts = bool(times) and len(times) >= _RELIABLE * len(several)
            values = [
                value for course in several if (value := course.value_at(common_s)) is not None
            ]
            standings.append(
                Standing(
                    entrant,
                    (sum(times) + sum(missed)) / len(several) if counts else None,
                    tuple(times),
                    sum(values) / len(values) if values else None,
                    len(missed),
                )
            )
        return sorted(standings, key=_rank)

    def score(self, course: Course[Entrant]) -> float | None:
        """Return a score that a sampler can minimise, even if a training was ended early.

        Args:
            course: A training of `courses`.

        Returns:
            The seconds to the target. If a training was ended early, it is assumed to need as many
            times the best time as it was behind the fastest, at most ten. If no candidate has
            reached the target, the score is longer than the budget and rises as the value falls.
            Without a target, it is the negated value. None without any value.
        """
        winner = self._fastest()
        if course.reached_s is not None:
            return course.reached_s
        value = course.best_values[-1] if course.best_values else None
        if self._target is None:
            return None if value is None else -value
        if winner is None or winner.reached_s is None:
            # v / (1 + |v|) is between -1 and 1, so the score is between one and three budgets.
            return None if value is None else self._budget_s * (2.0 - value / (1.0 + abs(value)))
        best_s = winner.reached_s
        if value is None:
            return 10.0 * best_s
        index = bisect.bisect_left(winner.best_values, value)
        behind_s = winner.elapsed_s[min(index, len(winner.elapsed_s) - 1)]
        return best_s * min(10.0, max(course.ended_s, 1e-9) / max(behind_s, 1e-9))

    def _fastest(self) -> Course[Entrant] | None:
        reached = (course for course in self.courses if course.reached_s is not None)
        return min(reached, key=lambda course: course.reached_s or 0.0, default=None)

    def _best_time_s(self) -> float | None:
        fastest = self._fastest()
        return fastest and fastest.reached_s

    def _limit_s(self) -> float:
        """Return the time for one candidate.

        It is the best time to the target so far, or the time of a heat. Without a target, it is an
        equal part of the budget.
        """
        best_s = self._best_time_s()
        if best_s is not None:
            return best_s
        if self._target is not None:
            return self._heat_s
        whole = [course.ended_s for course in self.courses if course.is_whole]
        return min([self._budget_s / _TRAININGS, *whole])

    def _ahead(self, reported: Sequence[Course[Entrant]]) -> Course[Entrant] | None:
        """Return the training that others must keep up with."""
        if not reported:
            return None
        return self._fastest() or max(reported, key=lambda course: course.best_values[-1])


def _rank(standing: Standing[Entrant]) -> tuple[float, float, float]:
    # Candidates that reached the target reliably come first, then those that reached it sometimes.
    by_value = math.inf
    if standing.value is not None:
        by_value = -standing.value
    if standing.time_s is not None:
        return 0, standing.time_s, by_value
    return (1 if standing.times_s else 2), 0.0, by_value


def _is_close(standing: Standing[Entrant], best: Standing[Entrant]) -> bool:
    if best.time_s is not None:
        return standing.time_s is not None and standing.time_s <= _CLOSE * best.time_s
    return standing.value is not None
