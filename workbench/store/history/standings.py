"""The standings of a run's trials: which is best, and which keep the constraints.

They also know whether the target is reached, and how long ago the best result was found. A driver
needs this each time it checks its limits. They are updated incrementally, so the end of a trial
takes as long in a run with ten thousand trials as in a run with ten.
"""

from __future__ import annotations

import heapq
import math
import threading
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from pydantic import JsonValue

from workbench.experiment import Constraint, Experiment, Objective
from workbench.foundation.events import RepeatsInherited, TrialState
from workbench.foundation.formatting import format_number
from workbench.store.history.trial import Trial

Rank = tuple[int, int, float, int, float, int]
"""The sort key of a trial in the order of `History.ranked`.

The first item is minus the version of its code. The third from the end is the number of its
configuration, and the last is its own number.
"""


def place(objective: Objective, value: float, configuration: int) -> tuple[float, int]:
    """Return the sort key of a configuration. Ties keep the order of proposals.

    Args:
        objective: The first objective.
        value: The value of the objective.
        configuration: The number of the configuration.
    """
    return -value if objective.goal == "maximize" else value, configuration


class RankedTrials(Protocol):
    """The part of a history that standings and statements on the best trial need."""

    result: dict[str, JsonValue] | None
    replay_of: str | None
    rates: set[str]
    inherited_repeats: RepeatsInherited | None

    @property
    def experiment(self) -> Experiment:
        """The experiment of the run."""
        ...

    @property
    def objectives(self) -> Sequence[Objective]:
        """The objectives of the experiment."""
        ...

    @property
    def trials(self) -> Mapping[int, Trial]:
        """The trials by number."""
        ...

    def key_of(self, trial: Trial) -> tuple[int, str]:
        """Return what trials with the same configuration and code share."""
        ...

    def ranks(self, among: Iterable[Trial]) -> list[Rank]:
        """Return the sort keys of the complete and feasible trials among some trials."""
        ...

    def trainings_of(self, configuration: int) -> list[Trial]:
        """Return the trials of a configuration, by number."""
        ...

    def meets_targets(self, trial: Trial) -> bool:
        """Return whether a trial reached every target."""
        ...

    def best(self) -> Trial | None:
        """Return the first of all ranked trials, or None."""
        ...

    def in_state(self, *states: TrialState) -> list[Trial]:
        """Return the trials in one of `states`, by number."""
        ...

    def is_feasible(self, trial: Trial) -> bool:
        """Return whether a trial has finite objectives and keeps every constraint."""
        ...

    def repeats_of(self, trial: Trial) -> list[Trial]:
        """Return the complete trials of a trial's configuration, by number."""
        ...

    def mean_values(self, trial: Trial) -> dict[str, float]:
        """Return the means of a complete trial's values over the repeats of its configuration."""
        ...


