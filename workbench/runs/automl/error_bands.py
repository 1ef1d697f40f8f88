"""The range in which the true number of a row lies, from errors on rows that taught nothing.

Conformal prediction: the errors of validation rows are a sample of the errors of new rows. Their
quantiles around a prediction hold the true number with the wanted probability, whatever the model.
Larger predictions often have larger errors, so the range follows the prediction if that makes it
narrower.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

_FEWEST_PER_BIN, _MAX_BINS = 30, 10
_JUDGED_AT = 0.9
_NUM_FOLDS = 5


@dataclass(frozen=True)
class ErrorBands:
    """The errors of a model.

    Attributes:
        errors: True minus predicted number of validation rows, divided by their usual size, sorted.
        places: Predictions at which the usual size of an error is known.
        sizes: That size at each place.
    """

    errors: np.ndarray = field(repr=False)
    places: np.ndarray
    sizes: np.ndarray

    def around(self, predicted: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the low and the high end of the range of each prediction.

        Args:
            predicted: Predicted numbers.
            level: The share of true numbers in their ranges, between 0 and 1.

        Source: split conformal prediction, Lei et al. (2018), with a quantile for each side.
        """
        num = len(self.errors)
        outside = (1.0 - level) / 2
        # The ranks that hold a new error with this probability, whatever its distribution is.
        low = max(0, int(np.floor((num + 1) * outside)) - 1)
        size = np.interp(predicted, self.places, self.sizes)
        return predicted + self.errors[low] * size, predicted + self.errors[num - 1 - low] * size


def learn_bands(predicted: np.ndarray, targets: np.ndarray, seed: int = 0) -> ErrorBands:
    """Learn how large errors are.

    Args:
        predicted: Predicted numbers of rows that the models did not learn from.
        targets: The true numbers.
        seed: Seed of the folds that tell whether the size of errors follows the prediction.
    """
    constant = _bands(predicted, targets, 1)
    num_bins = min(_MAX_BINS, len(targets) // _FEWEST_PER_BIN)
    if num_bins < 2:
        return constant
    folds = np.random.default_rng(seed).permutation(len(targets)) % _NUM_FOLDS
    costs = []
    for bins in (1, num_bins):
        cost = 0.0
        for fold in range(_NUM_FOLDS):
            held_out = folds == fold
            bands = _bands(predicted[~held_out], targets[~held_out], bins)
            cost += _cost(bands, predicted[held_out], targets[held_out])
        costs.append(cost)
    return _bands(predicted, targets, num_bins) if costs[1] < 0.98 * costs[0] else constant


def _bands(predicted: np.ndarray, targets: np.ndarray, num_bins: int) -> ErrorBands:
    errors = targets - predicted
    places, sizes = np.zeros(1), np.ones(1)
    if num_bins > 1:
        parts = np.array_split(np.argsort(predicted, kind="stable"), num_bins)
        places = np.array([predicted[part].mean() for part in parts])
        sizes = np.array([np.abs(errors[part]).mean() for part in parts])
        sizes = np.maximum(sizes, 0.05 * sizes.mean())
        if not sizes.mean() > 0:
            sizes = np.ones(num_bins)
    return ErrorBands(np.sort(errors / np.interp(predicted, places, sizes)), places, sizes)


def _cost(bands: ErrorBands, predicted: np.ndarray, targets: np.ndarray) -> float:
    """Return the width of ranges and what lies outside of them, which honest ranges minimise.

    Source: the interval score of Gneiting and Raftery (2007).
    """
    low, high = bands.around(predicted, _JUDGED_AT)
    outside = np.maximum(low - targets, 0.0) + np.maximum(targets - high, 0.0)
    return float((high - low + 2.0 / (1.0 - _JUDGED_AT) * outside).sum())
