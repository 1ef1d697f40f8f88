"""The distribution of the training data of an exported model.

The bins that drift is measured in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from workbench.deploy.card import Card, Input, Statistics
from workbench.deploy.distributions import num_words
from workbench.deploy.feeds import feeds_of

_NUM_BINS = 10
_MAX_CATEGORIES = 50


def describe_samples(card: Card, samples: Mapping[str, Any]) -> dict[str, Statistics]:
    """Return the distribution of each input.

    Args:
        card: The card of the model.
        samples: Training samples as users have them, by input.
    """
    feeds = feeds_of(card, samples)[0]
    return {one.name: _of_input(one, feeds[one.name]) for one in card.inputs}


def _of_input(one: Input, values: np.ndarray) -> Statistics:
    if one.kind == "category":
        return of_texts(values.tolist())
    if one.kind == "text":
        return of_numbers(np.array([num_words(text) or np.nan for text in values.tolist()]))
    return of_numbers(values.reshape(len(values), -1).mean(axis=1))


def of_numbers(values: np.ndarray) -> Statistics:
    """Return the distribution of numbers, in bins with equal shares where there are no ties."""
    missing = np.isnan(values)
    known = values[~missing].astype(np.float64)
    if not len(known):
        return Statistics(missing=1.0)
    edges = np.unique(np.quantile(known, np.linspace(0.0, 1.0, _NUM_BINS + 1)[1:-1]))
    counts = np.bincount(np.searchsorted(edges, known, side="right"), minlength=len(edges) + 1)
    return Statistics(
        edges=tuple(map(float, edges)),
        shares=tuple(map(float, counts / len(known))),
        missing=float(missing.mean()),
    )


def of_texts(texts: list[str]) -> Statistics:
    """Return the distribution of texts, an empty one being a missing value.

    Rare ones share the last bin.
    """
    counts = Counter(text for text in texts if text)
    total = sum(counts.values())
    if not total:
        return Statistics(missing=1.0)
    kept = counts.most_common(_MAX_CATEGORIES)
    shares = [count / total for _, count in kept]
    return Statistics(
        categories=tuple(text for text, _ in kept),
        shares=(*shares, max(0.0, 1.0 - sum(shares))),
        missing=1.0 - total / len(texts),
    )
