"""The range in which the true number of a row lies, from errors on rows that taught nothing.

Conformal prediction: the errors of validation rows are a sample of the errors of new rows. Their
quantiles around a prediction hold the true number with the wanted probability, whatever the model.

Some rows are harder to predict than others. So each error is divided by the size that is usual for
its row. That size follows the prediction, and the columns of the row, if that makes ranges
narrower. Quantiles of one row never cross, because all of them are multiples of one size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from workbench.data.encoders import Encoder
    from workbench.models.trees import TreeEnsemble

_FEWEST_PER_BIN, _MAX_BINS = 30, 10
_JUDGED_AT = 0.9
_NUM_FOLDS = 5
_LEAST_GAIN = 0.02
_MAX_ERRORS = 2_000
# Trees need more rows than bins do.
_FEWEST_FOR_TREES = 200


@dataclass(frozen=True)
class SizeRows:
    """Validation rows as the trees read them that tell the usual size of an error.

    Attributes:
        encoder: Reads rows. It has learned from no target.
        inputs: The encoded rows, fold after fold.
        rows: The number of each row. A row of weight 2 occurs twice.
    """

    encoder: Encoder = field(repr=False)
    inputs: np.ndarray = field(repr=False)
    rows: np.ndarray = field(repr=False)


@dataclass(frozen=True)
class ErrorBands:
    """The errors of a model.

    Attributes:
        errors: True minus predicted number of validation rows, divided by their usual size, sorted.
        places: Predictions at which the usual size of an error is known.
        sizes: That size at each place.
        encoder: Reads rows for the trees, or None if there are none.
        trees: The logarithm of a factor of the usual size, or None if it follows the prediction
            alone.
    """

    errors: np.ndarray = field(repr=False)
    places: np.ndarray
    sizes: np.ndarray
    encoder: Encoder | None = field(default=None, repr=False)
    trees: TreeEnsemble | None = field(default=None, repr=False)

    def around(
        self, predicted: np.ndarray, level: float, samples: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the low and the high end of the range of each prediction.

        Args:
            predicted: Predicted numbers.
            level: The share of true numbers in their ranges, between 0 and 1.
            samples: The rows that were predicted. Only needed if there are trees.

        Source: split conformal prediction, Lei et al. (2018), with a quantile for each side.
        """
        num = len(self.errors)
        outside = (1.0 - level) / 2
        # The ranks that hold a new error with this probability, whatever its distribution is.
        low = max(0, int(np.floor((num + 1) * outside)) - 1)
        size = self._size(predicted, samples)
        return predicted + self.errors[low] * size, predicted + self.errors[num - 1 - low] * size

    def quantiles(
        self, predicted: np.ndarray, levels: Sequence[float], samples: Any = None
    ) -> np.ndarray:
        """Return the quantiles of each row as (rows, levels). They increase with the level.

        Args:
            predicted: Predicted numbers.
            levels: Which quantiles, between 0 and 1.
            samples: As in `around`.
        """
        return predicted[:, None] + self._size(predicted, samples)[:, None] * self.steps(levels)

    def steps(self, levels: Sequence[float]) -> np.ndarray:
        """Return how many usual sizes each quantile is above the prediction.

        A new error is below the quantile with the wanted probability, whatever its distribution is.
        """
        return np.quantile(self.errors, levels, method="weibull")

    def _size(self, predicted: np.ndarray, samples: Any) -> np.ndarray:
        size = np.interp(predicted, self.places, self.sizes)
        if self.trees is None or self.encoder is None:
            return size
        from workbench.models.trees import size_factors

        return size * size_factors(self.trees, self.encoder.encode(samples))


def learn_bands(
    predicted: np.ndarray,
    targets: np.ndarray,
    known: SizeRows | None = None,
    seed: int = 0,
    *,
    weights: np.ndarray | None = None,
) -> ErrorBands:
    """Learn how large errors are.

    Rows with weights are as many errors as rows of equal weight that are as much evidence.

    Args:
        predicted: Predicted numbers of rows that the models did not learn from.
        targets: The true numbers.
        known: These rows as trees read them, or None if the columns are not to be used.
        seed: Seed of the folds that tell what the size of errors follows.
        weights: The weight of each row, which copies of it share, or None if all are equal.
    """
    if weights is None:
        bands, errors = _learn(predicted, targets, known, seed)
        return replace(bands, errors=np.sort(errors))
    first = np.unique(copies_in(predicted, targets), return_index=True)[1]
    if known is not None:
        known = replace(known, inputs=known.inputs[first], rows=known.rows[first])
    bands, errors = _learn(predicted[first], targets[first], known, seed)
    return replace(bands, errors=_as_equal_weights(errors, np.add.reduceat(weights, first)))


