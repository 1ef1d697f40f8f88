"""Preview of a data set before training: sizes, classes, a few samples, loading speed.

Samples are described as pictures, rows or text, depending on their kind. The caller draws them.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from workbench.data.ordered_splits import OrderedSplit
from workbench.data.splits import Datasets, Split
from workbench.foundation.formatting import format_count, format_number, format_rate

NUM_SAMPLES = 12
MAX_CELLS = 12
MAX_CHARACTERS = 400
LARGEST_PICTURE_PX = 128
NUM_BINS = 20
# Time limits for counting the classes of data that must be read, and for timing the loading.
_COUNTING_S = 1.0
_LOADING_S = 0.5
_MAX_COUNTED = 20_000
_READ_AT_ONCE = 128
# Thresholds of the warnings: ratio of the most frequent to the rarest class, and number of samples.
_RARE = 10.0
_FEW = 100


def preview(
    datasets: Datasets,
    *,
    num_samples: int = NUM_SAMPLES,
    seed: int = 0,
    batch: int = _READ_AT_ONCE,
    needed_samples_per_s: float | None = None,
) -> dict[str, Any]:
    """Describe a data set.

    Args:
        datasets: The data set.
        num_samples: Samples to show, at least 1.
        seed: Seed of the choice of samples.
        batch: Samples per batch in training, with which loading is timed.
        needed_samples_per_s: Samples per second that training processes, if known.

    Returns:
        Plain values: name, task, sizes, input_shape, num_outputs, class_names, class_counts,
        num_counted, target_histogram, samples, load_samples_per_s, needed_samples_per_s and
        warnings. class_counts covers the num_counted train samples that were read, and is None
        without classes. target_histogram is None if targets are not numbers.
    """
    draw = np.random.default_rng(seed)
    targets = _targets(datasets, draw)
    shown = np.sort(_drawn(datasets.train, draw)[:num_samples])
    inputs, shown_targets = (_as_numbers(part) for part in datasets.train.batch(shown))
    counts = _class_counts(datasets, targets)
    loaded = _load_samples_per_s(datasets.train, draw, batch)
    splits = {"train": datasets.train, "validation": datasets.validation, "test": datasets.test}
    return {
        "name": datasets.name,
        "task": datasets.task,
        "sizes": {name: None if split is None else len(split) for name, split in splits.items()},
        "input_shape": list(datasets.input_shape),
        "num_outputs": datasets.num_outputs,
        "class_names": list(datasets.class_names) if datasets.task == "classification" else [],
        "class_counts": counts,
        "num_counted": None if targets is None else len(targets),
        "target_histogram": _histogram(datasets, targets),
        "samples": _samples(datasets, inputs, shown_targets),
        "load_samples_per_s": loaded,
        "needed_samples_per_s": needed_samples_per_s,
        "warnings": list(_warnings(datasets, inputs, counts, loaded, needed_samples_per_s)),
    }


def _targets(datasets: Datasets, draw: np.random.Generator) -> np.ndarray | None:
    """Return the targets of the train samples, or of as many as can be read within the limit."""
    if datasets.task == "language_model":
        return None
    held = getattr(datasets.train, "targets", None)
    if isinstance(held, np.ndarray):
        return held
    order = _drawn(datasets.train, draw)[:_MAX_COUNTED]
    parts = []
    until_s = perf_counter() + _COUNTING_S
    for first in range(0, len(order), _READ_AT_ONCE):
        targets = _as_numbers(datasets.train.batch(order[first : first + _READ_AT_ONCE])[1])
        if not isinstance(targets, np.ndarray):
            return None
        parts.append(targets)
        if perf_counter() > until_s:
            break
    return np.concatenate(parts)


def _class_counts(datasets: Datasets, targets: np.ndarray | None) -> list[int] | None:
    if targets is None or datasets.task != "classification" or targets.ndim != 1:
        return None
    counted = np.bincount(targets.astype(np.int64), minlength=datasets.num_outputs)
    return [int(count) for count in counted]


def _histogram(datasets: Datasets, targets: np.ndarray | None) -> dict[str, list[float]] | None:
    if targets is None or datasets.task != "regression":
        return None
    numbers = targets.astype(np.float64).reshape(len(targets), -1)[:, 0]
    counts, edges = np.histogram(numbers[np.isfinite(numbers)], bins=NUM_BINS)
    return {"edges": [float(edge) for edge in edges], "counts": [int(count) for count in counts]}


def _load_samples_per_s(split: Split, draw: np.random.Generator, batch: int) -> float:
    """Time batches in random order, as training reads them, except the first one."""
    order = _drawn(split, draw)
    batches = [order[first : first + batch] for first in range(0, len(order), batch)]
    split.batch(batches[0])
    num_read, began_s, spent_s = 0, perf_counter(), 0.0
    while spent_s < _LOADING_S:
        for indices in batches:
            split.batch(indices)
            num_read += len(indices)
            spent_s = perf_counter() - began_s
            if spent_s >= _LOADING_S:
                break
    return num_read / spent_s


def _drawn(split: Split, draw: np.random.Generator) -> np.ndarray:
    """Return all positions in random order, or rising if a split sets its order itself."""
    if isinstance(split, OrderedSplit):
        return np.arange(len(split))
    return draw.permutation(len(split))


def _as_numbers(part: Any) -> Any:
    """Return inputs or targets with arrays instead of tensors."""
    if isinstance(part, Mapping):
        return {name: _as_numbers(value) for name, value in part.items()}
    if isinstance(part, tuple):
        return tuple(_as_numbers(value) for value in part)
    if isinstance(part, list):
        return part
    return np.asarray(part)


def _fields(inputs: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what inputs consist of, by name."""
    if isinstance(inputs, Mapping):
        named: Mapping[Any, Any] = inputs
    elif isinstance(inputs, tuple):
        named = {f"input {place}": part for place, part in enumerate(inputs)}
    else:
        yield name, inputs
        return
    for key, part in named.items():
        yield from _fields(part, f"{name}.{key}" if name else str(key))


