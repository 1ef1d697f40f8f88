"""The fastest micro batch that fits: which sizes to measure, and when to stop.

Pure but for the measuring, which is handed in. Nothing larger is tried after a size that did not
fit, and nothing that cannot pay by what was measured: a step of b samples takes about a + c b
seconds, so that throughput levels off at 1/c long before memory ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from workbench.experiment.plan import PartialPlan
from workbench.foundation.events import PlanMeasured

Measure = Callable[[Sequence[int]], list[PlanMeasured]]

MIN_GAIN = 0.03
"""Samples per second that another size must promise beyond the fastest so far, as a part."""
_MIN_SIZES = 3
"""Sizes that are measured before a fitted law may end the search."""
_ROWS_OF_LAW = 3
"""The law is fitted to the largest sizes, as libraries choose other algorithms at other sizes."""
_ROUND_SIZE = 8
"""Sizes above it are multiples of it where they can be, which fill the tiles of matrix units."""


@dataclass(frozen=True)
class FastestBatch:
    """What was found.

    Attributes:
        best: The measurement of the fastest size that fits, or None if none does.
        measured: All measurements, in the order in which they were made.
        reason: Why the search ended, in words.
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
    """Find the fastest micro batch that fits, which need not be the largest.

    Sizes double until one does not fit, is slower, or the law predicts too little gain
    from a further doubling. Then sizes between the fastest and the next one above are halved for as
    long as that promises enough.

    Source: t(b) = a + c b, so that a doubling from b gains a / (a + 2 c b). If that is below g,
    all that larger sizes could ever gain is below 2 g / (1 - g).

    Args:
        measure: Measures micro batches, all else being equal, with optimizer state and an
            evaluation. Returns one measurement for each.
        smallest: The first size, at least 1.
        largest: The last that makes sense, at least `smallest`, such as the number of samples. None
            if only memory limits it.
        least_gain: Samples per second that another size must promise, as a part, > 0.

    Returns:
        The fastest, all measurements, and why no more were made.
    """
    search = _Search(measure, least_gain)
    reason = search.grow(smallest, largest)
    search.refine()
    measured = tuple(search.measured)
    fitting = [event for event in measured if _speed(event) > 0.0]
    # Of two sizes that are equally fast the smaller one leaves more memory and more freedom.
    best = max(fitting, key=lambda event: (_speed(event), -_size(event)), default=None)
    return FastestBatch(best, measured, reason)


@dataclass
class _Search:
    """What was measured so far, and between which sizes the fastest one is."""

    measure: Measure
    least_gain: float
    measured: list[PlanMeasured] = field(default_factory=list)
    low: PlanMeasured | None = None
    """The fastest size so far."""
    high: int | None = None
    """The next size above it that does not fit, or is slower."""

    def grow(self, smallest: int, largest: int | None) -> str:
        """Double the size, and return why that ended."""
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
        """Halve the sizes between the fastest and the next one above for as long as it pays."""
        while self.low is not None and self.high is not None:
            middle = _between(_size(self.low), self.high)
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
        """Return what a larger size promises beyond the fastest one.

        The law is that of the sizes up to the fastest.
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
    """Return a and c of t = a + c b, neither below 0, by least squares of relative errors."""
    batch, time_s = np.array(sizes, float), np.array(times_s, float)
    slopes = np.stack([np.ones_like(batch), batch], axis=1) / time_s[:, None]
    (constant, per_sample), *_ = np.linalg.lstsq(slopes, np.ones_like(batch), rcond=None)
    if constant < 0.0:
        return 0.0, float(np.mean(time_s / batch))
    if per_sample < 0.0:
        return float(np.mean(time_s)), 0.0
    return float(constant), float(per_sample)


def _between(low: int, high: int) -> int | None:
    """Return a size near the middle of two others, a round one if there is one.

    None if none is left.
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
    """Return samples per second. 0 where it does not fit."""
    return (measured.samples_per_s or 0.0) if measured.fits else 0.0
