"""Inputs with dimensions of any size, such as texts and recordings of several lengths.

Samples of one size are computed together, and short answers are filled up to the longest. Which
dimensions may have any size is decided when a model is exported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from workbench.deploy.card import Input


@dataclass(frozen=True)
class Lengths:
    """Dimensions of inputs that may have any size.

    Attributes:
        names: For each input, the name of each dimension of a sample, "" for one of a fixed size.
            Dimensions with the same name have the same size in a sample.
        examples: Tensors of some samples of smaller sizes, in the order of `names`.
    """

    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    examples: tuple[tuple[Any, ...], ...] = ()

    def __bool__(self) -> bool:
        return any(map(any, self.names.values()))

    def of(self, name: str) -> tuple[str, ...]:
        """Return the names of the dimensions of an input, empty if all have a fixed size."""
        names = self.names.get(name, ())
        return names if any(names) else ()


def lengths_in(samples: Sequence[Mapping[str, tuple[int, ...]]]) -> Lengths:
    """Return which dimensions differ between samples.

    Args:
        samples: The shapes of some samples by input.

    Example:
        >>> found = lengths_in([{"tokens": (5,), "mask": (5,)}, {"tokens": (9,), "mask": (9,)}])
        >>> found.names["mask"]
        ('length',)
    """
    names: dict[str, tuple[str, ...]] = {}
    known: dict[tuple[int, ...], str] = {}
    for name, first in samples[0].items():
        shapes = [sample[name] for sample in samples]
        if any(len(shape) != len(first) for shape in shapes):
            return Lengths()
        of_input = []
        for sizes in zip(*shapes, strict=True):
            if len(set(sizes)) == 1:
                of_input.append("")
                continue
            number = len(known) + 1
            of_input.append(known.setdefault(sizes, "length" if number == 1 else f"length{number}"))
        names[name] = tuple(of_input)
    return Lengths(names)


def other_size(
    inputs: Sequence[Input], shapes: Sequence[tuple[int, ...]]
) -> tuple[str, str] | None:
    """Return an input whose size differs from the same size of another, and how, or None.

    Args:
        inputs: The inputs of a model.
        shapes: The shape of a sample for each of them.
    """
    known: dict[str, tuple[str, int]] = {}
    for taken, shape in zip(inputs, shapes, strict=True):
        for length, size in zip(taken.lengths, shape, strict=False):
            other, expected = known.setdefault(length, (taken.name, size)) if length else ("", size)
            if size != expected:
                return taken.name, f"has the {length} {size}, but {other!r} has {expected}"
    return None


def in_one(samples: Sequence[np.ndarray]) -> np.ndarray:
    """Return samples as one array, whose items are the samples if these have several shapes."""
    if len({sample.shape for sample in samples}) <= 1:
        return np.array(samples)
    rows = np.empty(len(samples), dtype=object)
    for row, sample in enumerate(samples):
        rows[row] = sample
    return rows


def have_several_sizes(feeds: Mapping[str, np.ndarray]) -> bool:
    """Return whether samples of an input have several shapes."""
    return any(_is_uneven(values) for values in feeds.values())


def run_by_size(
    run: Callable[[dict[str, np.ndarray]], Sequence[np.ndarray]], feeds: Mapping[str, np.ndarray]
) -> list[np.ndarray]:
    """Return the outputs of a model for samples of several sizes.

    Each size is computed on its own, so that no sample is padded.

    Args:
        run: Returns the outputs for samples of one size.
        feeds: Inputs, the sample first, as `in_one` returns them.

    Returns:
        The outputs in the order of the samples. What is missing up to the longest is NaN.
    """
    uneven = [values for values in feeds.values() if _is_uneven(values)]
    by_shape: dict[Any, list[int]] = {}
    for row, parts in enumerate(zip(*uneven, strict=True)):
        by_shape.setdefault(tuple(part.shape for part in parts), []).append(row)
    outputs_of: list[tuple[list[int], Sequence[np.ndarray]]] = []
    for rows in by_shape.values():
        some = {
            name: np.stack(list(values[rows])) if _is_uneven(values) else values[rows]
            for name, values in feeds.items()
        }
        outputs_of.append((rows, run(some)))
    num_rows = sum(map(len, by_shape.values()))
    joined = []
    for place, first in enumerate(outputs_of[0][1]):
        shapes = [outputs[place].shape[1:] for _, outputs in outputs_of]
        longest = tuple(map(max, zip(*shapes, strict=True)))
        whole = np.full((num_rows, *longest), np.nan, first.dtype)
        for rows, outputs in outputs_of:
            inside = tuple(slice(size) for size in outputs[place].shape[1:])
            whole[(rows, *inside)] = outputs[place]
        joined.append(whole)
    return joined


def _is_uneven(values: np.ndarray) -> bool:
    return values.dtype == object and len(values) > 0 and isinstance(values[0], np.ndarray)
