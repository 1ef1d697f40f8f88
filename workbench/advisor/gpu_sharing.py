"""How many trials should share a GPU. Copies of one training are measured at the same time.

More copies are tried as long as the total throughput rises and the memory holds as many copies of
the largest training in the search. The caller runs the copies and applies the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from workbench.foundation.formatting import format_bytes, format_count, format_rate

MAX_PER_GPU = 8
WORTHWHILE = 1.05
"""The factor by which one more trial must raise the total throughput.

Every trial also takes CPU cores and a process, so a smaller gain is not worth it.
"""
_PART_USED = 0.9
"""The part of a trial's memory that can be used, because allocators leave gaps."""


@dataclass(frozen=True)
class Copies:
    """The measured throughput of copies of a training that ran at the same time.

    Attributes:
        samples_per_s: The throughput of all copies together, or None if they did not fit.
        misfit: Why they did not fit.
    """

    samples_per_s: float | None
    misfit: str | None = None


@dataclass(frozen=True)
class Sharing:
    """How many trials share a GPU, and why.

    Attributes:
        per_gpu: The number of trials per GPU, at least 1.
        samples_per_s: The throughput of all copies together, by the number of copies.
        reason: Why not one more.
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
    """Double the number of copies while that pays, then bisect down to the last number that paid.

    Args:
        measure: Measures a number of copies at once.
        most: The largest number of copies, at least 1.
        why_most: Why there may be no more, as the end of a sentence.
        peak_bytes: The memory of the largest training in the search, or None if unknown.
        allowed_bytes: Takes a number of copies and returns the memory that each may use. None if
            there is no limit.
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
    """Return how many copies of the largest training fit, and why no more."""
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
