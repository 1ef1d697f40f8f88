"""What it would bring that a trial grows: the rule by which `growth` decides, without processes."""

from __future__ import annotations

from dataclasses import dataclass

LEAST_SAVING = 0.1
"""Part of the time left that growing must save: measured speeds are not exact."""


@dataclass(frozen=True)
class Forecast:
    """What growing would bring.

    Attributes:
        left_s: Seconds of training left if all stays as it is.
        saving_s: Seconds that it would end earlier, the restart deducted; negative where it would end later.
        pays: Whether it should be done.
    """

    left_s: float
    saving_s: float
    pays: bool


def forecast(
    left_samples: float, samples_per_s: float, expected_samples_per_s: float, restart_s: float
) -> Forecast:
    """Judge whether growing pays.

    Args:
        left_samples: Samples that are still to be trained on.
        samples_per_s: Speed now, more than 0.
        expected_samples_per_s: Speed with more workers, more than 0.
        restart_s: What starting again costs, in seconds.
    """
    left_s = left_samples / samples_per_s
    saving_s = left_s - restart_s - left_samples / expected_samples_per_s
    return Forecast(left_s, saving_s, left_s > restart_s and saving_s > LEAST_SAVING * left_s)
