"""How many plans to measure, and which; measuring them is left to `plan_measurement`."""

from __future__ import annotations

import math
from collections.abc import Sequence

# Where measuring is slow, fewer plans are measured, but at least this many on each number of
# workers.
_MIN_BATCHES = 2


def spread(values: Sequence[int], count: int) -> list[int]:
    """Return at most `count` values, the lowest and the highest among them, evenly in the
    logarithm.

    Args:
        values: Positive whole numbers.
        count: How many at most, at least 2.
    """
    ordered = sorted(set(values))
    if len(ordered) <= count:
        return ordered
    low, high = math.log(ordered[0]), math.log(ordered[-1])
    wanted = [low + (high - low) * index / (count - 1) for index in range(count)]
    return sorted({min(ordered, key=lambda value: abs(math.log(value) - at)) for at in wanted})


def num_affordable(most: int, left_s: float, plan_s: float) -> int:
    """Return how many plans to measure, where time is short, but never too few for a slope.

    Args:
        most: As many as would be measured with all time there is, at least 2.
        left_s: Seconds that are left; less than 0 where more was spent than there was.
        plan_s: Seconds that measuring a plan takes, > 0.
    """
    return int(min(most, max(_MIN_BATCHES, left_s / plan_s)))
