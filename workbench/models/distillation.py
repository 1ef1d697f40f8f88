"""Teaches a few trees what a larger model answers, so that rows are predicted faster.

The trees also learn from made-up rows, in which columns come from a similar row, and numbers lie
between both. The larger model is too sure of the rows that it has learned from itself.

Source: Buciluă, Caruana and Niculescu-Mizil, Model Compression (2006), for the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from workbench.models.trees import TreeEnsemble, of_boosted_numbers, side_by_side

_NUM_TREES, _SHRINKAGE, _MAX_LEAVES, _MIN_SAMPLES_LEAF = 200, 0.1, 8, 10
# The time to grow all trees of an answer, for each row.
_ROW_S = 1e-4
_MOST_TAUGHT = 50_000
# How many rows are made up for each row of the user, at most.
_NUM_MADE_UP = 4
# A similar row is looked for among so many rows.
_MOST_COMPARED = 5_000
_SWAPPED = 0.5
_LEAST_PROBABILITY = 1e-4


def distilled(
    inputs: np.ndarray,
    answers: Callable[[np.ndarray], np.ndarray],
    *,
    widths: Sequence[int],
    are_probabilities: bool,
    most_rows: int,
    seed: int,
) -> TreeEnsemble:
    """Return trees that answer like a larger model.

    Args:
        inputs: Encoded rows that the larger model has learned from, (rows, features).
        answers: Returns its answers to encoded rows: (rows, classes) probabilities, or (rows,
            numbers) in the scale of the targets that models learn.
        widths: The number of features of each column of the table. They sum to all features.
        are_probabilities: Whether the answers are probabilities. The trees then return scores.
        most_rows: How many rows are taught at most, made-up ones among them.
        seed: Seed of everything random.

    Returns:
        The trees, for each number or score.
    """
    rows = rows_to_teach(inputs, widths, most_rows, seed)
    taught = answers(rows)
    if are_probabilities:
        logarithms = np.log(np.maximum(taught, _LEAST_PROBABILITY))
        taught = logarithms - logarithms[:, :1]
    return side_by_side([_fitted(rows, column, seed) for column in taught.T])


def most_rows_in(time_s: float, num_outputs: int) -> int:
    """Return how many rows can be taught in some time on one core.

    Args:
        time_s: The time in seconds.
        num_outputs: The number of answers to a row.
    """
    return int(min(_MOST_TAUGHT, max(0.0, time_s) / (_ROW_S * num_outputs)))


def rows_to_teach(
    inputs: np.ndarray, widths: Sequence[int], most_rows: int, seed: int
) -> np.ndarray:
    """Return rows and made-up ones that are like them.

    Args:
        inputs: Encoded rows, (rows, features).
        widths: The number of features of each column of the table. They sum to all features.
        most_rows: How many rows there are at most.
        seed: Seed of everything random.
    """
    random = np.random.default_rng(seed)
    own = inputs
    if len(own) > most_rows:
        own = own[random.choice(len(own), most_rows, replace=False)]
    similar = own[_similar(own, random)]
    column = np.repeat(np.arange(len(widths)), widths)
    is_number = np.array(widths) == 1
    parts = [own]
    for _ in range(min(_NUM_MADE_UP, most_rows // len(own) - 1)):
        swapped = random.random((len(own), len(widths))) < _SWAPPED
        part = np.where(is_number, random.random((len(own), len(widths))), 1.0)
        between = own + part[:, column] * (similar - own)
        parts.append(np.where(swapped[:, column], between, own))
    return np.concatenate(parts).astype(np.float32)


def _similar(rows: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return the place of a row that is similar to each row, which is another one if there is."""
    from sklearn.neighbors import NearestNeighbors

    among = random.permutation(len(rows))[:_MOST_COMPARED]
    known = np.nan_to_num(rows[among])
    search = NearestNeighbors(n_neighbors=min(2, len(among)), algorithm="brute").fit(known)
    nearest = among[search.kneighbors(np.nan_to_num(rows), return_distance=False)]
    is_itself = nearest[:, 0] == np.arange(len(rows))
    return np.where(is_itself, nearest[:, -1], nearest[:, 0])


def _fitted(inputs: np.ndarray, targets: np.ndarray, seed: int) -> TreeEnsemble:
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    grown = HistGradientBoostingRegressor(
        max_iter=_NUM_TREES if np.ptp(targets) > 0.0 else 1,
        learning_rate=_SHRINKAGE,
        max_leaf_nodes=_MAX_LEAVES,
        min_samples_leaf=_MIN_SAMPLES_LEAF,
        early_stopping=False,  # pyright: ignore[reportArgumentType]
        random_state=seed,
    )
    with threadpool_limits(limits=1):
        return of_boosted_numbers(grown.fit(inputs, targets))
