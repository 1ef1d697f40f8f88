"""Which candidate comes further in the same time: short trainings, of which the hopeless end early.

A candidate that reaches the target sets the time that the others have to beat. Without a target all
have the same time. Who proposes candidates, and how one is trained, is given from outside: nothing
here knows Ray, torch or Optuna.
"""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Entrant = TypeVar("Entrant", bound=Hashable)
# Before this part of the time to beat no candidate is ended: first reports are not representative.
_GRACE = 1 / 8
# The allowed delay: a candidate must be where the best one was after this part of its time.
_SLACK = 0.5
# Until one has reached the target there are heats: this many candidates get this part of the budget
# each, the better half of them twice as long, and the best of these all the time it needs.
_HEAT_PART = 1 / 20
_HEAT_SIZE = 6
# Without a target, this many trainings should fit into the budget.
_TRAININGS = 6
# Candidates within this factor of the best are tried again with other seeds.
_CLOSE = 1.25
_MAX_CLOSE = 4
_MAX_REPEATS, _MIN_REPEATS = 5, 3
# A training that misses the target counts as this many times the best. At least this part must
# reach it.
_MISSED = 3.0
_RELIABLE = 0.5
# What is kept of the budget for trying again.
_CONFIRM_PART = 0.35
# One training may be luck: others may take this much longer than the fastest, and repeats twice
# that.
_LONGER = 1.15


@dataclass
class Course(Generic[Entrant]):
    """How one training went.

    Attributes:
        entrant: The candidate.
        repeat: Which of its trainings this is, from 0.
        elapsed_s: When values were reported, in seconds of training. Costlier candidates count
            more.
        best_values: The best value up to then. Higher is better.
        reached_s: When the target was reached.
        ended_s: When the training ended.
        is_whole: Whether it ended by itself.
        is_heat: Whether it had only the time of a heat, so that missing the target is no evidence.
        has_reported: Whether it reported an objective at all, finite or not.
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
        """Take in a report. `value` is None, or not finite, where the objective is missing."""
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
        """Return the best value up to a time, or None before the first."""
        index = bisect.bisect_right(self.elapsed_s, elapsed_s)
        if not index:
            return None
        return self.best_values[index - 1]


GoesOn = Callable[[float, float | None], bool]
Train = Callable[[Entrant, int, GoesOn], bool]
"""(candidate, repeat, goes_on) -> whether it ended by itself.

Calls `goes_on(elapsed_s, value)` at reports, and stops when that returns False.
"""


@dataclass(frozen=True)
class Standing(Generic[Entrant]):
    """A candidate after the race.

    Attributes:
        entrant: The candidate.
        time_s: Mean time to the target, trainings that missed it counted as long ones, or None if
            too many missed it.
        times_s: The times of all its trainings that reached it.
        value: The mean of the best values at the common time, or None if none was reported.
        num_missed: How many of its trainings missed it, heats apart.
    """

    entrant: Entrant
    time_s: float | None
    times_s: tuple[float, ...]
    value: float | None
    num_missed: int = 0


class Race(Generic[Entrant]):
    """One race under a budget of wall-clock time."""

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
            target: The value to reach. Higher is better. None if more is simply better.
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
        """Whether there is time for a candidate that was not tried yet.

        Some is kept for close ones.
        """
        best_s = self._best_time_s()
        kept_s = 0.02 * self._budget_s
        if best_s is not None:
            kept_s = max(kept_s, _LONGER * best_s)
        if best_s is not None and self._contested():
            kept_s = max(kept_s, _CONFIRM_PART * self._budget_s)
        return self.left_s > kept_s

    def run(self, entrant: Entrant) -> Course[Entrant]:
        """Train a candidate until it is done, hopeless, or out of time. Return how it went."""
        earlier = [course for course in self.courses if course.entrant == entrant]
        is_repeat = not all(course.is_heat for course in earlier)
        course = Course(entrant, repeat=len(earlier))
        rivals = [course for course in self.courses if course.best_values]
        limit_s, ahead = self._limit_s(), self._ahead(rivals)
        in_heat = self._target is not None and self._best_time_s() is None
        if self._best_time_s() is not None:
            limit_s *= _LONGER
            if is_repeat:
                limit_s *= 2.0

        def goes_on(elapsed_s: float, value: float | None) -> bool:
            course.add(elapsed_s, value, self._target)
            if course.reached_s is not None or elapsed_s >= limit_s or self.left_s <= 0.0:
                return False
            if ahead is None or is_repeat or elapsed_s < _GRACE * limit_s:
                return True
            wanted, reached = ahead.value_at(_SLACK * elapsed_s), course.value_at(elapsed_s)
            return wanted is None or (reached is not None and reached >= wanted)

        course.is_whole = self._train(entrant, course.repeat, goes_on)
        course.is_heat = in_heat and course.reached_s is None
        self.courses.append(course)
        if in_heat:
            self._heat.append(course)
        return course

    def again(self, *, has_more: bool) -> Entrant | None:
        """Return a candidate that did well in a heat and is in the next one.

        None if there is none.

        Args:
            has_more: Whether there are candidates that were not tried yet.
        """
        if self._fastest() is None:
            self._promote(has_more)
        if not self._promoted:
            return None
        return self._promoted.pop(0)

    def _promote(self, has_more: bool) -> None:
        """End a heat that is full, and choose the candidates of the next one."""
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
        """Try the candidates that are close to each other again, while time is left."""
        while contested := self._contested():
            time_s = contested[0].time_s
            if self.left_s < (self._limit_s() if time_s is None else _LONGER * time_s):
                return
            self.run(contested[0].entrant)

    def _contested(self) -> list[Standing[Entrant]]:
        """Return the close candidates that should be tried again, the least tried one first."""
        standings = self.standings()
        counts = Counter(course.entrant for course in self.courses if not course.is_heat)
        close = [standing for standing in standings if _is_close(standing, standings[0])][
            :_MAX_CLOSE
        ]
        # Who is alone at the top may owe that to luck, but need not beat others that are close.
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
            # What it did in a heat counts only where it had no other chance.
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
        """Return how bad a training was, so that lower is better, reached or not.

        A training that was ended early is taken to need as much longer as it was behind.

        Args:
            course: One of `courses`.

        Returns:
            Seconds. Where no candidate has reached a target, negated values, or None without any
            value.
        """
        winner = self._fastest()
        if course.reached_s is not None:
            return course.reached_s
        value = course.best_values[-1] if course.best_values else None
        if self._target is None:
            return None if value is None else -value
        if winner is None or winner.reached_s is None:
            # Longer than any time to the target, and the more so the lower the value.
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
        """Return the time that a candidate has.

        That of the best one, that of a heat, or an equal part.
        """
        best_s = self._best_time_s()
        if best_s is not None:
            return best_s
        if self._target is not None:
            return self._heat_s
        whole = [course.ended_s for course in self.courses if course.is_whole]
        return min([self._budget_s / _TRAININGS, *whole])

    def _ahead(self, rivals: Sequence[Course[Entrant]]) -> Course[Entrant] | None:
        """Return the course to keep up with."""
        if not rivals:
            return None
        return self._fastest() or max(rivals, key=lambda course: course.best_values[-1])


def _rank(standing: Standing[Entrant]) -> tuple[float, float, float]:
    # Who reached the target in some trainings only stands behind all who always did.
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
