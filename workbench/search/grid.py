"""The points of a grid in the order in which they are tried, shuffled by the experiment's seed.

Any space with few combinations is treated as a grid, whatever the sampler is. The run ends when all
of them were tried.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Container
from itertools import islice

from pydantic import JsonValue

from workbench.experiment import Experiment
from workbench.experiment.space import Choice, Domain, Fixed, Float, Params, Space, same_value
from workbench.search.samplers import stable_seed

_MAX_POINTS = 4096
"""A larger space is not treated as a grid, because no run is expected to try all of it."""


def is_small(space: Space) -> bool:
    """Return whether a space has so few combinations that a run can try all of them."""
    sizes: list[int] = []
    for domain in space.root.values():
        values = domain.values()
        if values is None or len(values) > _MAX_POINTS:
            return False
        sizes.append(len(values))
    # Nothing is searched. A user who requests several trials wants to repeat the same one.
    if math.prod(sizes) == 1:
        return False
    # With conditions, there are fewer combinations than the product of the values.
    return math.prod(sizes) <= _MAX_POINTS or (
        sum(1 for _ in islice(space.grid(), _MAX_POINTS + 1)) <= _MAX_POINTS
    )


class Grid:
    """The configurations of a grid that have not been tried."""

    def __init__(self, experiment: Experiment) -> None:
        """Start before the first point of the grid of `experiment`."""
        self._space = experiment.search
        self._points = list(experiment.search.grid())
        random.Random(stable_seed("grid", experiment.seed)).shuffle(self._points)
        self._next = 0

    def point(self, tried: Container[str]) -> Params | None:
        """Return the next point, or None if there is none left.

        Args:
            tried: The keys of all configurations so far.
        """
        while (
            self._next < len(self._points)
            and key_of(self._space, self._points[self._next]) in tried
        ):
            self._next += 1
        if self._next == len(self._points):
            return None
        return self._points[self._next]


def key_of(space: Space, params: Params) -> str:
    """Return a text that is the same for equal configurations, however their values are written.

    Args:
        space: The search space. A value outside of it stays as it is.
        params: A configuration.
    """
    listed = {
        name: _as_listed(space.root[name], value) if name in space.root else value
        for name, value in params.items()
    }
    return json.dumps(listed, sort_keys=True)


def _as_listed(domain: Domain, value: JsonValue) -> JsonValue:
    """Return the value as the domain lists it.

    For example, a user may write 0.3 where the domain has 0.1 plus two steps, or 1.0 instead of 1.
    """
    if not domain.contains(value):
        return value
    if isinstance(domain, Choice | Fixed):
        return next(listed for listed in domain.values() if same_value(listed, value))
    if isinstance(domain, Float):
        assert isinstance(value, int | float)
        values = domain.values()
        if domain.step is None or values is None:
            return float(value)
        index = round((value - domain.low) / domain.step)
        return values[index] if index < len(values) else float(value)
    return value
