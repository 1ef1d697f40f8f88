"""How many trials should share a GPU: copies of one training are measured beside each other.

One more copy is tried as long as all together make more samples per second and the largest training of the
search fits so many times into the memory. Where copies run, and that trials do so from then on, is left to
the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from workbench.formatting import format_bytes, format_count, format_rate

MAX_PER_GPU = 8
WORTHWHILE = 1.05
"""One more trial must bring so many times the samples per second: each also takes cores and a process."""
_PART_USED = 0.9
"""Of the memory that a trial may hold, as much can be used by what was measured: an allocator leaves gaps."""


@dataclass(frozen=True)
class Copies:
    """What copies of a training did beside each other.

    Attributes:
        samples_per_s: Of all together; None where they did not fit.
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
        subject = "each trial has a GPU to itself" if self.per_gpu == 1 else (
            f"{self.per_gpu} trials share each GPU"
        )  # fmt: skip
        measured = ", ".join(
            f"{format_rate(rate)} samples/s with {number}" for number, rate in self.samples_per_s.items()
        )
        return f"{subject}: {self.reason}" + (f" (measured: {measured})" if measured else "")


def find_sharing(
    measure: Callable[[int], Copies], *, most: int, why_most: str,
    peak_bytes: int | None = None, allowed_bytes: Callable[[int], float] | None = None,
    has_time: Callable[[], bool] = lambda: True,
) -> Sharing:  # fmt: skip
    """Try one more copy at a time until that pays no more.

    Args:
        measure: Measures so many copies at once, 1 or more.
        most: How many there may be, at least 1.
        why_most: Why there may be no more, as the end of a sentence.
        peak_bytes: What the largest training of the search holds; None where that is not known.
        allowed_bytes: Takes a number of copies; returns what each may hold. None where nothing limits them.
        has_time: Returns whether there is time for another measurement.
    """
    alone = measure(1)
    if alone.samples_per_s is None:
        return Sharing(1, {}, f"even one does not fit: {alone.misfit}")
    found = {1: alone.samples_per_s}
    for number in range(2, min(most, MAX_PER_GPU) + 1):
        if not has_time():
            return Sharing(number - 1, found, "the run's time is too short to measure more")
        if (
            peak_bytes is not None
            and allowed_bytes is not None
            and peak_bytes > _PART_USED * allowed_bytes(number)
        ):
            held, limit = format_bytes(peak_bytes), format_bytes(allowed_bytes(number))
            reason = f"the largest training holds {held}, and each of {number} may hold {limit}"
            return Sharing(number - 1, found, reason)
        copies = measure(number)
        if copies.samples_per_s is None:
            return Sharing(number - 1, found, f"{number} do not fit: {copies.misfit}")
        found[number] = copies.samples_per_s
        if copies.samples_per_s < WORTHWHILE * found[number - 1]:
            gain = copies.samples_per_s / found[number - 1]
            return Sharing(
                number - 1, found, f"{number} make {gain:.2f} times the samples per second of {number - 1}"
            )
    if most > MAX_PER_GPU:
        why_most = f"more than {format_count(MAX_PER_GPU, 'trial')} are never tried"
    return Sharing(min(most, MAX_PER_GPU), found, why_most)
