"""Who continues from whom: the members of a population, compared after each part of their training.

A member is compared with the others at the same epoch only. It continues as soon as its fate is
certain: at once if enough others are worse already, after all others if it might be replaced. What
is proposed depends on the seed and on the results, never on the order in which they came. Its
parameters change by chance (PBT), or where most is gained (PB2).
"""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass

from pydantic import JsonValue

from workbench.experiment import Experiment
from workbench.experiment.populations import PB2, PBT, Schedule, changing, ends_of_parts, options_of
from workbench.experiment.space import Choice, Fixed, Float, Int, Params, same_value
from workbench.foundation.events import Segment
from workbench.search.population_move import Move, Moves
from workbench.search.samplers import stable_seed

_FACTORS = (0.8, 1.2)
_MIN_MOVES = 4
"""Parts that have continued others before a Gaussian process is fitted to what they gained."""


@dataclass(frozen=True)
class Part:
    """The next trial of a population.

    Attributes:
        segment: Which part of which training it is.
        params: Its configuration, or None for that of a new member.
    """

    segment: Segment
    params: Params | None


class Population:
    """The members of a population, or the one member of a schedule, and what each has reached."""

    def __init__(self, experiment: Experiment) -> None:
        """Begin without any trial.

        Args:
            experiment: What to tune. Its sampler trains a population.
        """
        options = options_of(experiment.sampler)
        assert options is not None
        self._experiment = experiment
        self._ends = ends_of_parts(options, experiment.training.epochs)
        self._written: list[Params] | None = None
        self._explorer: Explorer | None = None
        self._size, self._num_weak = 1, 0
        if isinstance(options, Schedule):
            self._written = [dict(part.params) for part in options.parts]
        else:
            self._size = options.population
            self._num_weak = max(1, int(self._size * options.quantile))
            names = changing(options, experiment.search, trains_model=experiment.trains_model)
            self._explorer = Explorer(
                experiment, options, names, is_bandit=isinstance(options, PB2)
            )
        self._trials: dict[tuple[int, int], int] = {}
        self._places: dict[int, tuple[int, int]] = {}
        self._params: dict[int, Params] = {}
        self._segments: dict[int, Segment] = {}
        self._scores: dict[int, float | None] = {}
        self._replacements: dict[int, dict[int, tuple[int, Params]]] = {}

    @property
    def num_unborn(self) -> int:
        """How many members have not begun."""
        return sum((0, member) not in self._trials for member in range(self._size))

    @property
    def exhausted(self) -> bool:
        """Whether no part is left to be trained, now or later."""
        return len(self._scores) == len(self._trials) and self.next() is None

    def next(self) -> Part | None:
        """Return the next part: of members whose fate is certain, that of the earliest epoch.

        Else None.
        """
        for number, end in enumerate(self._ends):
            for member in range(self._size):
                if (number, member) in self._trials:
                    continue
                if number == 0:
                    params = None if self._written is None else self._written[0]
                    return Part(Segment(member=member, end=end), params)
                if (part := self._continued(number, member)) is not None:
                    return part
        return None

    def begin(self, trial: int, params: Params, segment: Segment) -> None:
        """Record that a part has been proposed.

        Args:
            trial: The number of its trial.
            params: Its configuration.
            segment: Which part it is.
        """
        place = (self._ends.index(segment.end), segment.member)
        self._trials[place], self._places[trial] = trial, place
        self._params[trial], self._segments[trial] = params, segment

    def finish(self, trial: int, value: float | None) -> None:
        """Record how a part has ended.

        Args:
            trial: Its trial.
            value: What it reached, or None if it failed.
        """
        if value is not None and self._experiment.objectives[0].goal == "minimize":
            value = -value
        self._scores[trial] = value

    def needed(self) -> set[int]:
        """Return the trials from whose checkpoints others may still continue."""
        running = {trial for trial in self._trials.values() if trial not in self._scores}
        needed = {self._segments[trial].continues for trial in running}
        for number in range(len(self._ends) - 1):
            if any((number + 1, member) not in self._trials for member in range(self._size)):
                needed |= {self._trials.get((number, member)) for member in range(self._size)}
        return {trial for trial in needed if trial is not None}

    def _continued(self, number: int, member: int) -> Part | None:
        """Return the part that follows a member's last one, if it is certain."""
        last = self._trials.get((number - 1, member))
        if last is None or last not in self._scores:
            return None
        begin, end = self._ends[number - 1], self._ends[number]
        if self._written is not None:
            if self._scores[last] is None:
                return None
            return Part(
                Segment(member=member, begin=begin, end=end, continues=last), self._written[number]
            )
        ended = self._ended(number - 1)
        score = self._scores[last]
        num_worse = sum(self._rank(other) > self._rank(last) for other in ended)
        is_safe = score is not None and num_worse >= self._num_weak
        if not is_safe and len(ended) < self._size:
            return None
        replacements = {} if is_safe else self._replaced(number - 1, ended)
        if member in replacements:
            source, params = replacements[member]
            segment = Segment(member=member, begin=begin, end=end, continues=source, replaced=last)
            return Part(segment, params)
        if score is None:  # nobody is left from whom it could continue
            return None
        return Part(
            Segment(member=member, begin=begin, end=end, continues=last), self._params[last]
        )

    def _ended(self, number: int) -> list[int]:
        """Return the trials of a part that have ended."""
        trials = [self._trials.get((number, member)) for member in range(self._size)]
        return [trial for trial in trials if trial is not None and trial in self._scores]

    def _rank(self, trial: int) -> tuple[bool, float, int]:
        """Return a key that sorts the trials of one part, the best first."""
        score = self._scores[trial]
        return score is None, -(score or 0.0), self._places[trial][1]

    def _replaced(self, number: int, ended: list[int]) -> dict[int, tuple[int, Params]]:
        """Return from which trial each weak member continues, and with which configuration."""
        if number not in self._replacements:
            ranked = sorted(ended, key=self._rank)
            sound = [trial for trial in ranked if self._scores[trial] is not None]
            strong = sound[: self._num_weak]
            weak = [
                trial
                for place, trial in enumerate(ranked)
                if trial not in strong
                and (place >= self._size - self._num_weak or self._scores[trial] is None)
            ]
            self._replacements[number] = self._explored(number, strong, weak) if strong else {}
        return self._replacements[number]

    def _explored(
        self, number: int, strong: list[int], weak: list[int]
    ) -> dict[int, tuple[int, Params]]:
        assert self._explorer is not None
        replacements: dict[int, tuple[int, Params]] = {}
        moves, chosen = self._moves(number), list[Move]()
        for trial in sorted(weak, key=lambda trial: self._places[trial][1]):
            member = self._places[trial][1]
            rng = random.Random(stable_seed("population", self._experiment.seed, number, member))
            source = rng.choice(strong)
            score = self._scores[source]
            assert score is not None
            next_move = Move(number + 1, {}, score, 0.0)
            params = self._explorer.explore(
                self._params[source], rng, Moves(moves, chosen, next_move)
            )
            chosen.append(Move(number + 1, params, score, 0.0))
            replacements[member] = source, params
        return replacements

    def _moves(self, number: int) -> list[Move]:
        """Return what each part up to one has gained over the one that it continued."""
        moves = []
        for trial in sorted(self._scores, key=lambda trial: self._places[trial]):
            segment, score = self._segments[trial], self._scores[trial]
            before = None if segment.continues is None else self._scores.get(segment.continues)
            if self._places[trial][0] <= number and score is not None and before is not None:
                moves.append(
                    Move(self._places[trial][0], self._params[trial], before, score - before)
                )
        return moves


