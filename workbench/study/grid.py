"""The points of a grid in the order in which they are tried, shuffled from the experiment's seed."""

from __future__ import annotations

import json
import random
from collections.abc import Container

from workbench.experiment import Experiment
from workbench.space import Params
from workbench.study.samplers import stable_seed


class Grid:
    """The configurations of a grid that have not been tried."""

    def __init__(self, experiment: Experiment) -> None:
        """Start before the first point of the grid of `experiment`."""
        self._points = list(experiment.search.grid())
        random.Random(stable_seed("grid", experiment.seed)).shuffle(self._points)
        self._next = 0

    def point(self, tried: Container[str]) -> Params | None:
        """Return the next point, or None where there is none left.

        Args:
            tried: The keys of all configurations so far.
        """
        while self._next < len(self._points) and key_of(self._points[self._next]) in tried:
            self._next += 1
        return self._points[self._next] if self._next < len(self._points) else None


def key_of(params: Params) -> str:
    """Return a text that only equal configurations share."""
    return json.dumps(params, sort_keys=True)
