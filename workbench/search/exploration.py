"""How a member of a population changes its parameters.

By chance (PBT), or where most is gained (PB2).
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from pydantic import JsonValue

from workbench.experiment import Experiment
from workbench.experiment.space import Choice, Fixed, Float, Int, Params, same_value
from workbench.search.moves import Move

if TYPE_CHECKING:
    from workbench.experiment.populations import PB2, PBT

_FACTORS = (0.8, 1.2)
_MIN_MOVES = 4
"""Parts that have continued others before a Gaussian process is fitted to what they gained."""


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
        moves: Sequence[Move],
        next_move: Move,
        chosen: Sequence[Move],
    ) -> Params:
        """Return a configuration near another one, in which only parameters that may change differ.

        Args:
            params: The configuration of the member whose weights are taken.
            rng: Decides what chance decides.
            moves: What earlier parts of all members have gained.
            next_move: The part that will be trained; only its number and its score at the beginning
                count.
            chosen: The parts that other members will train beside it.
        """
        changed = self._perturb(params, rng)
        if not self._is_bandit or len(moves) < _MIN_MOVES:
            return changed
        from workbench.search.bandit import most_promising  # imports SciPy

        return most_promising(self._space, changed, self._ranges, rng, moves, next_move, chosen)

    def _perturb(self, params: Params, rng: random.Random) -> Params:
        """Move each changing parameter a little, or draw it anew.

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
    values, at = domain.values(), value
    if isinstance(domain, Choice):
        if not all(isinstance(choice, int | float) for choice in domain.choices):
            return value
        place = next(
            place for place, choice in enumerate(domain.choices) if same_value(choice, value)
        )
        moved_place = place + rng.choice((-1, 1))
    else:
        assert isinstance(at, int | float)
        moved = at * rng.choice(_FACTORS)
        if values is None:
            return min(max(moved, domain.low), domain.high) if at else domain.sample(rng)
        place, moved_place = (
            round((each - domain.low) / (domain.step or 1)) for each in (at, moved)
        )
        if place == moved_place:
            moved_place += 1 if moved > at else -1
    assert values is not None
    return values[min(max(moved_place, 0), len(values) - 1)]
