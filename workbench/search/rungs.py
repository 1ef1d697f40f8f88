"""When pruners that forecast curves decide."""

from __future__ import annotations

import math
from collections.abc import Sequence


def is_decision(rungs: Sequence[int], grace: int) -> bool:
    """Return whether a decision is due at the last rung.

    At `grace`, then after each half of a doubling.

    Args:
        rungs: Rungs that a trial has reported, ascending.
        grace: The first rung at which it may be stopped, at least 1.
    """
    num_due = [
        math.floor(2 * math.log2(rung / grace)) + 1 if rung >= grace else 0
        for rung in (0, *rungs)[-2:]
    ]
    return num_due[-1] > num_due[0]
