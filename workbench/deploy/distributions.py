"""How training data is distributed in the bins of a card, and how far live values are from that.

The measure is the population stability index, the sum over bins of (live - trained) ln(live /
trained). Missing values have their own bin.
"""

from __future__ import annotations

import bisect
import contextlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.deploy.card import Card, Input, Statistics
from workbench.deploy.feeds import feeds_of, is_missing
from workbench.foundation.errors import MissingDependencyError, install_command

NOTABLE = 0.2
"""From this index on, a shift is usually considered significant."""
_MIN_SHARE = 1e-4
_QUANTILE = 3.09
"""The 99.9 % quantile of the normal distribution. One in 1,000 checks shows drift by chance."""
_NUM_BINS = 10
_MAX_CATEGORIES = 50


def describe_samples(card: Card, samples: Mapping[str, Any]) -> dict[str, Statistics]:
    """Return the distribution of each input.

    Args:
        card: The card of the model.
        samples: Training samples as users have them, by input.
    """
    feeds = feeds_of(card, samples)[0]
    return {taken.name: _of_input(taken, feeds[taken.name]) for taken in card.inputs}


def _of_input(taken: Input, values: np.ndarray) -> Statistics:
    if taken.kind == "category":
        return of_texts(values.tolist())
    if taken.kind == "text":
        return of_numbers(np.array([num_words(text) or np.nan for text in values.tolist()]))
    return of_numbers(values.reshape(len(values), -1).mean(axis=1))


def of_numbers(values: np.ndarray) -> Statistics:
    """Return the distribution of numbers. Bins have equal shares unless there are ties."""
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
    """Return the distribution of texts. Empty ones are missing values, rare ones share a bin."""
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


def num_bins(statistics: Statistics) -> int:
    """Return the number of bins of known values. One more is for missing ones."""
    return len(statistics.shares)


def bin_of(statistics: Statistics, value: Any) -> int:
    """Return the bin of a value. Texts are binned by their number of words.

    The last bin is for missing values.

    Example:
        >>> ages = Statistics(edges=(2.0, 4.0), shares=(0.2, 0.5, 0.3))
        >>> [bin_of(ages, value) for value in (1.0, 2.0, 9.0, float("nan"))]
        [0, 1, 2, 3]
    """
    if is_missing(value) and value not in statistics.categories:
        return num_bins(statistics)
    if statistics.categories:
        try:
            return statistics.categories.index(value)
        except ValueError:
            return len(statistics.categories)
    return bisect.bisect_right(
        statistics.edges, num_words(value) if isinstance(value, str) else value
    )


def num_words(text: str) -> int:
    """Return the number of words of a text, by which texts are compared."""
    return len(text.split())


@dataclass(frozen=True)
class Drift:
    """How far live values are from the training data.

    Attributes:
        name: The column.
        index: The population stability index.
        limit: The index above which drift is notable and not due to chance.
        num_values: The number of live values.
        missing: The share of missing values among them.
    """

    name: str
    index: float
    limit: float
    num_values: int
    missing: float

    @property
    def has_drifted(self) -> bool:
        """Whether the shift is notable and more than chance."""
        return self.index > self.limit


def drift_of(
    name: str, statistics: Statistics, counts: Sequence[int], *, num_trained: int = 0
) -> Drift | None:
    """Compare live values with the training data.

    Args:
        name: The column.
        statistics: The distribution of the training data.
        counts: The number of live values in each bin, the missing ones last.
        num_trained: Number of samples that were trained on, or 0 if it is unknown.

    Returns:
        The drift, or None if there are no values.
    """
    total = sum(counts)
    if not total:
        return None
    known = 1 - statistics.missing
    trained = [*(share * known for share in statistics.shares), statistics.missing]
    used = [
        (expected, count)
        for expected, count in zip(trained, counts, strict=True)
        if expected or count
    ]
    index = 0.0
    for expected, count in used:
        # Half a value is added to each bin. An empty bin means little if there are few values, and
        # its logarithm would be infinite.
        before, now = max(expected, _MIN_SHARE), (count + 0.5) / (total + 0.5 * len(used))
        index += (now - before) * math.log(now / before)
    chance = _chi_squared(len(used) - 1) * (1 / total + (1 / num_trained if num_trained else 0.0))
    return Drift(name, max(index, 0.0), max(NOTABLE, chance), total, counts[-1] / total)


def _chi_squared(freedom: int) -> float:
    """Return the 99.9 % quantile of the chi-squared distribution (Wilson and Hilferty, 1931)."""
    if freedom < 1:
        return 0.0
    part = 2 / (9 * freedom)
    return freedom * (1 - part + _QUANTILE * math.sqrt(part)) ** 3


@contextlib.contextmanager
def needs(package: str, *, part: str = "deploy") -> Iterator[None]:
    """Raise an error with the install command if an import inside the `with` block fails.

    Args:
        package: The package that is imported.
        part: The extra of the workbench that has it.

    Raises:
        MissingDependencyError: If it is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"this needs {error.name or package}, which is not installed",
            next_step=f"Install it: {install_command(part)}",
        ) from error
