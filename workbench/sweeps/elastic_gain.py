"""Estimate what a trial gains from more workers.

`elastic` and simulations use the same rule.
"""

from __future__ import annotations

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
