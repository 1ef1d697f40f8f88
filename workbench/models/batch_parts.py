"""Finds out how the parts of a batch add up to the whole batch, for losses and metrics.

A step is divided into micro batches and among workers, and an evaluation into batches. For a mean
over the samples, parts count by their samples. If parts return a total and a count, both are added.
To find out which kind a function is, it is called with a few outputs as a whole and in parts.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from workbench.models.model_calls import loss_in, map_outputs, num_samples, output_in
from workbench.models.pairing import IGNORED

Division = Literal["samples", "targets", "next_targets", "counts", "none"]
"""How much each part of a batch counts.

- samples: by its number of samples
- targets: by its number of targets that are not ignored
- next_targets: the same without the first target of each sequence, for models that predict the next
  token
- counts: by the count that the function returns
- none: parts do not add up to the whole
"""
_TOLERANCE = 1e-4
_SMALL = 1e-6
_NUM_DRAWS = 12
"""How often a random function is called, to compare means."""
_MAX_ERRORS = 5.0
"""Up to this many standard errors, the difference of two means may be chance."""


Counted = tuple[Tensor, Tensor | int]
"""The total of a function over a part of a batch, and its count."""


class DividedLoss:
    """The loss of a trial: its mean over a batch, and totals and counts of the parts of a batch.

    Attributes:
        function: (outputs, targets) -> mean over the batch, or (total, count).
        division: How much parts count, as far as it is known.
        takes_returned: Whether it is the loss that the model has computed.
        joins_replicas: Whether it compares samples of all replicas, so that a step may be divided
            among them although its parts do not add up.
    """

    def __init__(
        self,
        function: Callable[[Any, Any], Any],
        division: Division = "samples",
        *,
        takes_returned: bool = False,
        joins_replicas: bool = False,
    ) -> None:
        self.function = function
        self.division: Division = division
        self.takes_returned = takes_returned
        self.joins_replicas = joins_replicas

    @property
    def is_counted(self) -> bool:
        """Whether the parts of a step count by something other than their samples."""
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

        The sum of the totals divided by the sum of the counts is the loss of the whole.
        """
        if self.division in ("targets", "next_targets"):
            num = num_counted(targets, self.division)
            # A mean over nothing is 0 / 0. Its gradient is NaN even if it counts 0 times.
            if not self.takes_returned:
                return self.function(outputs, _with_one(targets, num)) * num, num
            # The model has already computed its loss. Whether it is a mean over nothing can only be
            # found out by waiting for the device.
            if num.item():
                return self.function(outputs, targets) * num, num
            return _nothing_of(outputs), num
        value = self.function(outputs, targets)
        if isinstance(value, tuple):
            return value[0], value[1]
        num = num_samples(targets) or num_samples(outputs)
        return value * num, num


def num_counted(targets: Tensor, division: Division) -> Tensor:
    """Return how many class numbers a loss does not ignore, on their device."""
    wanted = targets
    if division == "next_targets":
        wanted = targets[:, 1:]
    return (wanted != IGNORED).sum()


def _with_one(targets: Tensor, num: Tensor) -> Tensor:
    """Return targets with at least one that counts, so that their mean is a number."""
    if targets.numel() == 0:
        return targets
    changed = targets.clone(memory_format=torch.contiguous_format)
    counted = changed.view(-1)[-1:]  # the last one, because the first of a sequence may not count
    counted.copy_(torch.where(num == 0, torch.zeros_like(counted), counted))
    return changed


def _nothing_of(outputs: Any) -> Tensor:
    """Return a loss of 0 that still depends on the outputs, for the backward pass."""
    output = output_in(outputs)
    if not isinstance(output, Tensor):
        output = loss_in(outputs)
    assert output is not None
    return torch.nan_to_num(output.float()).sum() * 0.0  # NaN times 0 would still be NaN


def sizes_of_parts(num: int) -> Iterator[tuple[int, ...]]:
    """Yield ways to cut at least 2 samples into parts of equal and of different sizes."""
    # Equal parts alone prove little: any weights of equal parts give the same mean.
    yield num // 2, num - num // 2
    if num > 2:
        yield 1, num - 1
    if num > 3:
        yield num - num // 3 - 1, num // 3, 1