def copies_in(predicted: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return the number of the row that each sample is a copy of. Copies follow each other.

    Args:
        predicted: What was predicted for each sample.
        targets: The true values.
    """
    both = np.column_stack([predicted, targets])
    is_new = np.append(False, (both[1:] != both[:-1]).any(axis=1))
    return np.cumsum(is_new[: len(both)])


def _as_equal_weights(errors: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return sorted errors of equal weight, as many as there is evidence, with the same quantiles.

    Source: the effective number of samples of Kish (1965).
    """
    order = np.argsort(errors, kind="stable")
    shares = np.cumsum(weights[order]) / weights.sum()
    num = max(1, round(float(weights.sum() ** 2 / (weights**2).sum())))
    levels = np.arange(1, num + 1) / (num + 1)
    return errors[order][np.searchsorted(shares, levels).clip(max=len(errors) - 1)]


def _learn(
    predicted: np.ndarray, targets: np.ndarray, known: SizeRows | None, seed: int
) -> tuple[ErrorBands, np.ndarray]:
    """Return bands that know the usual size of an error, and the errors divided by it."""
    errors = targets - predicted
    num_bins = min(_MAX_BINS, len(targets) // _FEWEST_PER_BIN)
    chosen, best = _constant(errors), errors
    if num_bins < 2:
        return chosen, best
    folds = _folds_of(len(targets), known, seed)
    cost = _cost(predicted, targets, best, np.ones(len(targets)))
    binned = _binned(predicted, errors, num_bins)
    of_bins = np.empty(len(errors))
    for fold in range(_NUM_FOLDS):
        held_out = folds == fold
        bins = _binned(predicted[~held_out], errors[~held_out], num_bins)
        of_bins[held_out] = np.interp(predicted[held_out], bins.places, bins.sizes)
    sizes = np.ones(len(errors))
    if (lower := _cost(predicted, targets, errors / of_bins, of_bins)) < (1 - _LEAST_GAIN) * cost:
        chosen, best, cost, sizes = binned, errors / of_bins, lower, of_bins
    if known is None or len(targets) < _FEWEST_FOR_TREES or not np.abs(best).mean() > 0:
        return chosen, best
    from workbench.models.trees import fit_sizes, size_factors

    of_trees = np.empty(len(errors))
    for fold in range(_NUM_FOLDS):
        held_out = folds == fold
        trees = fit_sizes(known.inputs[~held_out], np.abs(best[~held_out]), seed)
        of_trees[held_out] = sizes[held_out] * size_factors(trees, known.inputs[held_out])
    if _cost(predicted, targets, errors / of_trees, of_trees) < (1 - _LEAST_GAIN) * cost:
        # Sizes of rows that the trees have seen are too good, so errors are divided by the others.
        best = errors / of_trees
        trees = fit_sizes(known.inputs, np.abs(errors / sizes), seed)
        chosen = replace(chosen, encoder=known.encoder, trees=trees)
    return chosen, best


def thinned(bands: ErrorBands) -> ErrorBands:
    """Return bands with some of many errors, so that a model stays small.

    Args:
        bands: The errors of a model.
    """
    num = len(bands.errors)
    if num <= _MAX_ERRORS:
        return bands
    kept = np.round(np.linspace(0, num - 1, _MAX_ERRORS)).astype(np.int64)
    return replace(bands, errors=bands.errors[kept])


def _folds_of(num: int, known: SizeRows | None, seed: int) -> np.ndarray:
    """Return the fold of each row. Copies of a row are in one fold."""
    rows = np.arange(num) if known is None else known.rows
    order = np.random.default_rng(seed).permutation(int(rows.max()) + 1)
    return order[rows] % _NUM_FOLDS


def _constant(errors: np.ndarray) -> ErrorBands:
    return ErrorBands(np.sort(errors), np.zeros(1), np.ones(1))


def _binned(predicted: np.ndarray, errors: np.ndarray, num_bins: int) -> ErrorBands:
    parts = np.array_split(np.argsort(predicted, kind="stable"), num_bins)
    places = np.array([predicted[part].mean() for part in parts])
    sizes = np.array([np.abs(errors[part]).mean() for part in parts])
    sizes = np.maximum(sizes, 0.05 * sizes.mean())
    if not sizes.mean() > 0:
        sizes = np.ones(num_bins)
    return ErrorBands(errors, places, sizes)


def _cost(
    predicted: np.ndarray, targets: np.ndarray, errors: np.ndarray, sizes: np.ndarray
) -> float:
    """Return the width of ranges and what lies outside of them, which honest ranges minimise.

    Source: the interval score of Gneiting and Raftery (2007).
    """
    bands = ErrorBands(np.sort(errors), np.zeros(1), np.ones(1))
    low, high = (ends * sizes for ends in bands.around(np.zeros(len(sizes)), _JUDGED_AT))
    low, high = predicted + low, predicted + high
    outside = np.maximum(low - targets, 0.0) + np.maximum(targets - high, 0.0)
    return float((high - low + 2.0 / (1.0 - _JUDGED_AT) * outside).mean())
