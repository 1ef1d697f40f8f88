"""Estimates, and functions that read stored advice.

Stored advice is JSON. A number may be missing, or a text if it is not finite. `advice` documents
the fields. The card and the figures show them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import Self

from workbench.experiment.plan import PartialPlan

# Nothing takes shorter or longer than this, and quotients of such numbers could overflow.
SHORTEST_S, LONGEST_S = 1e-12, 1e12


@dataclass(frozen=True)
class Estimate:
    """A predicted or measured number with its interval.

    Attributes:
        value: The prediction or measurement.
        low: The lower end of the interval, which the true value should exceed in nine of ten cases.
            Equal to the value if the interval is unknown.
        high: The upper end of the interval, which the true value should stay below in nine of ten
            cases. Equal to the value if the interval is unknown.
        extrapolated: Whether the prediction is outside the range of the measurements.
    """

    value: float
    low: float
    high: float
    extrapolated: bool = False

    @classmethod
    def of(cls, stored: Any) -> Self | None:
        """Read a stored estimate. Returns None if there is no finite value."""
        fields = mapping(stored)
        value = finite(fields.get("value"))
        if value is None:
            return None
        low, high = finite(fields.get("low")), finite(fields.get("high"))
        low = value if low is None else min(low, value)
        high = value if high is None else max(high, value)
        return cls(value, low, high, fields.get("extrapolated") is True)

    @property
    def is_time(self) -> bool:
        """Whether something can take this many seconds."""
        return self.low >= SHORTEST_S and self.high <= LONGEST_S

    @property
    def has_width(self) -> bool:
        """Whether there is an interval."""
        return self.low < self.high

    def times(self, factor: float) -> Estimate:
        """Return the estimate of a multiple, `factor` > 0."""
        return Estimate(
            self.value * factor, self.low * factor, self.high * factor, self.extrapolated
        )

    def at_least(self, least: float) -> Estimate:
        """Return the estimate of a number that is known to be at least `least`."""
        low, value, high = (max(least, number) for number in (self.low, self.value, self.high))
        return Estimate(value, low, high, self.extrapolated)

    def at_most(self, most: float) -> Estimate:
        """Return the estimate of a number that is known to be at most `most`."""
        low, value, high = (min(most, number) for number in (self.low, self.value, self.high))
        return Estimate(value, low, high, self.extrapolated)

    def widened(self, spread: float) -> Estimate:
        """Return the estimate with a wider interval.

        The upper end grows by `spread`, >= 0. The lower end l is divided by (l + spread) / l, so
        that it stays above 0.
        """
        low = self.low
        if spread:
            low = self.low**2 / (self.low + spread)
        return Estimate(self.value, low, self.high + spread, self.extrapolated)

    def inverse(self, of: float) -> Estimate:
        """Return the estimate of `of` divided by this number."""
        return Estimate(of / self.value, of / self.high, of / self.low, self.extrapolated)


def finite(stored: Any) -> float | None:
    """Return a stored number, or None if it is not a finite number."""
    if isinstance(stored, bool) or not isinstance(stored, int | float):
        return None
    # Integers in JSON may be too large for a float.
    if not -sys.float_info.max <= stored <= sys.float_info.max:
        return None
    return float(stored)


def mapping(stored: Any) -> Mapping[str, Any]:
    """Return a stored mapping, or an empty one if there is none."""
    if not isinstance(stored, Mapping):
        return {}
    return stored


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


def stored_plan(candidate: Mapping[str, Any]) -> PartialPlan:
    """Return the plan of a stored candidate, as far as it can be read."""
    return PartialPlan.from_json(mapping(candidate.get("plan")))
