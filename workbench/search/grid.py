"""The points of a grid in the order in which they are tried, shuffled by the experiment's seed.

Any space with few combinations is treated as a grid, whatever the sampler is. The run ends when all
of them were tried.
"""

from __future__ import annotations

import math
import random
from collections.abc import Container
from itertools import islice

from workbench.experiment import Experiment
from workbench.experiment.space import Params, Space
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
            self._next < len(self._points) and self._space.key_of(self._points[self._next]) in tried
        ):
            self._next += 1
        if self._next == len(self._points):
            return None
        return self._points[self._next]