class Standings:
    """The standings of the trials that have ended. They are updated when they are read.

    Attributes:
        changed: Configurations whose trials have changed since the last update. The history adds
            them.
    """

    def __init__(self, history: RankedTrials) -> None:
        """Follow the trials of `history`."""
        self.changed: set[int] = set()
        self._history = history
        self._updating = threading.Lock()  # views read one history from several threads
        self._ranks: dict[int, Rank] = {}  # of the best trial of each configuration
        # A heap with lazy deletion: an outdated rank stays until it comes first. Then `best` drops
        # it, because it differs from the rank in `_ranks`.
        self._order: list[Rank] = []
        # The best trials of configurations that tie, by what their ranks share.
        self._on_level: dict[tuple[int, int, float], dict[int, int]] = defaultdict(dict)
        self._on_target: set[int] = set()
        self._ended_unix_s: dict[int, float] = {}  # when the last trial of a configuration ended
        self._ends_unix_s: list[float] = []  # the same times, sorted

    def best(self) -> Trial | None:
        """Return the first of all ranked trials, or None."""
        with self._updating:
            self._update()
            while self._order and self._ranks.get(self._order[0][-3]) != self._order[0]:
                heapq.heappop(self._order)
            if self._order:
                return self._history.trials[self._order[0][-1]]
            return None

    def is_target_reached(self) -> bool:
        """Return whether a complete, feasible trial meets every target."""
        with self._updating:
            self._update()
            return bool(self._on_target)

    def num_configurations_since_best(self) -> int:
        """Return how many configurations ended after the one that reached the best value first.

        A tie is no improvement, whichever of both was proposed first.
        """
        best = self.best()
        if best is None:
            return 0
        with self._updating:
            level = self._ranks[best.configuration][:-3]
            trials = [self._history.trials[number] for number in self._on_level[level].values()]
            trial = min(trials, key=lambda trial: (trial.ended_unix_s or 0.0, trial.number))
            if trial.ended_unix_s is None:
                return 0
            num_later = len(self._ends_unix_s) - bisect_right(self._ends_unix_s, trial.ended_unix_s)
            own_unix_s = self._ended_unix_s.get(trial.configuration, trial.ended_unix_s)
            return num_later - (own_unix_s > trial.ended_unix_s)

    def _update(self) -> None:
        while self.changed:
            configuration = self.changed.pop()
            trials = self._history.trainings_of(configuration)
            self._rank(configuration, trials)
            self._note_end(configuration, trials)

    def _rank(self, configuration: int, trials: list[Trial]) -> None:
        ranked = self._history.ranks(trials)
        rank = min(ranked) if ranked else None
        before = self._ranks.pop(configuration, None)
        if before is not None:
            del self._on_level[before[:-3]][configuration]
        if rank is not None:
            self._ranks[configuration] = rank
            self._on_level[rank[:-3]][configuration] = rank[-1]
            if rank != before:
                heapq.heappush(self._order, rank)
        if any(self._history.meets_targets(self._history.trials[rank[-1]]) for rank in ranked):
            self._on_target.add(configuration)
        else:
            self._on_target.discard(configuration)

    def _note_end(self, configuration: int, trials: list[Trial]) -> None:
        ends_unix_s = [
            trial.ended_unix_s for trial in trials if trial.finished and trial.ended_unix_s
        ]
        if (before_unix_s := self._ended_unix_s.pop(configuration, None)) is not None:
            del self._ends_unix_s[bisect_left(self._ends_unix_s, before_unix_s)]
        if ends_unix_s:
            self._ended_unix_s[configuration] = max(ends_unix_s)
            insort(self._ends_unix_s, max(ends_unix_s))


def keeps(constraint: Constraint, values: Mapping[str, float]) -> bool:
    """Return whether values keep a constraint. A missing value does not."""
    return constraint.metric in values and constraint.violation(values[constraint.metric]) <= 0


def excess_of(constraints: Iterable[Constraint], values: Mapping[str, float]) -> float:
    """Return by how much values break constraints, as the sum of fractions of the limits.

    It is infinite if a value is missing.
    """
    total = 0.0
    for constraint in constraints:
        excess = constraint.violation(values.get(constraint.metric, math.nan))
        total += max(0.0, math.inf if math.isnan(excess) else excess) / (
            abs(_bound(constraint)) or 1.0
        )
    return total


def describe_nearest(constraints: Sequence[Constraint], trials: Iterable[Trial]) -> str | None:
    """Describe the trial that comes nearest to keeping all constraints, and what it breaks.

    Args:
        constraints: The constraints, which no trial keeps.
        trials: Complete trials.

    Returns:
        A text such as `trial 3 comes nearest, with size_bytes=2048 (at most 1000)`, or None if
        values are missing.
    """
    nearest = min(trials, key=lambda trial: excess_of(constraints, trial.values))
    if not 0 < excess_of(constraints, nearest.values) < math.inf:
        return None
    broken = describe_broken(constraints, nearest.values)
    return f"trial {nearest.number} comes nearest, with {broken}"


def describe_broken(constraints: Sequence[Constraint], values: Mapping[str, float]) -> str:
    """Describe what a trial breaks, such as `size_bytes=2048 (at most 1000)`. Empty if nothing.

    Args:
        constraints: The constraints.
        values: The values of the trial, by metric.
    """
    return ", ".join(
        f"{item.metric}={format_number(values.get(item.metric, math.nan))} ({_side(item)})"
        for item in constraints
        if not keeps(item, values)
    )


def describe_limit(constraint: Constraint) -> str:
    """Describe a constraint, such as `size_bytes at most 1000`."""
    return f"{constraint.metric} {_side(constraint)}"


def _side(constraint: Constraint) -> str:
    side = "least" if constraint.at_most is None else "most"
    return f"at {side} {format_number(_bound(constraint))}"


def _bound(constraint: Constraint) -> float:
    bound = constraint.at_least if constraint.at_most is None else constraint.at_most
    assert bound is not None
    return bound
