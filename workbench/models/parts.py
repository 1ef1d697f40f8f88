"""What a batch in parts must equal: the whole batch.

The one place that decides it, for losses and metrics.

A step is divided into micro batches and among workers, and an evaluation into batches. Parts of a
mean over the samples count by their samples, those of a total and a count by their counts. Whether
a function is of such a kind is found out on a few outputs, which it is given as a whole and in
parts. What follows from that is left to those who divide.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from workbench.models.calls import loss_in, map_outputs, num_samples, output_in
from workbench.models.pairing import IGNORED

Division = Literal["samples", "targets", "next_targets", "counts", "none"]
"""By what the parts of a batch count: their samples; their targets but for ignored ones.

The same without the first of each sequence, as in models that predict the next token; or the count
that the function states. None where parts do not add up to the whole.
"""
_TOLERANCE = 1e-4
_SMALL = 1e-6
_NUM_DRAWS = 12
"""How often a function that draws at random is computed, for its mean."""
_MAX_ERRORS = 5.0
"""Standard errors by which two means may differ; below, it may be chance."""


Counted = tuple[Tensor, Tensor | int]
"""The total that a function found in a part of a batch, and of how many it is."""


class DividedLoss:
    """The loss of a trial: its mean over a batch, and what the parts of a batch add up.

    Attributes:
        function: (outputs, targets) -> mean over the batch, or (total, count).
        division: By what parts count, as far as it is known.
        takes_returned: Whether it is the one that the model computed, where it returned one.
    """

    def __init__(
        self,
        function: Callable[[Any, Any], Any],
        division: Division = "samples",
        *,
        takes_returned: bool = False,
    ) -> None:
        self.function = function
        self.division: Division = division
        self.takes_returned = takes_returned

    @property
    def is_counted(self) -> bool:
        """Whether the parts of a step count by something else than their samples."""
        return self.division not in ("samples", "none")

    def __call__(self, outputs: Any, targets: Any) -> Tensor:
        """Return the mean over a batch."""
        value = self.function(outputs, targets)
        if not isinstance(value, tuple):
            return value
        total, count = value
        return total / count

    def measure(self, outputs: Any, targets: Any) -> Counted:
        """Return total and count of a part.

        The sum of the totals over that of the counts is the whole.
        """
        if self.division in ("targets", "next_targets"):
            num = num_counted(targets, self.division)
            # A mean over nothing is 0 / 0, whose gradient is NaN even where it counts 0 times.
            if not self.takes_returned:
                return self.function(outputs, _with_one(targets, num)) * num, num
            # What the model has computed cannot be asked again, so that the device has to be waited
            # for.
            return (
                self.function(outputs, targets) * num if num.item() else _nothing_of(outputs)
            ), num
        value = self.function(outputs, targets)
        if isinstance(value, tuple):
            return value[0], value[1]
        num = num_samples(targets) or num_samples(outputs)
        return value * num, num


def num_counted(targets: Tensor, division: Division) -> Tensor:
    """Return how many class numbers a loss does not leave out, on their device."""
    wanted = targets[:, 1:] if division == "next_targets" else targets
    return (wanted != IGNORED).sum()


def _with_one(targets: Tensor, num: Tensor) -> Tensor:
    """Return targets of which one counts at least, so that the mean over them is a number."""
    if targets.numel() == 0:
        return targets
    changed = targets.clone(memory_format=torch.contiguous_format)
    counted = changed.view(-1)[-1:]  # the first one of a sequence may be no target
    counted.copy_(torch.where(num == 0, torch.zeros_like(counted), counted))
    return changed


def _nothing_of(outputs: Any) -> Tensor:
    output = output_in(outputs)
    output = output if isinstance(output, Tensor) else loss_in(outputs)
    assert output is not None
    return torch.nan_to_num(output.float()).sum() * 0.0


def sizes_of_parts(num: int) -> Iterator[tuple[int, ...]]:
    """Yield ways to cut some samples, at least 2, into parts of equal and of other sizes."""
    yield num // 2, num - num // 2
    if num > 2:
        yield 1, num - 1
    if num > 3:
        yield num - num // 3 - 1, num // 3, 1


def cut(batch: Any, sizes: Sequence[int]) -> list[Any]:
    """Return the parts of outputs or targets; what has not one entry for each sample stays whole.

    Args:
        batch: A tensor, or a tuple, list or mapping of some.
        sizes: How many samples each part has.
    """
    num, firsts = sum(sizes), [sum(sizes[:number]) for number in range(len(sizes))]

    def part(values: Any, first: int, size: int) -> Any:
        if isinstance(values, Tensor):
            return values[first : first + size] if values.ndim and len(values) == num else values
        if isinstance(values, dict):
            return {name: part(value, first, size) for name, value in values.items()}
        if isinstance(values, tuple) and hasattr(values, "_fields"):
            return type(values)(*(part(value, first, size) for value in values))
        if isinstance(values, tuple):
            return tuple(part(value, first, size) for value in values)
        if isinstance(values, list):
            if len(values) == num and not any(isinstance(value, Tensor) for value in values):
                return values[first : first + size]
            return [part(value, first, size) for value in values]
        if hasattr(values, "items") and hasattr(values, "keys"):
            # Of the same type, as a loss may read attributes.
            return type(values)({name: part(value, first, size) for name, value in values.items()})
        return values

    return [part(batch, first, size) for first, size in zip(firsts, sizes, strict=True)]


def joined(batches: Sequence[Any]) -> Any:
    """Return outputs or targets of several batches as one.

    What cannot be joined is that of the first.
    """
    first = batches[0]
    if len(batches) == 1:
        return first
    if isinstance(first, Tensor):
        is_joinable = first.ndim and all(
            members.shape[1:] == first.shape[1:] for members in batches
        )
        return torch.cat(list(batches)) if is_joinable else first
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(joined(members) for members in zip(*batches, strict=True)))
    if isinstance(first, tuple):
        return tuple(joined(members) for members in zip(*batches, strict=True))
    if isinstance(first, list):
        if any(isinstance(members, Tensor) for members in first):
            return [joined(members) for members in zip(*batches, strict=True)]
        return [members for batch in batches for members in batch]
    if hasattr(first, "items") and hasattr(first, "keys"):
        found = {name: joined([batch[name] for batch in batches]) for name in first}
        return found if type(first) is dict else type(first)(found)
    return first


def is_joinable(batches: Sequence[Any]) -> bool:
    """Return whether `joined` loses nothing.

    Every tensor has the samples first and fits to the others.
    """
    num = [num_samples(member) for member in batches]

    def fits(parts: Sequence[Any]) -> bool:
        first = parts[0]
        if isinstance(first, Tensor):
            return all(
                member.ndim and len(member) == size and member.shape[1:] == first.shape[1:]
                for member, size in zip(parts, num, strict=True)
            )
        if hasattr(first, "items") and hasattr(first, "keys"):
            return all(fits([member[name] for member in parts]) for name in first)
        if isinstance(first, tuple | list) and any(isinstance(member, Tensor) for member in first):
            return all(fits(member) for member in zip(*parts, strict=True))
        return isinstance(first, tuple | list)

    return fits(batches)


class Evidence(NamedTuple):
    """What a function returned for a batch as a whole and for its parts."""

    whole: float
    parts: tuple[float, ...]
    counts: dict[str, tuple[float, ...]]
    """Of each part, by what it may count."""
    scale: float
    """Size of the numbers that it was computed of, below which a difference is a rounding."""

    def supports(self, division: Division) -> bool:
        """Return whether parts that count like this add up to the whole."""
        counts = self.counts.get(division)
        if counts is None or not sum(counts):
            return False
        counted = [(part, count) for part, count in zip(self.parts, counts, strict=True) if count]
        value = sum(part * count for part, count in counted) / sum(counts)
        size = max(abs(self.whole), *(abs(part) for part, _ in counted))
        return abs(value - self.whole) <= _TOLERANCE * size + _SMALL * min(self.scale, 1.0)

    @property
    def worst(self) -> float:
        """What the samples would make of the parts."""
        counts = self.counts["samples"]
        return sum(part * n for part, n in zip(self.parts, counts, strict=True)) / sum(counts)


def evidence_on(
    function: Callable[[Any, Any], Any], outputs: Any, targets: Any
) -> list[Evidence] | None:
    """Apply a function to a batch and to its parts.

    Args:
        function: (outputs, targets) -> a number, or a total and a count.
        outputs: Of a batch of at least 2 samples.
        targets: Of the same samples.

    Returns:
        One piece of evidence for each way to cut the batch; a part that fails is NaN. None where
        the batch as a whole tells nothing: it fails, or the value is not finite.
    """
    num = num_samples(targets) or num_samples(outputs)
    try:
        whole, _ = value_of(function(outputs, targets))
    except Exception:
        return None
    if num < 2 or not math.isfinite(whole):
        return None
    found = output_in(outputs)
    scale = (
        float(found.abs().float().mean()) if isinstance(found, Tensor) and found.numel() else 1.0
    )
    pieces = []
    for sizes in sizes_of_parts(num):
        values = []
        for some_outputs, some_targets in zip(
            cut(outputs, sizes), cut(targets, sizes), strict=True
        ):
            try:
                values.append(value_of(function(some_outputs, some_targets)))
            except Exception:
                values.append((math.nan, 1.0))
        pieces.append(evidence_of(whole, values, cut(targets, sizes), sizes, scale))
    return pieces


def evidence_of(
    whole: float,
    values: Sequence[tuple[float, float | None]],
    targets: Sequence[Any],
    sizes: Sequence[int],
    scale: float,
) -> Evidence:
    """Return what is known of one way to cut a batch.

    Args:
        whole: The value of the batch.
        values: The value of each part, and its count where it states one.
        targets: Of each part.
        sizes: Samples of each part.
        scale: See Evidence.
    """
    counts: dict[str, tuple[float, ...]] = {"samples": tuple(map(float, sizes))}
    stated = [count for _, count in values if count is not None]
    if len(stated) == len(values):
        counts["counts"] = tuple(stated)
    elif isinstance(targets[0], Tensor) and not targets[0].is_floating_point() and targets[0].ndim:
        counts["targets"] = tuple(float(num_counted(each, "targets")) for each in targets)
        if targets[0].ndim == 2:
            counts["next_targets"] = tuple(
                float(num_counted(each, "next_targets")) for each in targets
            )
    return Evidence(whole, tuple(value for value, _ in values), counts, scale)


def evidence_of_means(
    function: Callable[[Any], Any], batch: Any, parts: Sequence[Any], targets: Sequence[Any]
) -> Evidence | None:
    """Compare a function that draws at random by the means of many draws.

    Means that differ by less than chance may explain are taken for equal, so that a small
    difference is not found.

    Args:
        function: Of a batch or a part of it: a number, or a total and a count. What fails in it is
            raised.
        batch: A batch.
        parts: Its parts.
        targets: Of each part.

    Returns:
        What was seen; None where the numbers are not finite.
    """
    sizes = [num_samples(each) for each in targets]
    whole: list[float] = []
    together: list[float] = []
    stated: list[float | None] = []
    for number in range(_NUM_DRAWS):
        torch.manual_seed(2 * number)
        whole.append(value_of(function(batch))[0])
        torch.manual_seed(2 * number + 1)
        drawn = [value_of(function(part)) for part in parts]
        stated = [count for _, count in drawn]
        counts = [
            size if count is None else count for size, count in zip(sizes, stated, strict=True)
        ]
        total = sum(value * n for (value, _), n in zip(drawn, counts, strict=True) if n)
        together.append(total / sum(counts) if sum(counts) else math.nan)
    mean, difference = statistics.fmean(whole), statistics.fmean(together) - statistics.fmean(whole)
    if not math.isfinite(mean + difference):
        return None
    error = math.sqrt((statistics.variance(whole) + statistics.variance(together)) / _NUM_DRAWS)
    shown = mean if abs(difference) <= _MAX_ERRORS * error else mean + difference
    return evidence_of(mean, [(shown, n) for n in stated], targets, sizes, 1.0)


def division_shown_by(pieces: Sequence[Evidence]) -> Division:
    """Return by what parts count, so that all that was seen adds up."""
    states_count = bool(pieces) and all("counts" in piece.counts for piece in pieces)
    possible: tuple[Division, ...] = (
        ("counts",) if states_count else ("samples", "targets", "next_targets")
    )
    for division in possible:
        if all(piece.supports(division) for piece in pieces):
            return division
    return "none"


def value_of(returned: Any) -> tuple[float, float | None]:
    """Return the value of what a function returned, and its count where it states one."""
    if isinstance(returned, tuple):
        total, count = (float(number) for number in returned)
        return (total / count if count else math.nan), count
    return float(returned), None


def variants(outputs: Any, targets: Any, pool: Tensor | None) -> Iterator[tuple[Any, Any]]:
    """Yield a batch as it is and with other outputs and targets, which show what a new model hides.

    A model that answers alike, or a batch of one class, makes functions look like means that are
    none.

    Args:
        outputs: Of a batch.
        targets: Of the same samples.
        pool: The class numbers that targets have; None where they are no class numbers.
    """
    yield outputs, targets
    generator = torch.Generator().manual_seed(0)
    drawn = targets
    if isinstance(targets, Tensor) and pool is not None and len(pool):
        chosen = torch.randint(len(pool), tuple(targets.shape), generator=generator)
        drawn = pool[chosen].to(targets)
        yield outputs, drawn
    if not isinstance(output_in(outputs), Tensor):
        return
    output = output_in(outputs).float()
    size = float(output.std(unbiased=False)) or 1.0
    # A loss of probabilities refuses other numbers, which a GPU does not survive.
    are_shares = bool(((output >= 0) & (output <= 1)).all())
    for make in (_between_0_and_1,) if are_shares else (_noisy, _between_0_and_1):
        changed = map_outputs(
            lambda tensor, make=make: _drawn(make, tensor, size, generator), outputs
        )
        yield changed, drawn
        if drawn is not targets:
            yield changed, targets


def _drawn(
    make: Callable[[Tensor, float, torch.Generator], Tensor],
    values: Tensor,
    size: float,
    generator: torch.Generator,
) -> Tensor:
    """Return other values in place of some; what is no score of samples stays."""
    return make(values, size, generator) if values.is_floating_point() and values.ndim else values


def _noisy(values: Tensor, size: float, generator: torch.Generator) -> Tensor:
    noise = torch.randn(tuple(values.shape), generator=generator).to(values)
    return values + size * (noise + 0.1)


def _between_0_and_1(values: Tensor, _size: float, generator: torch.Generator) -> Tensor:
    drawn = 0.01 + 0.98 * torch.rand(tuple(values.shape), generator=generator).to(values)
    return (
        drawn / drawn.sum(dim=-1, keepdim=True) if drawn.ndim > 1 and drawn.shape[-1] > 1 else drawn
    )


def masked(targets: Tensor, *, seed: int = 0, has_empty: bool = True) -> Tensor:
    """Return class numbers of which about half are left out, at other places for each sample.

    The others are some of those that the targets have, also at places where all samples leave out
    theirs.

    Args:
        targets: Class numbers of some samples.
        seed: Of what is drawn.
        has_empty: Whether the first sample leaves out all.
    """
    known = targets[targets != IGNORED].unique()
    generator = torch.Generator().manual_seed(seed)
    shape = tuple(targets.shape)
    is_left_out = torch.rand(shape, generator=generator).to(targets.device) < 0.5
    if has_empty:
        is_left_out[0] = True
    is_left_out.view(-1)[-1] = False
    if not len(known):
        return targets.masked_fill(is_left_out, IGNORED)
    drawn = known[torch.randint(len(known), shape, generator=generator).to(targets.device)]
    return drawn.masked_fill(is_left_out, IGNORED)
