"""Search a space for the configuration of the highest score, from good ones on and everywhere.

It maximizes what others call an acquisition function. Which one, is left to `proposals`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from workbench.search.encoding import Encoding

# Candidates: drawn anywhere and around the best results, then varied in rounds.
_NUM_RANDOM = 256
_NUM_LOCAL = 127
_NUM_STARTS = 5
_NUM_ROUNDS = 4
_NUM_KEPT = 16
# Of those kept, so many are varied in a round, each so many times.
_NUM_VARIED = 8
_NUM_VARIANTS = 12
# Half of the variants move by this part of the difference of two that are kept: they show where it
# goes up.
_DIFFERENCE = 0.8
# The more results there are, the more a prediction costs: from this many on, fewer candidates are
# compared.
_MANY_RESULTS = 64
_SPREADS = (0.03, 0.1, 0.25)
_CHANGED_SHARES = (0.15, 0.4, 1.0)

Score = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""Values points, given which parameters exist in them, and their features."""


class Climber:
    """Varies the best configurations so far in rounds.

    Half of them move by a difference of two others, as in Storn and Price, Differential evolution,
    Journal of Global Optimization, 1997.
    """

    def __init__(self, encoding: Encoding, random: np.random.Generator) -> None:
        """Prepare one search.

        Args:
            encoding: The space.
            random: Decides what chance decides.
        """
        self._encoding = encoding
        self._random = random

    def climb(
        self, score: Score, starts: np.ndarray, tried: set[bytes]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the configuration of the highest score that was found. A new one if there is any.

        Args:
            score: Values configurations.
            starts: Points of good configurations, the best first. Only the first ones count.
            tried: The features of those that were tried, as bytes.

        Returns:
            Its point and which parameters exist in it, both [columns].
        """
        part = min(1.0, _MANY_RESULTS / max(len(tried), 1))
        starts = starts[:_NUM_STARTS]
        random, columns = self._random, starts.shape[1]
        near = np.repeat(starts, math.ceil(part * _NUM_LOCAL / len(starts)), axis=0)
        spread = random.choice(_SPREADS, size=(len(near), 1))
        share = random.choice(_CHANGED_SHARES, size=(len(near), 1))
        anywhere = random.random((math.ceil(part * _NUM_RANDOM), columns))
        best = self._judge(score, np.vstack([anywhere, self._vary(near, spread, share)]), tried)
        for turn in range(_NUM_ROUNDS):
            spread = np.array([[_SPREADS[1] / 2**turn]])
            near = np.repeat(best.points[:_NUM_VARIED], math.ceil(part * _NUM_VARIANTS), axis=0)
            units = self._vary(near, spread, np.array([[0.5]]))
            moved = units[::2]
            first, second = best.points[random.integers(0, len(best.points), (2, len(moved)))]
            units[::2] = np.clip(moved + _DIFFERENCE * (first - second), 0.0, 1.0)
            best = self._judge(score, units, tried, best)
        return best.points[0], best.exists[0]

    def _judge(
        self,
        score: Score,
        units: np.ndarray,
        tried: set[bytes],
        before: _Candidates | None = None,
    ) -> _Candidates:
        """Return the best candidates among new points and those before, best first."""
        points, exists = self._encoding.snap(units)
        features = self._encoding.features(points, exists)
        scores = score(points, exists, features)
        new = self._best_new(scores, features, tried)
        points, exists, scores = points[new], exists[new], scores[new]
        if before is not None:
            points = np.concatenate([before.points, points])
            exists = np.concatenate([before.exists, exists])
            scores = np.concatenate([before.scores, scores])
        best = np.argsort(-scores, kind="stable")[:_NUM_KEPT]
        return _Candidates(points[best], exists[best], scores[best])

    def _best_new(self, scores: np.ndarray, features: np.ndarray, tried: set[bytes]) -> list[int]:
        """Return the rows of the highest scores, best first.

        What was tried comes last, without a score.
        """
        new, old = list[int](), list[int]()
        for row in np.argsort(-scores, kind="stable"):
            rows = old if features[row].tobytes() in tried else new
            rows.append(row)
            if len(new) == _NUM_KEPT:
                return new
        scores[old] = -np.inf
        return (new + old)[:_NUM_KEPT]

    def _vary(self, units: np.ndarray, spread: np.ndarray, share: np.ndarray) -> np.ndarray:
        """Change a share of the columns of each point, at least one.

        Ranges by a step, choices by a draw.
        """
        random = self._random
        changes = random.random(units.shape) < share
        changes[np.arange(len(units)), random.integers(0, units.shape[1], len(units))] = True
        moved = np.clip(units + spread * random.standard_normal(units.shape), 0.0, 1.0)
        if self._encoding.is_choice.any():
            moved = np.where(self._encoding.is_choice, random.random(units.shape), moved)
        return np.where(changes, moved, units)


@dataclass(frozen=True)
class _Candidates:
    points: np.ndarray
    exists: np.ndarray
    scores: np.ndarray
