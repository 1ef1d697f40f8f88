"""Computes how much of a step waits for data, and how many loaders would hide the wait."""

from __future__ import annotations

import math
from collections.abc import Mapping

STALL_MATTERS = 0.1
"""The share of a step that waits for data above which loaders are worthwhile."""
MAX_LOADERS = 16
_MIN_DATA_S = 1e-3
"""Below this loading time per step, passing batches between processes costs more than it saves."""


def input_stall(parts_s: Mapping[str, float]) -> float:
    """Return the share of a step that waits for data, from 0 to 1.

    Args:
        parts_s: Seconds per step, by part.
    """
    total_s = math.fsum(parts_s.values())
    if total_s <= 0.0:
        return 0.0
    return parts_s.get("data", 0.0) / total_s


def loaders_to_hide(parts_s: Mapping[str, float]) -> int:
    """Return how many loaders keep up with the rest of a step, or 0 if the wait does not matter.

    Args:
        parts_s: Seconds per step, by part, of a step that loads its data itself.
    """
    data_s = parts_s.get("data", 0.0)
    if input_stall(parts_s) < STALL_MATTERS or data_s < _MIN_DATA_S:
        return 0
    rest_s = math.fsum(parts_s.values()) - data_s
    # Also avoids a division by zero, if a step does nothing but load.
    if rest_s <= data_s / MAX_LOADERS:
        return MAX_LOADERS
    return math.ceil(data_s / rest_s)