def cut(batch: Any, sizes: Sequence[int]) -> list[Any]:
    """Cut outputs or targets into parts. Values without an entry for each sample stay whole.

    Args:
        batch: A tensor, or a tuple, list or mapping of tensors.
        sizes: How many samples each part has.
    """
    num = sum(sizes)
    firsts = [sum(sizes[:number]) for number in range(len(sizes))]

    def part(values: Any, first: int, size: int) -> Any:
        if isinstance(values, Tensor):
            if values.ndim and len(values) == num:
                return values[first : first + size]
            return values
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
            # Keep the type, because a loss may read its attributes.
            return type(values)({name: part(value, first, size) for name, value in values.items()})
        return values

    return [part(batch, first, size) for first, size in zip(firsts, sizes, strict=True)]


def joined(batches: Sequence[Any]) -> Any:
    """Return outputs or targets of several batches as one.

    If values cannot be joined, the values of the first batch are used.
    """
    first = batches[0]
    if len(batches) == 1:
        return first
    if isinstance(first, Tensor):
        if first.ndim and all(values.shape[1:] == first.shape[1:] for values in batches):
            return torch.cat(list(batches))
        return first
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(joined(members) for members in zip(*batches, strict=True)))
    if isinstance(first, tuple):
        return tuple(joined(members) for members in zip(*batches, strict=True))
    if isinstance(first, list):
        if any(isinstance(members, Tensor) for members in first):
            return [joined(members) for members in zip(*batches, strict=True)]
        return [members for batch in batches for members in batch]
    if hasattr(first, "items") and hasattr(first, "keys"):
        entries = {name: joined([batch[name] for batch in batches]) for name in first}
        if type(first) is dict:
            return entries
        return type(first)(entries)
    return first


def is_joinable(batches: Sequence[Any]) -> bool:
    """Return whether `joined` loses nothing, because all tensors have samples first and fit."""
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
    """Values of a function for a batch as a whole and for its parts."""

    whole: float
    parts: tuple[float, ...]
    counts: dict[str, tuple[float, ...]]
    """The counts of the parts, for each division."""
    scale: float
    """The magnitude of the numbers behind the values, which determines their rounding errors."""

    def supports(self, division: Division) -> bool:
        """Return whether parts that count like this add up to the whole."""
        counts = self.counts.get(division)
        if counts is None or not sum(counts):
            return False
        # A part that counts nothing may be NaN, as a mean over nothing is.
        counted = [(part, count) for part, count in zip(self.parts, counts, strict=True) if count]
        value = sum(part * count for part, count in counted) / sum(counts)
        size = max(abs(self.whole), *(abs(part) for part, _ in counted))
        return abs(value - self.whole) <= _TOLERANCE * size + _SMALL * min(self.scale, 1.0)

    @property
    def worst(self) -> float:
        """The value of the batch if its parts counted by their samples."""
        counts = self.counts["samples"]
        return sum(part * n for part, n in zip(self.parts, counts, strict=True)) / sum(counts)


def evidence_on(
    function: Callable[[Any, Any], Any], outputs: Any, targets: Any
) -> list[Evidence] | None:
    """Apply a function to a batch and to its parts.

    Args:
        function: (outputs, targets) -> a number, or a total and a count.
        outputs: The outputs of at least 2 samples.
        targets: The targets of the same samples.

    Returns:
        One piece of evidence for each way to cut the batch. A part that fails is NaN. None if the
        whole batch shows nothing, because it fails or its value is not finite.
    """
    num = num_samples(targets) or num_samples(outputs)
    try:
        whole, _ = value_of(function(outputs, targets))
    except Exception:
        return None
    if num < 2 or not math.isfinite(whole):
        return None
    output = output_in(outputs)
    scale = 1.0
    if isinstance(output, Tensor) and output.numel():
        scale = float(output.abs().float().mean())
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
    """Return the evidence of one way to cut a batch.

    Args:
        whole: The value of the batch.
        values: The value of each part, and its count if the function returns one.
        targets: The targets of each part.
        sizes: Samples of each part.
        scale: See Evidence.
    """
    counts: dict[str, tuple[float, ...]] = {"samples": tuple(map(float, sizes))}
    returned = [count for _, count in values if count is not None]
    if len(returned) == len(values):
        counts["counts"] = tuple(returned)
    elif isinstance(targets[0], Tensor) and not targets[0].is_floating_point() and targets[0].ndim:
        divisions: list[Division] = ["targets"]
        if targets[0].ndim == 2:
            divisions.append("next_targets")
        for division in divisions:
            counts[division] = tuple(float(num_counted(part, division)) for part in targets)
    return Evidence(whole, tuple(value for value, _ in values), counts, scale)


