"""Reading advice as it is stored: JSON in which a number may be missing, or a text because it is not finite.

What the fields mean is said where they are written; how they are shown is left to the card and the figures.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

# What is shorter or longer is no time that anything takes, and does not divide well.
SHORTEST_S, LONGEST_S = 1e-12, 1e12


@dataclass(frozen=True)
class Interval:
    """A predicted number.

    Attributes:
        value: The prediction.
        low: Nine of ten truths should lie above; the value where nobody knows.
        high: Nine of ten truths should lie below; the value where nobody knows.
        extrapolated: Whether it is beyond what was measured.
    """

    value: float
    low: float
    high: float
    extrapolated: bool = False

    @classmethod
    def of(cls, stored: Any) -> Self | None:
        """Read what is stored of it; None where there is no finite value."""
        found = mapping(stored)
        value = finite(found.get("value"))
        if value is None:
            return None
        low, high = finite(found.get("low")), finite(found.get("high"))
        return cls(
            value,
            value if low is None else min(low, value),
            value if high is None else max(high, value),
            found.get("extrapolated") is True,
        )

    @property
    def is_time(self) -> bool:
        """Whether something can take so many seconds."""
        return self.low >= SHORTEST_S and self.high <= LONGEST_S

    @property
    def has_width(self) -> bool:
        """Whether an interval was told."""
        return self.low < self.high


def finite(stored: Any) -> float | None:
    """Return a stored number, None where it is none or not finite."""
    if isinstance(stored, bool) or not isinstance(stored, int | float):
        return None
    # Whole numbers of JSON may be too large for a float.
    return float(stored) if -sys.float_info.max <= stored <= sys.float_info.max else None


def mapping(stored: Any) -> Mapping[str, Any]:
    """Return a stored mapping, an empty one where there is none."""
    return stored if isinstance(stored, Mapping) else {}


def rows(stored: Any) -> list[Mapping[str, Any]]:
    """Return the mappings of a stored list."""
    if not isinstance(stored, Sequence) or isinstance(stored, str):
        return []
    return [row for row in stored if isinstance(row, Mapping)]


def texts(stored: Any) -> list[str]:
    """Return the texts of a stored list."""
    if not isinstance(stored, Sequence) or isinstance(stored, str):
        return []
    return [text for text in stored if isinstance(text, str)]


def write_batch(plan: Mapping[str, Any]) -> str:
    """Write a global batch in full, 256 = 64 x 2 x 2: micro batch x accumulation x workers."""
    sizes = [plan.get(name) for name in ("micro_batch", "accumulation", "workers")]
    if not all(isinstance(size, int) for size in sizes):
        return "unknown"
    product = math.prod(size for size in sizes if isinstance(size, int))
    return f"{product} = {sizes[0]} x {sizes[1]} x {sizes[2]}"
