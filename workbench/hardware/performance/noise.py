"""Compute the scale of gradient noise from norms of gradients, and the steps that a batch needs.

The gradient of one sample is the true gradient G plus noise of covariance Sigma. The noise scale
phi = tr(Sigma) / |G|^2, in samples, is the batch at which both have the same weight. Far below it,
doubling the batch saves nearly half of the steps. Far above it, doubling saves nothing.
It grows during a training (`NoiseCourse`). Nothing here imports torch or numpy, because the command
line reads the constants.

Source: McCandlish et al. 2018, "An Empirical Model of Large-Batch Training" (arXiv:1812.06162).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

SHORTEST_WINDOW = 100
# Beyond this many noise scales, a larger batch saves almost no steps, and no rule for the learning
# rate is reliable.
MAX_NOISE_SCALES = 4.0
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
class GradientMoments:
    """Signal and noise from norms of gradients. For one step, either may be negative.

    Attributes:
        signal_sqr: Estimate of |G|^2, the squared norm of the true gradient.
        noise: Estimate of tr(Sigma), the variance of the gradient of one sample.
    """

    signal_sqr: float
    noise: float

    @classmethod
    def of_two_batches(
        cls, small_sqr_norm: float, large_sqr_norm: float, *, small_batch: float, large_batch: float
    ) -> GradientMoments:
        """Estimate both, without bias, from gradients of two batches at the same parameters.

        Source: McCandlish et al. 2018, appendix A.1.

        Args:
            small_sqr_norm: Squared norm of the gradient of the small batch, or the mean over
                several small batches.
            large_sqr_norm: Squared norm of the gradient of the large batch.
            small_batch: Samples in the small batch, > 0.
            large_batch: Samples in the large batch, > `small_batch`.

        Raises:
            ValueError: If the large batch is not larger than the small one.
        """
        if not 0 < small_batch < large_batch:
            raise ValueError(
                f"the batches {small_batch} and {large_batch} must satisfy 0 < small < large"
            )
        signal_sqr = (large_batch * large_sqr_norm - small_batch * small_sqr_norm) / (
            large_batch - small_batch
        )
        noise = (small_sqr_norm - large_sqr_norm) / (1.0 / small_batch - 1.0 / large_batch)
        return cls(signal_sqr, noise)

    @classmethod
    def of_parts(
        cls,
        mean_part_sqr_norm: float,
        averaged_sqr_norm: float,
        *,
        num_parts: int,
        part_batch: float,
    ) -> GradientMoments:
        """Estimate both from the parts of one step: its workers, or its accumulated micro steps.

        Args:
            mean_part_sqr_norm: Mean over the parts of the squared norm of their own gradients.
            averaged_sqr_norm: Squared norm of the average of these gradients.
            num_parts: Number of parts, >= 2.
            part_batch: Samples in one part, > 0.

        Raises:
            ValueError: If there are fewer than two parts.
        """
        if num_parts < 2:
            raise ValueError("gradient noise needs at least two parts of a step")
        return cls.of_two_batches(
            mean_part_sqr_norm,
            averaged_sqr_norm,
            small_batch=part_batch,
            large_batch=num_parts * part_batch,
        )

    def noise_scale(self) -> float | None:
        """Return tr(Sigma) / |G|^2 in samples, or None if either estimate is not positive yet."""
        if not (self.signal_sqr > 0 and self.noise > 0):  # also false for NaN
            return None
        return self.noise / self.signal_sqr


class NoiseSmoother:
    """The noise scale of a training in progress.

    Signal and noise are smoothed separately and then divided. The mean of ratios is not the ratio
    of means, and the signal of a single step is often negative.
    """

    def __init__(self, window: int = SHORTEST_WINDOW) -> None:
        """Start without any step.

        Args:
            window: Number of steps of the exponential mean, >= 100. Shorter windows are too noisy.

        Raises:
            ValueError: If the window is shorter.
        """
        if window < SHORTEST_WINDOW:
            raise ValueError(f"a window needs at least {SHORTEST_WINDOW} steps, got {window}")
        self._window = window
        self._signal_sqr = 0.0
        self._noise = 0.0
        self._num_steps = 0

    def add(self, moments: GradientMoments) -> None:
        """Add one step."""
        keep = 1.0 - 1.0 / self._window
        self._signal_sqr = keep * self._signal_sqr + (1.0 - keep) * moments.signal_sqr
        self._noise = keep * self._noise + (1.0 - keep) * moments.noise
        self._num_steps += 1

    @property
    def num_steps(self) -> int:
        """Number of steps added."""
        return self._num_steps

    def moments(self) -> GradientMoments | None:
        """Return both smoothed, corrected for the start at 0, or None before a full window."""
        if self._num_steps < self._window:
            return None
        weight = 1.0 - (1.0 - 1.0 / self._window) ** self._num_steps
        return GradientMoments(self._signal_sqr / weight, self._noise / weight)

    def noise_scale(self) -> float | None:
        """Return the noise scale in samples, or None if it cannot be estimated yet."""
        moments = self.moments()
        if moments is None:
            return None
        return moments.noise_scale()

    def state_dict(self) -> dict[str, float]:
        """Return the state for a checkpoint."""
        return {
            "window": self._window,
            "num_steps": self._num_steps,
            "signal_sqr": self._signal_sqr,
            "noise": self._noise,
        }

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Continue from what `state_dict` returned."""
        self._window, self._num_steps = int(state["window"]), int(state["num_steps"])
        self._signal_sqr, self._noise = state["signal_sqr"], state["noise"]