def evidence_of_means(
    function: Callable[[Any], Any], batch: Any, parts: Sequence[Any], targets: Sequence[Any]
) -> Evidence | None:
    """Return the evidence of a random function, from the means of many draws.

    If means may differ by chance, they count as equal. So a small difference is not found.

    Args:
        function: Takes a batch or a part of it, and returns a number, or a total and a count. Its
            errors are raised.
        batch: A batch.
        parts: Its parts.
        targets: The targets of each part.

    Returns:
        The evidence, or None if the numbers are not finite.
    """
    sizes = [num_samples(part) for part in targets]
    whole: list[float] = []
    together: list[float] = []
    part_counts: list[float | None] = []
    for number in range(_NUM_DRAWS):
        torch.manual_seed(2 * number)
        whole.append(value_of(function(batch))[0])
        torch.manual_seed(2 * number + 1)
        drawn = [value_of(function(part)) for part in parts]
        part_counts = [count for _, count in drawn]
        counts = [
            size if count is None else count for size, count in zip(sizes, part_counts, strict=True)
        ]
        total = sum(value * n for (value, _), n in zip(drawn, counts, strict=True) if n)
        together.append(total / sum(counts) if sum(counts) else math.nan)
    mean = statistics.fmean(whole)
    difference = statistics.fmean(together) - mean
    if not math.isfinite(mean + difference):
        return None
    error = math.sqrt((statistics.variance(whole) + statistics.variance(together)) / _NUM_DRAWS)
    if abs(difference) <= _MAX_ERRORS * error:
        difference = 0.0
    return evidence_of(mean, [(mean + difference, n) for n in part_counts], targets, sizes, 1.0)


def division_shown_by(pieces: Sequence[Evidence]) -> Division:
    """Return the division with which everything that was seen adds up."""
    possible: tuple[Division, ...] = ("samples", "targets", "next_targets")
    if pieces and all("counts" in piece.counts for piece in pieces):
        possible = ("counts",)
    for division in possible:
        if all(piece.supports(division) for piece in pieces):
            return division
    return "none"


def value_of(returned: Any) -> tuple[float, float | None]:
    """Return the value from the result of a function, and its count if there is one."""
    if isinstance(returned, tuple):
        total, count = (float(number) for number in returned)
        return (total / count if count else math.nan), count
    return float(returned), None


def variants(outputs: Any, targets: Any, pool: Tensor | None) -> Iterator[tuple[Any, Any]]:
    """Yield a batch, and the same batch with other outputs and targets.

    A new model may give all samples the same output, or a batch may have only one class. Then many
    functions look like means although they are not.

    Args:
        outputs: The outputs for a batch.
        targets: The targets of the same samples.
        pool: The class numbers that targets have, or None if they are not class numbers.
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
    # A loss for probabilities fails for other numbers, and on a GPU that ends the process.
    are_shares = bool(((output >= 0) & (output <= 1)).all())
    makes = [_between_0_and_1] if are_shares else [_noisy, _between_0_and_1]
    for make in makes:
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
    """Replace scores with drawn values. Scalars and whole numbers stay."""
    if not values.is_floating_point() or not values.ndim:
        return values
    return make(values, size, generator)


def _noisy(values: Tensor, size: float, generator: torch.Generator) -> Tensor:
    noise = torch.randn(tuple(values.shape), generator=generator).to(values)
    return values + size * (noise + 0.1)


def _between_0_and_1(values: Tensor, _size: float, generator: torch.Generator) -> Tensor:
    drawn = 0.01 + 0.98 * torch.rand(tuple(values.shape), generator=generator).to(values)
    if drawn.ndim > 1 and drawn.shape[-1] > 1:
        return drawn / drawn.sum(dim=-1, keepdim=True)
    return drawn


def masked(targets: Tensor, *, seed: int = 0, has_empty: bool = True) -> Tensor:
    """Return class numbers of which about half are ignored, at different places in each sample.

    The others are drawn from the classes of the targets. They may be at places where all samples
    ignore their targets.

    Args:
        targets: Class numbers of some samples.
        seed: Seed of the draw.
        has_empty: Whether all targets of the first sample are ignored.
    """
    known = targets[targets != IGNORED].unique()
    generator = torch.Generator().manual_seed(seed)
    shape = tuple(targets.shape)
    is_ignored = torch.rand(shape, generator=generator).to(targets.device) < 0.5
    if has_empty:
        is_ignored[0] = True
    is_ignored.view(-1)[-1] = False
    if not len(known):
        return targets.masked_fill(is_ignored, IGNORED)
    drawn = known[torch.randint(len(known), shape, generator=generator).to(targets.device)]
    return drawn.masked_fill(is_ignored, IGNORED)