def _in_words(value: Any) -> str:
    """Return one field of a sample as short text: the shape and the first of several numbers."""
    if not isinstance(value, np.ndarray | np.generic):
        return str(value)[:MAX_CHARACTERS]
    numbers = " ".join(format_number(float(number)) for number in value.reshape(-1)[:MAX_CELLS])
    shown = numbers + " ..." * (value.size > MAX_CELLS)
    if value.ndim == 0:
        return shown
    return f"{list(value.shape)}: {shown}"


def _samples(datasets: Datasets, inputs: Any, targets: Any) -> list[dict[str, Any]]:
    if not isinstance(inputs, np.ndarray):
        fields = dict(_fields(inputs))
        shown = [
            {
                "kind": "row",
                "cells": {name: _in_words(values[place]) for name, values in fields.items()},
            }
            for place in range(min(len(values) for values in fields.values()))
        ]
        wanted = [""] * len(shown)
        if isinstance(targets, np.ndarray):
            wanted = list(targets)
        return [
            {**row, "target": _in_words(target)} for row, target in zip(shown, wanted, strict=False)
        ]
    if datasets.vocabulary_size is not None:
        contents = [_text(datasets, tokens) for tokens in inputs]
    elif len(datasets.input_shape) == 3:
        contents = [{"kind": "image", "png": png} for png in _pictures(inputs)]
    else:
        contents = [_row(values) for values in inputs]
    return [
        {**content, "target": _target(datasets, target)}
        for content, target in zip(contents, targets, strict=True)
    ]


def _text(datasets: Datasets, tokens: np.ndarray) -> dict[str, Any]:
    if datasets.token_names:
        words = [datasets.token_names[int(token)] for token in tokens if token]
        return {"kind": "text", "text": " ".join(words)[:MAX_CHARACTERS]}
    is_named = (
        datasets.task == "language_model" and len(datasets.class_names) == datasets.vocabulary_size
    )
    if is_named:
        text = "".join(datasets.class_names[int(token)] for token in tokens)
    else:
        text = "".join(f"{int(token)} " for token in tokens)
    return {"kind": "text", "text": text[:MAX_CHARACTERS]}