class Explorer:
    """Changes those parameters of a configuration that may change during a training."""

    def __init__(
        self, experiment: Experiment, options: PBT | PB2, names: Collection[str], *, is_bandit: bool
    ) -> None:
        """Prepare to explore.

        Args:
            experiment: What is tuned.
            options: The options of the population.
            names: The parameters that may change.
            is_bandit: Whether ranges follow a Gaussian process once enough is known.
        """
        self._space = experiment.search
        self._resample = options.resample
        self._names = frozenset(names)
        self._ranges = [
            name
            for name in experiment.search.order()
            if name in self._names and isinstance(experiment.search.root[name], Float | Int)
        ]
        self._is_bandit = is_bandit

    def explore(
        self,
        params: Params,
        rng: random.Random,
        moves: Moves,
    ) -> Params:
        """Return a configuration near another one, in which only parameters that may change differ.

        Args:
            params: The configuration of the member whose weights are taken.
            rng: Decides what chance decides.
            moves: What earlier parts of all members have gained, and which one follows.
        """
        changed = self._perturb(params, rng)
        if not self._is_bandit or len(moves.made) < _MIN_MOVES:
            return changed
        from workbench.search.bandit import most_promising  # imports SciPy

        return most_promising(self._space, changed, self._ranges, rng=rng, moves=moves)

    def _perturb(self, params: Params, rng: random.Random) -> Params:
        """Move each changing parameter a little, or draw it again.

        Source: Jaderberg et al., 2017, appendix A; of choices the neighbour in the list is taken.
        """
        changed: Params = {}
        for name in self._space.order():
            domain = self._space.root[name]
            if not self._space.exists(name, changed):
                continue
            if isinstance(domain, Fixed):
                changed[name] = domain.value
            elif name not in params:  # a parent has changed, so that it exists now
                changed[name] = domain.sample(rng)
            elif name in self._names:
                anew = rng.random() < self._resample
                changed[name] = domain.sample(rng) if anew else _moved(domain, params[name], rng)
            else:
                changed[name] = params[name]
        return changed


def _moved(domain: Choice | Float | Int, value: JsonValue, rng: random.Random) -> JsonValue:
    """Return a value near another one of a parameter; of choices without an order the same."""
    values = domain.values()
    if isinstance(domain, Choice):
        if not all(isinstance(choice, int | float) for choice in domain.choices):
            return value
        place = next(
            place for place, choice in enumerate(domain.choices) if same_value(choice, value)
        )
        moved_place = place + rng.choice((-1, 1))
    else:
        assert isinstance(value, int | float)
        moved = value * rng.choice(_FACTORS)
        if values is None:
            # A factor never leaves 0.
            return min(max(moved, domain.low), domain.high) if value else domain.sample(rng)
        step = domain.step or 1
        place, moved_place = (round((number - domain.low) / step) for number in (value, moved))
        if place == moved_place:
            moved_place += 1 if moved > value else -1
    assert values is not None
    return values[min(max(moved_place, 0), len(values) - 1)]
