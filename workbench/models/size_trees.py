"""Trees that predict how large errors are from the columns of a row.

Which errors these are, and whether trees are better than one size for all rows, is left to the
caller.
"""

from __future__ import annotations

import numpy as np
import torch

from workbench.models.trees import TreeEnsemble, of_boosted_numbers

MAX_FACTOR = 20.0
"""The largest factor between the size of a row and the mean. The smallest is 1 divided by it."""
_MOST_SAMPLES = 10_000


def fit_sizes(inputs: np.ndarray, sizes: np.ndarray, seed: int) -> TreeEnsemble:
    """Fit the logarithm of sizes relative to their mean, by the deviance of the gamma distribution.

    Args:
        inputs: (samples, columns).
        sizes: (samples,): positive numbers or 0.
        seed: Seed of the samples that are used if there are many.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    if len(sizes) > _MOST_SAMPLES:
        rows = np.random.default_rng(seed).choice(len(sizes), _MOST_SAMPLES, replace=False)
        inputs, sizes = inputs[rows], sizes[rows]
    sizes = np.maximum(sizes / sizes.mean(), 1e-3)
    grown = HistGradientBoostingRegressor(
        loss="gamma",
        max_iter=50,
        learning_rate=0.1,
        max_leaf_nodes=8,
        min_samples_leaf=max(20, len(sizes) // 50),
        l2_regularization=1.0,
        early_stopping=False,  # pyright: ignore[reportArgumentType]
        random_state=seed,
    )
    with threadpool_limits(limits=1):  # for so few rows, threads wait for each other
        return of_boosted_numbers(grown.fit(inputs, sizes))


def size_factors(trees: TreeEnsemble, inputs: np.ndarray) -> np.ndarray:
    """Return by which factor the size of each row differs from the mean, within `MAX_FACTOR`.

    Args:
        trees: What `fit_sizes` returned.
        inputs: (samples, columns).
    """
    with torch.inference_mode():
        logarithms = trees(torch.from_numpy(np.ascontiguousarray(inputs, dtype=np.float32)))
    bound = np.log(MAX_FACTOR)
    return np.exp(np.clip(logarithms.numpy()[:, 0].astype(np.float64), -bound, bound))
