"""What interruptions cost a training that resumes from its last checkpoint."""

from __future__ import annotations

import math

_NONE_PER_HOUR = 1e-9


def slowdown(
    failures_per_hour: float, checkpoint_s: float, restart_s: float, write_s: float = 0.0
) -> float:
    """Return how many times as long a training takes as one without interruptions.

    Failures occur at random, also during a restart or while a checkpoint is written.

    Args:
        failures_per_hour: Failures of any of its machines, per hour.
        checkpoint_s: Seconds of training between checkpoints, > 0.
        restart_s: Seconds from a failure until it trains again.
        write_s: Seconds for which writing a checkpoint interrupts the training.

    Returns:
        At least 1; infinity where it would never end.

    Source: Daly 2006, "A higher order estimate of the optimum checkpoint interval for restart
    dumps", the
        complete expression of the wall clock time.
    """
    if failures_per_hour < _NONE_PER_HOUR:
        return 1.0 + write_s / checkpoint_s
    between_s = 3600.0 / failures_per_hour
    try:
        return (
            between_s
            * math.exp(restart_s / between_s)
            * math.expm1((checkpoint_s + write_s) / between_s)
        ) / checkpoint_s
    except OverflowError:
        return math.inf