def gain(batch: float, *, reference_batch: float, noise_scale: float) -> float:
    """Return how many steps of a reference batch one step of a batch replaces.

    Source: Johnson et al. 2020, "AdaScale SGD" (arXiv:2007.05105).

    Args:
        batch: Samples per step, > 0.
        reference_batch: Samples per step of the steps that are replaced, > 0.
        noise_scale: In samples, >= 0.

    Returns:
        A number from 1, without noise, to `batch / reference_batch`, with noise only.
    """
    return batch / reference_batch * (noise_scale + reference_batch) / (noise_scale + batch)


def scale_at_batch(
    scale: float, *, seen_batch: float, batch: float, reference_batch: float
) -> float:
    """Return the noise scale of a training with another batch, at the same progress.

    The noise keeps the gradient from shrinking, the more so the higher the temperature, which is
    the learning rate divided by the batch. So the scale is inversely proportional to the
    temperature. A rate that grows with `gain` makes a temperature in proportion to
    (scale + reference) / (scale + batch). Far above the noise scale, a larger batch therefore has
    less noise to average, and wastes less than the scale at a small batch suggests.

    Source: McCandlish et al. 2018, appendix C (temperature); the rate of Johnson et al. 2020.

    Args:
        scale: The noise scale that was seen, in samples, >= 0.
        seen_batch: Samples per step when it was seen, > 0.
        batch: Samples per step of the other training, > 0.
        reference_batch: Samples per step from which the rates of both are scaled, > 0.
    """
    at_reference = scale * (scale + reference_batch) / (scale + seen_batch)
    excess = at_reference - reference_batch
    # The positive root of scale = at_reference * (scale + batch) / (scale + reference_batch).
    root = math.sqrt(excess**2 + 4.0 * at_reference * batch)
    if excess >= 0:
        return (excess + root) / 2.0
    return 2.0 * at_reference * batch / (root - excess)  # does not cancel


def critical_batch(*, least_steps: float, least_samples: float) -> float:
    """Return the batch that needs twice the least steps and twice the least samples.

    It is close to the noise scale.

    Args:
        least_steps: Steps that even the largest batch needs, > 0.
        least_samples: Samples that even the smallest batch needs, > 0.
    """
    return least_samples / least_steps


