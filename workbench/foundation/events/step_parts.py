"""How much of a step waits for data, and how many loaders would hide that."""

from __future__ import annotations

import math
from collections.abc import Mapping

STALL_MATTERS = 0.1
"""Part of a step that waits for data, above which something should be done."""
MAX_LOADERS = 16
_MIN_DATA_S = 1e-3
"""Seconds of loading a step below which handing batches over from another process costs more."""


def input_stall(parts_s: Mapping[str, float]) -> float:
    """Return the part of a step that waits for data, 0 to 1.

    Args:
        parts_s: Seconds a step, by part.
    """
    total_s = math.fsum(parts_s.values())
    return parts_s.get("data", 0.0) / total_s if total_s > 0.0 else 0.0


def loaders_to_hide(parts_s: Mapping[str, float]) -> int:
    """Return how many loaders keep up with the rest of a step; 0 if waiting does not matter.

    Args:
        parts_s: Seconds by part of a step that loads its data itself.
    """
    data_s = parts_s.get("data", 0.0)
    if input_stall(parts_s) < STALL_MATTERS or data_s < _MIN_DATA_S:
        return 0
    rest_s = math.fsum(parts_s.values()) - data_s
    return MAX_LOADERS if rest_s <= data_s / MAX_LOADERS else math.ceil(data_s / rest_s)
