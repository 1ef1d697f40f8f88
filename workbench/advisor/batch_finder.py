"""The fastest micro batch that fits: which sizes to measure, and when to stop.

The caller passes a function that measures. Everything else here is pure. The search stops growing
at a size that does not fit, or if a larger size cannot pay: a step of b samples takes about
a + c b seconds, so throughput often approaches its limit 1/c long before memory is full.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from workbench.experiment.plan import PartialPlan
from workbench.foundation.events import PlanMeasured

Measure = Callable[[Sequence[int]], list[PlanMeasured]]

MIN_GAIN = 0.03
"""The relative gain in samples per second for which another size is worth a measurement."""
_MIN_SIZES = 3
"""Sizes that are measured before the fitted law may end the search."""
_ROWS_OF_LAW = 3
"""The law is fitted to this many of the largest sizes. Libraries use other algorithms for smaller
sizes.
"""
_ROUND_SIZE = 8
"""Matrix units compute in tiles, so multiples of this size are preferred."""


@dataclass(frozen=True)
class FastestBatch:
    """The result of a search for the fastest micro batch.

    Attributes:
        best: The measurement of the fastest size that fits, or None if none does.
        measured: All measurements, in the order in which they were made.
        reason: Why the search ended, as a sentence.
    """

    best: PlanMeasured | None
    measured: tuple[PlanMeasured, ...]
    reason: str

    @property
    def micro_batch(self) -> int | None:
        """The fastest micro batch, or None if none fits."""
        return None if self.best is None else _size(self.best)


def find_fastest(
    measure: Measure, *, smallest: int = 1, largest: int | None = None, least_gain: float = MIN_GAIN
) -> FastestBatch:
    """Find the fastest micro batch that fits. It is not always the largest.

    Sizes double until one does not fit, is slower than the one before, or promises too little
    gain. Then the interval between the fastest size and the next larger one is halved for as long
    as that promises enough.

    Source: t(b) = a + c b, so that a doubling from b gains a / (a + 2 c b). If that is below g,
    the gain of any larger size is below 2 g / (1 - g).

    Args:
        measure: Measures micro batches under equal conditions, with optimizer state and an
            evaluation. Returns one measurement per size.
        smallest: The first size, at least 1.
        largest: The largest size that makes sense, such as the number of samples. At least
            `smallest`. None if only memory limits the size.
        least_gain: The relative gain in samples per second that another size must promise, > 0.

    Returns:
        The fastest size, all measurements, and why the search ended.
    """
    search = _Search(measure, least_gain)
    reason = search.grow(smallest, largest)
    search.refine()
    measured = tuple(search.measured)
    fitting = [event for event in measured if _speed(event) > 0.0]
    # If two sizes are equally fast, the smaller one needs less memory and allows more global
    # batches.
    best = max(fitting, key=lambda event: (_speed(event), -_size(event)), default=None)
    return FastestBatch(best, measured, reason)


@dataclass
class _Search:
    """The measurements so far, and the interval that contains the fastest size."""

    measure: Measure
    least_gain: float
    measured: list[PlanMeasured] = field(default_factory=list)
    low: PlanMeasured | None = None
    """The measurement of the fastest size so far."""
    high: int | None = None
    """The smallest larger size that does not fit or is slower."""

    def grow(self, smallest: int, largest: int | None) -> str:
        """Double the size for as long as that pays. Return why it ended."""
        size = smallest
        while True:
            tried = self._try(size)
            if not tried.fits:
                self.high = size
                return f"a micro batch of {size} does not fit"
            if self.low is not None and _speed(tried) <= _speed(self.low):
                self.high = size
                return f"a micro batch of {size} is not faster than one of {_size(self.low)}"
            self.low = tried
            if largest is not None and size >= largest:
                return f"a micro batch of {size} is the largest that makes sense"
            following = 2 * size if largest is None else min(2 * size, largest)
            gain = self._gain(following)
            if len(self.measured) >= _MIN_SIZES and gain < self.least_gain:
                return f"a micro batch of {following} would gain {gain:.1%}"
            size = following

    def refine(self) -> None:
        """Halve the interval around the fastest size for as long as that promises a gain."""
        while self.low is not None and self.high is not None:
            middle = _between(_size(self.low), self.high)
            # By the law, larger is faster, so the upper end shows the most that is left to gain.
            if middle is None or self._gain(self.high - 1) < self.least_gain:
                return
            tried = self._try(middle)
            if tried.fits and _speed(tried) > _speed(self.low):
                self.low = tried
            else:
                self.high = middle

    def _try(self, size: int) -> PlanMeasured:
        (event,) = self.measure((size,))
        self.measured.append(event)
        return event

    def _gain(self, size: int) -> float:
        """Return the relative gain that the law predicts for a larger size over the fastest one.

        The law is fitted to sizes up to the fastest. Beyond it, other effects make steps slower.
        """
        assert self.low is not None
        own = _size(self.low)
        rows = sorted(
            (_size(event), _size(event) / _speed(event))
            for event in self.measured
            if _speed(event) > 0.0 and _size(event) <= own
        )[-_ROWS_OF_LAW:]
        if len(rows) < 2:
            return float("inf")
        constant, per_sample = _fit([row[0] for row in rows], [row[1] for row in rows])
        if constant + per_sample * own <= 0.0:
            return float("inf")
        return size / own * (constant + per_sample * own) / (constant + per_sample * size) - 1.0


def _fit(sizes: Sequence[int], times_s: Sequence[float]) -> tuple[float, float]:
    """Return a and c of t = a + c b, both at least 0, by least squares of relative errors."""
    batch, time_s = np.array(sizes, float), np.array(times_s, float)
    # Dividing each row by its time makes the errors relative. Otherwise the largest size, which
    # takes the longest, would decide alone.
    slopes = np.stack([np.ones_like(batch), batch], axis=1) / time_s[:, None]
    (constant, per_sample), *_ = np.linalg.lstsq(slopes, np.ones_like(batch), rcond=None)
    if constant < 0.0:
        return 0.0, float(np.mean(time_s / batch))
    if per_sample < 0.0:
        return float(np.mean(time_s)), 0.0
    return float(constant), float(per_sample)


def _between(low: int, high: int) -> int | None:
    """Return a size near the middle of two others, if possible a round one.

    Returns None if there is no size between them.
    """
    middle = (low + high) // 2
    rounded = round(middle / _ROUND_SIZE) * _ROUND_SIZE
    if low < rounded < high:
        return rounded
    return middle if middle > low else None


def _size(measured: PlanMeasured) -> int:
    size = PartialPlan.from_json(measured.plan).micro_batch
    assert isinstance(size, int)
    return size


def _speed(measured: PlanMeasured) -> float:
    """Return the samples per second, or 0 if the plan does not fit."""
    return (measured.samples_per_s or 0.0) if measured.fits else 0.0