def _row(values: np.ndarray) -> dict[str, Any]:
    numbers = values.reshape(-1)[:MAX_CELLS]
    return {
        "kind": "row",
        "cells": {f"input {place}": float(value) for place, value in enumerate(numbers)},
    }


def _target(datasets: Datasets, target: np.ndarray) -> str:
    if datasets.task == "language_model":
        return f"next: {_text(datasets, target.reshape(-1)[-1:])['text']!r}"
    if datasets.task == "classification" and target.ndim == 0 and datasets.class_names:
        return datasets.class_names[int(target)]
    if (
        datasets.task == "classification" and target.ndim == 1 and datasets.class_names
    ):  # of each token
        return " ".join(datasets.class_names[int(number)] for number in target if number >= 0)[
            :MAX_CHARACTERS
        ]
    if (
        datasets.task == "classification" and target.ndim == 2 and datasets.class_names
    ):  # of each pixel
        return ", ".join(
            datasets.class_names[int(number)] for number in np.unique(target[target >= 0])
        )
    if datasets.task == "detection" and datasets.class_names:
        return ", ".join(
            datasets.class_names[int(number)] for number in target[:, 0] if number >= 0
        )
    return ", ".join(format_number(number) for number in target.reshape(-1)[:MAX_CELLS])


def _pictures(inputs: np.ndarray) -> list[str]:
    """Return images as data URLs, scaled so that the extremes of all are black and white."""
    from PIL import Image

    numbers = inputs.astype(np.float64)
    known = numbers[np.isfinite(numbers)]
    darkest, brightest = 0.0, 1.0
    if len(known):
        darkest, brightest = known.min(), known.max()
    scaled = np.nan_to_num((numbers - darkest) / ((brightest - darkest) or 1.0)) * 255.0
    pixels = np.clip(np.round(scaled), 0, 255).astype(np.uint8)
    written = []
    for picture in pixels:
        image = Image.fromarray(picture.transpose(1, 2, 0) if len(picture) == 3 else picture[0])
        image.thumbnail((LARGEST_PICTURE_PX, LARGEST_PICTURE_PX))
        file = io.BytesIO()
        image.save(file, format="PNG")
        written.append(f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}")
    return written


def _warnings(
    datasets: Datasets,
    inputs: Any,
    counts: Sequence[int] | None,
    loaded: float,
    needed: float | None,
) -> list[str]:
    """Return warnings to consider before training."""
    warnings = []
    for name, split in (("train", datasets.train), ("validation", datasets.validation)):
        if len(split) < _FEW:
            warnings.append(f"{name} has {len(split)} samples: results on it are unreliable")
    arrays = [field for _, field in _fields(inputs) if isinstance(field, np.ndarray)]
    if any(field.dtype.kind == "f" and not np.isfinite(field).all() for field in arrays):
        warnings.append("some inputs are not finite: training on them diverges")
    if counts and datasets.task == "classification":
        warnings += _imbalance(counts, datasets.class_names)
    if needed is not None and math.isfinite(loaded) and loaded < needed:
        warnings.append(
            f"loading {format_rate(loaded)} samples/s is slower than training needs, "
            f"{format_rate(needed)} samples/s: workers would wait"
        )
    return warnings


def _imbalance(counts: Sequence[int], names: Sequence[str]) -> list[str]:
    def named(number: int) -> str:
        if number >= len(names):
            return f"class {number}"
        return names[number]

    absent = [named(number) for number, count in enumerate(counts) if count == 0]
    if absent:
        return [f"no train sample is of class {', '.join(absent[:5])}{', ...' * (len(absent) > 5)}"]
    least, most = int(np.argmin(counts)), int(np.argmax(counts))
    if counts[most] < _RARE * counts[least]:
        return []
    return [
        f"{named(most)} is {format_count(counts[most] / counts[least])} times as frequent as"
        f" {named(least)}: accuracy alone is misleading"
    ]
