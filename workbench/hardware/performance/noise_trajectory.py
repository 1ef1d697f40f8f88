"""Model how gradient noise grows during a training, and what that means for batch sizes.

While a training converges, the gradient shrinks but its noise does not, so the noise scale grows.
If the loss falls like 1 / progress^a, then |G|^2 shrinks like 1 / progress^(1 + a), because it is
the rate at which the loss falls. The noise scale then grows about in proportion to progress. This
is the prior, which measurements correct.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from workbench.hardware.performance.noise import gain

Array = NDArray[np.float64]

# The prior of the exponent of growth with progress: its mean and deviation.
_GROWTH, _GROWTH_DEVIATION = 1.0, 0.5
# Even smoothed noise scales scatter: the least standard deviation of their logarithms.
_MIN_SCATTER = 0.3
# The level is taken from this newest part of the measurements.
_NEWEST_PART = 1 / 3
_NUM_MOMENTS = 200
# If the end of a training is unknown, it is assumed to last twice as long as measured.
_UNKNOWN_END = 2.0


@dataclass(frozen=True)
class NoiseCourse:
    """The noise scale as a function of progress: scale (p / progress)^growth.

    Attributes:
        progress: The progress at which the scale is known, in steps of the reference batch.
        scale: The noise scale at that progress, in samples.
        growth: Its exponent.
        end: The progress at which the training is assumed to end.
    """

    progress: float
    scale: float
    growth: float
    end: float

    @classmethod
    def seen(
        cls, progress: Sequence[float], scales: Sequence[float], *, end: float | None = None
    ) -> NoiseCourse:
        """Extrapolate the noise of a training from its measured part.

        Args:
            progress: When the scale was measured, in steps of the reference batch, > 0, in any
                order.
            scales: The noise scale then, in samples, > 0.
            end: The progress at the end of the training. None means twice the measured progress.

        Raises:
            ValueError: If nothing was measured.
        """
        if not progress:
            raise ValueError("the course of the noise needs at least one measured scale")
        order = np.argsort(progress)
        when, scale = (
            np.log(np.array(progress, float)[order]),
            np.log(np.array(scales, float)[order]),
        )
        growth = _estimate_growth(when, scale)
        newest = slice(-max(1, round(len(when) * _NEWEST_PART)), None)
        anchor = float(np.mean(when[newest]))
        level = float(np.median(scale[newest] - growth * (when[newest] - anchor)))
        until = float(np.exp(when[-1])) * _UNKNOWN_END if end is None else end
        return cls(float(np.exp(anchor)), float(np.exp(level)), growth, until)

    def at(self, progress: float) -> float:
        """Return the noise scale in samples at a progress."""
        return self.scale * (progress / self.progress) ** self.growth

    def steps(self, batch: float, *, reference_batch: float) -> float:
        """Return the optimizer steps that a batch needs to the end of the training.

        Source: Johnson et al. 2020, "AdaScale SGD": a step makes the progress of gain(phi)
        reference steps.

        Args:
            batch: Samples per step, > 0.
            reference_batch: Samples per step in which progress is counted, > 0.
        """
        moments = [(number + 0.5) / _NUM_MOMENTS * self.end for number in range(_NUM_MOMENTS)]
        return self.end * fmean(
            1.0 / gain(batch, reference_batch=reference_batch, noise_scale=self.at(moment))
            for moment in moments
        )


def _estimate_growth(when: Array, scale: Array) -> float:
    """Regress the logarithm of the scale on the logarithm of progress, with the prior of growth."""
    if len(when) < 2:
        return _GROWTH
    x, y = when - np.mean(when), scale - np.mean(scale)
    variance, growth = _MIN_SCATTER**2, _GROWTH
    for _ in range(5):
        belief = 1.0 / _GROWTH_DEVIATION**2
        growth = float((x @ y / variance + _GROWTH * belief) / (x @ x / variance + belief))
        left = y - growth * x
        variance = max(_MIN_SCATTER**2, float(left @ left) / (len(x) - 1))
    return growth
