"""Searches a space for the configuration with the highest score.

In the literature, this is the maximization of the acquisition function. `proposals` defines it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import erfcx, ndtr

from workbench.search.encoding import Encoding

# The possible improvement fades out below the best value over this part of a standard deviation.
_GAIN_WIDTH = 0.1
# Below this, log(log(1 + exp(x))) is x up to rounding, and exp(x) would underflow.
_FAR_BELOW = -30.0


def expected_improvement(mean: np.ndarray, deviation: np.ndarray, best: np.ndarray) -> np.ndarray:
    """Return the expected improvement on the best value. It is 0 for means that are far worse.

    Source: Jones, Schonlau and Welch, Efficient global optimization, 1998.

    Args:
        mean: Predicted values.
        deviation: Their standard deviations.
        best: The best values so far. The shapes of all three must be broadcastable.
    """
    z = (mean - best) / deviation
    return deviation * (z * ndtr(z) + np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi))


def log_possible_improvement(possible: np.ndarray, best: float) -> np.ndarray:
    """Return the logarithm of the possible improvement, for runs that stop bad trials early.

    With equal costs, configurations are ranked by their possible values.

    Args:
        possible: Standardised possible values, shape [m].
        best: The best value so far, standardised.
    """
    gain = (possible - best) / _GAIN_WIDTH
    return np.where(
        gain < _FAR_BELOW, gain, np.log(np.logaddexp(0.0, np.maximum(gain, _FAR_BELOW)))
    )


def log_expected_improvement(mean: np.ndarray, deviation: np.ndarray, best: float) -> np.ndarray:
    """Return the logarithm of the expected improvement on the best value.

    Source: Jones, Schonlau and Welch, Efficient global optimization, 1998. The logarithm is
    computed as in Ament et al., Unexpected improvements to expected improvement, NeurIPS 2023.

    Args:
        mean: Predicted values, shape [m].
        deviation: Their standard deviations, shape [m].
        best: The best value so far.
    """
    z = (mean - best) / deviation
    log_density = -0.5 * (z**2 + math.log(2 * math.pi))
    below = np.minimum(z, 0.0)
    # For z < 0, distribution and density both underflow, but their quotient does not. It is the
    # scaled complementary error function.
    left = 1.0 + math.sqrt(math.pi / 2) * below * erfcx(-below / math.sqrt(2))
    log_below = log_density + np.log(np.maximum(left, 1e-16))
    above = np.maximum(z, 0.0)
    log_above = np.log(np.exp(-0.5 * (above**2 + math.log(2 * math.pi))) + above * ndtr(above))
    return np.log(deviation) + np.where(z < 0, log_below, log_above)


# The first candidates: some anywhere in the space, others near the best results.
_NUM_RANDOM = 256
_NUM_LOCAL = 127
_NUM_STARTS = 5
# The best candidates are then varied in rounds. Each round keeps this many candidates, and makes
# variants of the best of them.
_NUM_ROUNDS = 4
_NUM_KEPT = 16
_NUM_VARIED = 8
_NUM_VARIANTS = 12
# Half of the variants also move by this part of the difference between two kept candidates. Such
# differences are large along directions in which the score changes little.
_DIFFERENCE = 0.8
# Predictions take longer with more results. Above this number, fewer candidates are compared.
_MANY_RESULTS = 64
# The standard deviations of variants in the unit cube, and the shares of parameters that change.
_SPREADS = (0.03, 0.1, 0.25)
_CHANGED_SHARES = (0.15, 0.4, 1.0)

Score = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""Scores configurations, given their points, which parameters exist in them, and their features."""


class Climber:
    """Varies the best configurations so far in rounds.

    Half of them move by a difference of two others, as in Storn and Price, Differential evolution,
    Journal of Global Optimization, 1997.
    """

    def __init__(self, encoding: Encoding, random: np.random.Generator) -> None:
        """Prepare one search.

        Args:
            encoding: The space.
            random: The random number generator.
        """
        self._encoding = encoding
        self._random = random

    def climb(
        self, score: Score, starts: np.ndarray, tried: set[bytes]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the configuration with the highest score, if possible one that was not tried.

        Args:
            score: Scores configurations.
            starts: Points of good configurations, the best first. Only the first few are used.
            tried: The features of configurations that were tried, as bytes.

        Returns:
            Its point, and which parameters exist in it, both of shape [columns].
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
            # Each round looks at half the distance of the one before.
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
        """Return the rows with the highest scores, the best first.

        Configurations that were tried come last, and their scores become minus infinity. They are
        only used if there is nothing new.
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

        Ranges move by a normal step, and choices are drawn again.
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
