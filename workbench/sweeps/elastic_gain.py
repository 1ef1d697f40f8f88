"""Estimate what a trial gains from more workers, and which run makes more of them.

`elastic` and simulations use the same rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MIN_SAVING = 0.1
"""Fraction of the remaining time that growing must save, because speeds are not exact."""


@dataclass(frozen=True)
class Gain:
    """The effect of growing.

    Attributes:
        left_s: Seconds of training left without growing.
        saving_s: Seconds saved after deducting the restart. It is negative if growing costs time.
        pays: Whether growing is worthwhile.
    """

    left_s: float
    saving_s: float
    pays: bool


def estimate_gain(
    left_samples: float, samples_per_s: float, expected_samples_per_s: float, restart_s: float
) -> Gain:
    """Estimate whether growing pays off.

    Args:
        left_samples: Number of samples left to train on.
        samples_per_s: Speed now, more than 0.
        expected_samples_per_s: Speed with more workers, more than 0.
        restart_s: Cost of the restart, in seconds.
    """
    left_s = left_samples / samples_per_s
    saving_s = left_s - restart_s - left_samples / expected_samples_per_s
    return Gain(left_s, saving_s, left_s > restart_s and saving_s > MIN_SAVING * left_s)


def fitness(speedups: Sequence[float]) -> float:
    """Return how well several runs are served together: the harmonic mean of their speedups.

    Source: Qiao et al., Pollux, OSDI 2021, equation 14 with p = -1.

    Args:
        speedups: How many times as fast each run trains as with one worker, 0 or more.

    Returns:
        Their harmonic mean, or 0 if one of them has no worker.
    """
    if min(speedups) <= 0:
        return 0.0
    return len(speedups) / sum(1.0 / speedup for speedup in speedups)


def is_better_shared(own: float, other: float, *, loss: float, gain: float) -> bool:
    """Return whether workers are better used by another run than by a trial of this one.

    A run without any worker comes first. Otherwise the other run must gain clearly more, because
    the trial has to restart.

    Args:
        own: The speedup of this run now.
        other: The speedup of the other run now.
        loss: By how much this run becomes slower.
        gain: By how much the other one becomes faster.
    """
    after = fitness((own - loss, other + gain))
    return after > (1.0 + MIN_SAVING) * fitness((own, other))
