"""Who continues from whom: the members of a population, compared after each part of their training.

A member is compared with the others at the same epoch only. It continues as soon as its fate is
certain: at once if enough others are worse already, after all others if it might be replaced. What
is proposed depends on the seed and on the results, never on the order in which they came. How
changing parameters move is left to `exploration`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from workbench.experiment import Experiment
from workbench.experiment.populations import PB2, Schedule, changing, ends_of_parts, options_of
from workbench.experiment.space import Params
from workbench.foundation.events import Segment
from workbench.search.exploration import Explorer
from workbench.search.moves import Move
from workbench.search.samplers import stable_seed


@dataclass(frozen=True)
class Part:
    """The next trial of a population.

    Attributes:
        segment: Which part of which training it is.
        params: Its configuration; None for that of a new member.
    """

    segment: Segment
    params: Params | None


class Population:
    """The members of a population, or the one member of a schedule, and what each has reached."""

    def __init__(self, experiment: Experiment) -> None:
        """Begin without any trial.

        Args:
            experiment: What to tune; its sampler trains a population.
        """
        options = options_of(experiment)
        assert options is not None
        self._experiment = experiment
        self._ends = ends_of_parts(experiment, options)
        self._written: list[Params] | None = None
        self._explorer: Explorer | None = None
        self._size, self._num_weak = 1, 0
        if isinstance(options, Schedule):
            self._written = [dict(part.params) for part in options.parts]
        else:
            self._size = options.population
            self._num_weak = max(1, int(self._size * options.quantile))
            names = changing(experiment, options)
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
                if (found := self._continued(number, member)) is not None:
                    return found
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
            value: What it reached; None if it failed.
        """
        goal = self._experiment.objectives[0].goal
        self._scores[trial] = None if value is None else value if goal == "maximize" else -value

    def needed(self) -> set[int]:
        """Return the trials from whose checkpoints others may still continue."""
        running = {trial for trial in self._trials.values() if trial not in self._scores}
        found = {self._segments[trial].continues for trial in running} - {None}
        for number in range(len(self._ends) - 1):
            waits = any((number + 1, member) not in self._trials for member in range(self._size))
            found |= {self._trials.get((number, member)) for member in range(self._size) if waits}
        return {trial for trial in found if trial is not None}

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
        """Return for each weak member from which trial it continues, and with which
        configuration.
        """
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
        found: dict[int, tuple[int, Params]] = {}
        moves, chosen = self._moves(number), []
        for trial in sorted(weak, key=lambda trial: self._places[trial][1]):
            member = self._places[trial][1]
            rng = random.Random(stable_seed("population", self._experiment.seed, number, member))
            source = rng.choice(strong)
            score = self._scores[source]
            assert score is not None
            params = self._explorer.explore(
                self._params[source], rng, moves, Move(number + 1, {}, score, 0.0), chosen
            )
            chosen.append(Move(number + 1, params, score, 0.0))
            found[member] = source, params
        return found

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
