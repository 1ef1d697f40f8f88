"""The result of a range test: losses at learning rates that rise with each step, and the best rate.

Nothing here imports torch.

Source: Smith 2017, "Cyclical Learning Rates for Training Neural Networks" (arXiv:1506.01186),
section 3.3; Howard and Gugger 2020, "fastai: A Layered API for Deep Learning" (arXiv:2002.04688),
its `lr_find`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SMOOTHING = 0.8
"""fastai smooths by 0.98 over a hundred steps, which delays its curves by half of them.

Means over several seeds need less smoothing: 0.8 delays a curve by four steps.
"""
DIVERGED_TIMES = 4.0
"""fastai ends a test if the smoothed loss is this many times its best value."""
_BELOW_HIGHEST_STABLE = 2.0
"""The best rate for SGD is usually at least half of the highest that converges (Smith 2017)."""
_BELOW_LOWEST_LOSS = 10.0
"""A tenth of the rate of the lowest loss, where the loss is about to rise (fastai's `minimum`)."""
_MIN_FALL = 14.0
"""A curve of pure noise falls by less than this many of its usual bends (in 1500 such curves)."""
_UNSETTLED_PART = 0.1
"""The mean over the first losses is not yet smooth. fastai skips equally many."""


def rising_rates(lowest: float, highest: float, num_steps: int) -> list[float]:
    """Return rates that rise by the same factor from step to step.

    Args:
        lowest: The first rate, > 0.
        highest: The last rate, > `lowest`.
        num_steps: Number of rates, >= 2.
    """
    factor = (highest / lowest) ** (1.0 / (num_steps - 1))
    return [lowest * factor**step for step in range(num_steps - 1)] + [highest]


class LossCurve:
    """The smoothed losses of one run through the rates, until they diverge."""

    def __init__(self) -> None:
        """Start without any loss."""
        self.smoothed: list[float] = []
        self._mean = 0.0
        self._num_losses = 0

    def add(self, loss: float) -> bool:
        """Add the loss of a step to the exponential mean, which is corrected for its start at 0.

        Args:
            loss: The mean loss over the samples of the step, before its update.

        Returns:
            Whether to continue. If the loss diverges, it is False, and the loss is not added to the
            curve.
        """
        self._mean = SMOOTHING * self._mean + (1.0 - SMOOTHING) * loss
        self._num_losses += 1
        smoothed = self._mean / (1.0 - SMOOTHING**self._num_losses)
        if not math.isfinite(smoothed):
            return False
        best = min(self.smoothed, default=smoothed)
        if smoothed > best + (DIVERGED_TIMES - 1.0) * abs(best):
            return False
        self.smoothed.append(smoothed)
        return True


@dataclass(frozen=True)
class RateRange:
    """The result of all curves together.

    Attributes:
        rates: The rates at which no curve diverged.
        losses: The smoothed loss at each rate, as a mean over the curves.
        suggested: The rate to use, or None if no rate made the loss fall.
        highest_stable: The highest of the rates, or None if there is none.
    """

    rates: tuple[float, ...]
    losses: tuple[float, ...]
    suggested: float | None
    highest_stable: float | None

    @classmethod
    def of(
        cls, rates: Sequence[float], curves: Sequence[Sequence[float]], *, optimizer: str
    ) -> RateRange:
        """Take the mean of several curves, up to the end of the shortest.

        Args:
            rates: Every rate of the test, rising.
            curves: Smoothed losses of each run, one per rate from the first on. At least one curve.
            optimizer: Name of a class of torch.optim, in any case.
        """
        length = min(len(curve) for curve in curves)
        stable = tuple(rates[:length])
        # The loss of a step is measured before its update, so it shows the effect of earlier rates.
        losses = tuple(
            float(loss) for loss in np.mean([curve[:length] for curve in curves], axis=0)
        )
        suggested = suggest_rate(stable, losses, optimizer=optimizer)
        return cls(stable, losses, suggested, stable[-1] if stable else None)


def suggest_rate(
    rates: Sequence[float], losses: Sequence[float], *, optimizer: str
) -> float | None:
    """Return the rate at which the loss falls most steeply, kept below unstable rates.

    Source: the steepest fall in the logarithm of the rate is fastai's `steep`. For SGD it is at
    most half of the highest stable rate (Smith 2017). For all other optimizers it is at most a
    tenth of the rate of the lowest loss (fastai's `minimum`), because their loss still falls at
    rates that diverge later.

    Args:
        rates: Rising rates > 0 at which the loss did not diverge.
        losses: The smoothed loss at each rate.
        optimizer: Name of a class of torch.optim, in any case.

    Returns:
        A rate, or None if the loss never fell by more than its noise.
    """
    if len(rates) < 3:
        return None
    curve, when = np.asarray(losses, dtype=float), np.log(np.asarray(rates, dtype=float))
    first = int(_UNSETTLED_PART * len(curve))
    lowest = first + int(np.argmin(curve[first:]))
    fall = float(np.max(curve[first : lowest + 1]) - curve[lowest])
    usual_bend = float(np.median(np.abs(np.diff(curve[first:], n=2))))
    # The second limit is for rounding: a constant loss is not constant to the last bit.
    if fall <= max(_MIN_FALL * usual_bend, 1e-9 * abs(curve[lowest])):
        return None
    slopes = [_slope(when, curve, index) for index in range(first, lowest + 1)]
    steepest = float(np.exp(when[first + int(np.argmin(slopes))]))
    if optimizer.lower() == "sgd":
        return min(steepest, rates[-1] / _BELOW_HIGHEST_STABLE)
    return min(steepest, rates[lowest] / _BELOW_LOWEST_LOSS)


def _slope(when: np.ndarray, curve: np.ndarray, index: int) -> float:
    """Return the slope of a straight line through the neighbourhood of one point."""
    reach = max(1, len(when) // 20)
    near = slice(max(0, index - reach), index + reach + 1)
    x = when[near] - np.mean(when[near])
    return float(x @ curve[near] / (x @ x))
