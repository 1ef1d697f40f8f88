"""How many trials should share a GPU: copies of one training are measured beside each other.

More copies are tried as long as all together make more samples per second and the largest training
of the search fits so many times into the memory. Where copies run, and that trials do so from then
on, is left to the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from workbench.foundation.formatting import format_bytes, format_count, format_rate

MAX_PER_GPU = 8
WORTHWHILE = 1.05
"""One more trial must bring so many times the samples per second.

Each also takes cores and a process.
"""
_PART_USED = 0.9
"""The part of a trial's memory that can be used, as an allocator leaves gaps."""


@dataclass(frozen=True)
class Copies:
    """What copies of a training did beside each other.

    Attributes:
        samples_per_s: Of all together, or None if they did not fit.
        misfit: Why they did not.
    """

    samples_per_s: float | None
    misfit: str | None = None


@dataclass(frozen=True)
class Sharing:
    """How many trials share a GPU, and why.

    Attributes:
        per_gpu: The number, at least 1.
        samples_per_s: Of all copies together, by their number.
        reason: Why it is not one more.
    """

    per_gpu: int
    samples_per_s: dict[int, float]
    reason: str

    def describe(self) -> str:
        """Return a sentence about the decision and what was measured."""
        subject = f"{self.per_gpu} trials share each GPU"
        if self.per_gpu == 1:
            subject = "each trial has a GPU to itself"
        measured = ", ".join(
            f"{format_rate(rate)} samples/s with {number}"
            for number, rate in self.samples_per_s.items()
        )
        return f"{subject}: {self.reason}" + (f" (measured: {measured})" if measured else "")


def find_sharing(
    measure: Callable[[int], Copies],
    *,
    most: int,
    why_most: str,
    peak_bytes: int | None = None,
    allowed_bytes: Callable[[int], float] | None = None,
    has_time: Callable[[], bool] = lambda: True,
) -> Sharing:
    """Try twice as many copies while that pays, then numbers between what paid and what did not.

    Args:
        measure: Measures so many copies at once, 1 or more.
        most: How many there may be, at least 1.
        why_most: Why there may be no more, as the end of a sentence.
        peak_bytes: What the largest training of the search holds, or None if that is not known.
        allowed_bytes: Takes a number of copies. Returns what each may hold. None if nothing
            limits them.
        has_time: Returns whether there is time for another measurement.
    """
    alone = measure(1)
    if alone.samples_per_s is None:
        return Sharing(1, {}, f"even one does not fit: {alone.misfit}")
    rates, paying = {1: alone.samples_per_s}, 1
    highest, why_no_more = _highest(most, why_most, peak_bytes, allowed_bytes)
    has_failed = False
    while paying < highest:
        if not has_time():
            why_no_more = "the run's time is too short to measure more"
            break
        number = (paying + highest + 1) // 2 if has_failed else min(2 * paying, highest)
        copies = measure(number)
        if copies.samples_per_s is None:
            reason = f"{number} do not fit: {copies.misfit}"
        else:
            rates[number] = copies.samples_per_s
            gain = copies.samples_per_s / rates[paying]
            if gain >= WORTHWHILE ** (number - paying):
                paying = number
                continue
            reason = f"{number} make {gain:.2f} times the samples per second of {paying}"
        has_failed, highest, why_no_more = True, number - 1, reason
    return Sharing(paying, dict(sorted(rates.items())), why_no_more)


def _highest(
    most: int, why_most: str, peak_bytes: int | None, allowed_bytes: Callable[[int], float] | None
) -> tuple[int, str]:
    """Return how many copies may be measured, and why no more.

    Those of the largest training must fit.
    """
    highest = min(most, MAX_PER_GPU)
    if most > MAX_PER_GPU:
        why_most = f"more than {format_count(MAX_PER_GPU, 'trial')} are never tried"
    if peak_bytes is None or allowed_bytes is None:
        return highest, why_most
    while highest > 1 and peak_bytes > _PART_USED * allowed_bytes(highest):
        held, limit = format_bytes(peak_bytes), format_bytes(allowed_bytes(highest))
        why_most = f"the largest training holds {held}, and each of {highest} may hold {limit}"
        highest -= 1
    return highest, why_most
