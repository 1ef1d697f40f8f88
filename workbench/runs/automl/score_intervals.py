"""How far a score on a few test samples may be from the score on all samples of their kind.

The interval of a score holds the true score with 90 % certainty. It comes from the scores without
one part of the samples at a time. Parts are samples, whole groups, or stretches of time, because
samples of one group are no independent evidence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from workbench.data.row_splits import RowBlocks

LEVEL = 0.9
"""The probability with which an interval holds the true score."""
FEW_SAMPLES = 50
"""With fewer test samples, a score is rough."""
_MAX_PARTS = 100
_MAX_PARTS_OF_MANY = 40
_MANY = 20_000
_NUM_PARTS_OF_MEDIAN = 8
_NUM_STRETCHES = 10
_FEWEST_STRETCHES = 5
_FEWEST_IN_STRETCH = 12
_NO_ERROR = 1e-9

Score = Callable[[np.ndarray, np.ndarray], float]
"""Of (samples, classes) probabilities or (samples, 1) numbers, and class numbers or numbers."""
Scale = Literal["share", "error", "median error", "explained", "correlation"]
"""From 0 to 1, from 0, from 0 and not smooth, up to 1, or from -1 to 1."""


def interval_of(
    score: Score,
    predicted: np.ndarray,
    targets: np.ndarray,
    *,
    scale: Scale,
    parts: np.ndarray | None,
    num_decisive: int | None = None,
) -> tuple[float, float] | None:
    """Return the 90 % interval of a score, or None if the samples do not tell.

    Args:
        score: Measures predictions.
        predicted: One prediction for each sample.
        targets: The true values.
        scale: Between which values the score lies.
        parts: The part of each sample, as `parts_of` returns it, or None if there are too few.
        num_decisive: The number of samples that the score rests on, such as those of the rarest
            class for recall, or None for all. It counts if leaving out samples changes nothing: no
            positive of six was recognised.

    Source: the delete-group jackknife for parts of different sizes, Busing et al. (1999), on a
        scale on which scores are nearly normal. For shares, the interval of Wilson (1927) with as
        many samples as explain the jackknife's error.
    """
    if parts is None:
        return None
    value = score(predicted, targets)
    if not np.isfinite(value):
        return None
    forward, backward = _SCALES[scale]
    if scale == "median error":
        # A median hardly moves when a few samples are left out: parts must be large.
        # Source: Shao and Wu (1989), who show that more than the root of all samples is needed.
        parts = parts % _NUM_PARTS_OF_MEDIAN
    sizes = np.bincount(parts).astype(float)
    without = [
        forward(score(predicted[kept], targets[kept]))
        for kept in (parts != number for number in range(len(sizes)))
    ]
    at = forward(value)
    error, num_parts = _error_of(at, np.array(without), sizes)
    quantile = _quantile(num_parts)
    num = num_parts if num_decisive is None else min(num_parts, float(max(1, num_decisive)))
    if scale == "share":
        return _wilson(value, error, num, quantile)
    if scale == "correlation" and error < _NO_ERROR:
        error = num**-0.5  # of Fisher's z, when nothing is known but the number of samples
    if not np.isfinite(at):
        return value, value
    ends = sorted((backward(at - quantile * error), backward(at + quantile * error)))
    return float(ends[0]), float(ends[1])


def parts_of(num_samples: int, blocks: RowBlocks, seed: int = 0) -> np.ndarray | None:
    """Return the part of each sample that is left out at a time, or None if there is only one.

    Args:
        num_samples: Number of samples.
        blocks: Which of them belong together, and their times.
        seed: Seed of the assignment of samples or groups to parts.
    """
    if num_samples < 2:
        return None
    most = _MAX_PARTS if num_samples <= _MANY else _MAX_PARTS_OF_MANY
    if blocks.times is not None:
        num_parts = min(_NUM_STRETCHES, max(_FEWEST_STRETCHES, num_samples // _FEWEST_IN_STRETCH))
        num_parts = min(num_parts, num_samples)
        order = np.argsort(blocks.times, kind="stable")
        parts = np.empty(num_samples, dtype=np.int64)
        parts[order] = np.arange(num_samples) * num_parts // num_samples
        return parts
    groups = np.arange(num_samples)
    if blocks.groups is not None:
        groups = np.unique(blocks.groups, return_inverse=True)[1]
    num_groups = int(groups.max()) + 1
    if num_groups < 2:
        return None
    place = np.random.default_rng(seed).permutation(num_groups) % min(most, num_groups)
    return place[groups]


def _error_of(at: float, without: np.ndarray, sizes: np.ndarray) -> tuple[float, float]:
    """Return the standard error of a score, and the number of parts that it is known from."""
    num_parts = float(sizes.sum() ** 2 / (sizes**2).sum())
    known = np.isfinite(without)
    if not np.isfinite(at) or known.sum() < 2:
        return 0.0, num_parts
    ratios = sizes[known].sum() / sizes[known]
    pseudo = ratios * at - (ratios - 1.0) * without[known]
    centre = known.sum() * at - ((1.0 - 1.0 / ratios) * without[known]).sum()
    variance = float(((pseudo - centre) ** 2 / (ratios - 1.0)).mean())
    # A few large groups hide how much groups differ.
    variance *= num_parts / max(1.0, num_parts - 1.0)
    return variance**0.5, num_parts


def _quantile(num_parts: float) -> float:
    from scipy.special import stdtrit  # scipy.stats takes a second to load

    return float(stdtrit(max(1.0, num_parts - 2.0), 0.5 + LEVEL / 2))


def _wilson(value: float, error: float, num: float, quantile: float) -> tuple[float, float]:
    """Return the interval of a share. Without an error, it is that of `num` independent samples."""
    if error > _NO_ERROR and 0 < value < 1:
        num = value * (1.0 - value) / error**2
    square = quantile**2 / num
    centre = (value + square / 2) / (1 + square)
    half = quantile / (1 + square) * (value * (1 - value) / num + square / num / 4) ** 0.5
    return max(0.0, centre - half), min(1.0, centre + half)


def _same(value: float) -> float:
    return value


def _log(value: float) -> float:
    return float(np.log(value)) if value > 0 else -np.inf


def _log_rest(value: float) -> float:
    return _log(1.0 - value)


def _rest_of_log(value: float) -> float:
    return 1.0 - float(np.exp(value))


def _arctanh(value: float) -> float:
    return float(np.arctanh(np.clip(value, -0.999, 0.999)))


_SCALES: dict[Scale, tuple[Callable[[float], float], Callable[[float], float]]] = {
    "share": (_same, _same),
    "error": (_log, lambda value: float(np.exp(value))),
    "median error": (_log, lambda value: float(np.exp(value))),
    "explained": (_log_rest, _rest_of_log),
    "correlation": (_arctanh, lambda value: float(np.tanh(value))),
}