@dataclass(frozen=True)
class NoiseCourse:
    """The noise scale as a function of progress: scale (p / progress)^growth.

    While a training converges, the gradient shrinks but its noise does not, so the scale grows. If
    the loss falls like 1 / p^a, then |G|^2 shrinks like 1 / p^(1 + a), because it is the rate at
    which the loss falls. The scale then grows about in proportion to progress. This is the prior,
    which measurements correct.

    Attributes:
        progress: The progress at which the scale is known, in steps of the reference batch.
        scale: The noise scale at that progress, in samples.
        growth: Its exponent.
        end: The progress at which the training is assumed to end.
        growth_deviation: How uncertain the exponent is, as a standard deviation.
    """

    progress: float
    scale: float
    growth: float
    end: float
    growth_deviation: float = 0.0

    @classmethod
    def extrapolate(
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
        points = sorted(zip(map(math.log, progress), map(math.log, scales), strict=True))
        growth, growth_deviation = _estimate_growth(points)
        newest = points[-max(1, round(len(points) * _NEWEST_PART)) :]
        anchor = fmean(when for when, _ in newest)
        level = median(scale - growth * (when - anchor) for when, scale in newest)
        until = max(progress) * _UNKNOWN_END if end is None else end
        return cls(math.exp(anchor), math.exp(level), growth, until, growth_deviation)

    def possible(self) -> list[tuple[float, NoiseCourse]]:
        """Return courses that may be true instead, with probabilities that add up to 1.

        Source: Gauss-Hermite quadrature with three nodes, exact for polynomials of the exponent up
        to degree 5.
        """
        if self.growth_deviation == 0:
            return [(1.0, self)]
        away = math.sqrt(3.0) * self.growth_deviation
        return [
            (probability, replace(self, growth=self.growth + change, growth_deviation=0.0))
            for probability, change in ((1 / 6, -away), (2 / 3, 0.0), (1 / 6, away))
        ]

    def at(self, progress: float) -> float:
        """Return the noise scale in samples at a progress."""
        return self.scale * (progress / self.progress) ** self.growth

    def steps(
        self, batch: float, *, reference_batch: float, seen_batch: float | None = None
    ) -> float:
        """Return the optimizer steps that a batch needs to the end of the training.

        Source: Johnson et al. 2020, "AdaScale SGD": a step makes the progress of gain(phi)
        reference steps.

        Args:
            batch: Samples per step, > 0.
            reference_batch: Samples per step in which progress is counted, > 0.
            seen_batch: Samples per step when the noise was measured. None if it is the noise of
                this batch.
        """
        seen = batch if seen_batch is None else seen_batch
        moments = [(number + 0.5) / _NUM_MOMENTS * self.end for number in range(_NUM_MOMENTS)]
        return self.end * fmean(
            1.0
            / gain(
                batch,
                reference_batch=reference_batch,
                noise_scale=scale_at_batch(
                    self.at(moment),
                    seen_batch=seen,
                    batch=batch,
                    reference_batch=reference_batch,
                ),
            )
            for moment in moments
        )


def _estimate_growth(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Regress the logarithm of the scale on the logarithm of progress, with the prior of growth.

    Args:
        points: Both logarithms of each measurement.

    Returns:
        The exponent of growth and its standard deviation.
    """
    if len(points) < 2:
        return _GROWTH, _GROWTH_DEVIATION
    mean_when, mean_scale = (fmean(values) for values in zip(*points, strict=True))
    centred = [(when - mean_when, scale - mean_scale) for when, scale in points]
    product = math.fsum(when * scale for when, scale in centred)
    square = math.fsum(when**2 for when, _ in centred)
    variance, growth = _MIN_SCATTER**2, _GROWTH
    belief = 1.0 / _GROWTH_DEVIATION**2
    for _ in range(5):
        growth = (product / variance + _GROWTH * belief) / (square / variance + belief)
        residual = math.fsum((scale - growth * when) ** 2 for when, scale in centred)
        variance = max(_MIN_SCATTER**2, residual / (len(points) - 1))
    return growth, 1.0 / math.sqrt(square / variance + belief)
