"""Population-based training: which member continues from which, after each part of its training.

Members are only compared at the same epoch. A member continues as soon as its fate is certain. If
enough others are already worse, it continues at once. If it might be replaced, it waits for all
others. So proposals depend on the seed and on the results, but never on the order of arrival.
Parameters change at random (PBT) or by a Gaussian process (PB2).
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
from workbench.search.samplers import stable_seed
from workbench.search.study_records import Move, Moves

_FACTORS = (0.8, 1.2)
_MIN_MOVES = 4
"""A Gaussian process is fitted once this many parts have continued others."""


@dataclass(frozen=True)
class Part:
    """The next trial of a population.

    Attributes:
        segment: The part and the training that it belongs to.
        params: Its configuration, or None if a sampler chooses it for a new member.
    """

    segment: Segment
    params: Params | None


class Population:
    """The members of a population, or the one member of a schedule, with their results."""

    def __init__(self, experiment: Experiment) -> None:
        """Start without any trial.

        Args:
            experiment: An experiment whose sampler trains a population.
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
        """The number of members that have not started."""
        return sum((0, member) not in self._trials for member in range(self._size))

    @property
    def exhausted(self) -> bool:
        """Whether no part is left to train, now or later."""
        return len(self._scores) == len(self._trials) and self.next() is None

    def next(self) -> Part | None:
        """Return the next part of a member whose fate is certain, or None if there is none.

        Parts at an earlier epoch come first.
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
            params: The configuration.
            segment: The part.
        """
        place = (self._ends.index(segment.end), segment.member)
        self._trials[place], self._places[trial] = trial, place
        self._params[trial], self._segments[trial] = params, segment

    def finish(self, trial: int, value: float | None) -> None:
        """Record the end of a part.

        Args:
            trial: The trial of the part.
            value: Its value, or None if it failed.
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
        """Return the part that follows a member's last one, or None if it is not certain yet."""
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
        # If as many others as will be replaced are already worse, this member cannot be among them,
        # whatever the rest reaches.
        num_worse = sum(self._rank(other) > self._rank(last) for other in ended)
        is_safe = score is not None and num_worse >= self._num_weak
        if not is_safe and len(ended) < self._size:
            return None
        replacements = {} if is_safe else self._replaced(number - 1, ended)
        if member in replacements:
            source, params = replacements[member]
            segment = Segment(member=member, begin=begin, end=end, continues=source, replaced=last)
            return Part(segment, params)
        if score is None:  # every member has failed, so there is none to continue from
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
        """Return the trial that each weak member continues from, and its new configuration."""
        if number not in self._replacements:
            ranked = sorted(ended, key=self._rank)
            sound = [trial for trial in ranked if self._scores[trial] is not None]
            strong = sound[: self._num_weak]
            weak = [
                trial
                for rank, trial in enumerate(ranked)
                if trial not in strong
                and (rank >= self._size - self._num_weak or self._scores[trial] is None)
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
        """Return the gain of each part over the part that it continued, up to a number of parts."""
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
    """Changes the parameters of a configuration that may change during a training."""

    def __init__(
        self, experiment: Experiment, options: PBT | PB2, names: Collection[str], *, is_bandit: bool
    ) -> None:
        """Prepare to explore.

        Args:
            experiment: The experiment.
            options: The options of the population.
            names: The parameters that may change.
            is_bandit: Whether a Gaussian process chooses ranges once enough is known.
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
        """Return a configuration near another one. Only parameters that may change are different.

        Args:
            params: The configuration of the member whose weights are used.
            rng: The random number generator.
            moves: The gains of earlier parts of all members, and the part that follows.
        """
        changed = self._perturb(params, rng)
        if not self._is_bandit or len(moves.made) < _MIN_MOVES:
            return changed
        from workbench.search.bandit import most_promising  # imports SciPy

        return most_promising(self._space, changed, self._ranges, rng=rng, moves=moves)

    def _perturb(self, params: Params, rng: random.Random) -> Params:
        """Move each parameter that may change a little, or draw it again.

        A choice moves to a neighbour in its list.

        Source: Jaderberg et al., Population based training of neural networks, 2017, appendix A.
        """
        changed: Params = {}
        for name in self._space.order():
            domain = self._space.root[name]
            if not self._space.exists(name, changed):
                continue
            if isinstance(domain, Fixed):
                changed[name] = domain.value
            elif name not in params:  # a parent has changed, so this parameter exists now
                changed[name] = domain.sample(rng)
            elif name in self._names:
                is_drawn = rng.random() < self._resample
                value = params[name]
                changed[name] = domain.sample(rng) if is_drawn else _moved(domain, value, rng)
            else:
                changed[name] = params[name]
        return changed


def _moved(domain: Choice | Float | Int, value: JsonValue, rng: random.Random) -> JsonValue:
    """Return a value near another one. The value of a choice without an order stays the same."""
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
            # No factor moves a value of 0, so it is drawn again.
            return min(max(moved, domain.low), domain.high) if value else domain.sample(rng)
        step = domain.step or 1
        place, moved_place = (round((number - domain.low) / step) for number in (value, moved))
        if place == moved_place:
            moved_place += 1 if moved > value else -1
    assert values is not None
    return values[min(max(moved_place, 0), len(values) - 1)]
