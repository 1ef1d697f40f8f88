"""Columns of sentences in a table as a few numbers.

Words, pairs of words and parts of words are counted and weighted (TF-IDF). The thousands of weights
become a few numbers: the directions in which texts differ most, and what a linear model predicts
from the weights. A train row gets the prediction of a model that did not learn from its text.

Source: the directions are those of Deerwester et al., Indexing by Latent Semantic Analysis (1990).
The predictions are those of stacked generalization, Wolpert (1992).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from workbench.data.number_texts import MISSING_TEXTS
from workbench.data.plain_frames import column_of
from workbench.data.splits import divisor
from workbench.data.tokens import PART, parts_of_word, words_of
from workbench.foundation.text_tables import absent_columns

if TYPE_CHECKING:
    import pandas as pd
    from scipy.sparse import csr_matrix

MAX_WORDS, MAX_WORD_PARTS = 3_000, 2_000
_MAX_DIRECTIONS, _ROWS_PER_DIRECTION = 20, 100
# A term of a single row tells nothing about others.
_MIN_ROWS_OF_A_TERM = 2
_NUM_PARTS = 5
_RIDGE, _MAX_STEPS = 1.0, 30
# Directions in which texts differ are known from so many of them.
_MAX_ROWS_OF_DIRECTIONS = 4_000
# By how many standard errors predictions from texts alone must follow the targets. Models that
# share rows make errors together, so chance reaches 3. Texts that tell nothing make models worse.
_MIN_ERRORS = 5.0


@dataclass(frozen=True)
class TermWeights:
    """Terms of texts and their weights.

    Attributes:
        terms: The terms, as `workbench.data.tokens.terms_of` yields them.
        weights: How much each counts: the rarer, the more.
    """

    terms: tuple[str, ...]
    weights: np.ndarray

    @cached_property
    def places(self) -> dict[str, int]:
        """The place of each term."""
        return {term: place for place, term in enumerate(self.terms)}


@dataclass(frozen=True, eq=False)
class TableTexts:
    """The learnt encoding of all columns of sentences of a table.

    Attributes:
        names: The columns. The texts of a row are joined.
        blocks: Words and pairs of words, then parts of words. A row of each block has length 1.
        projection: The numbers of a term, (terms, width).
        offset: Added to the sum of the numbers of all terms of a row.
        fitted: What the last numbers of the train rows are, (rows, targets), or None if no targets
            were known.
    """

    names: tuple[str, ...]
    blocks: tuple[TermWeights, ...] = field(repr=False)
    projection: np.ndarray = field(repr=False)
    offset: np.ndarray = field(repr=False)
    fitted: np.ndarray | None = field(default=None, repr=False)

    @property
    def width(self) -> int:
        """The number of encoded numbers per row."""
        return self.projection.shape[1]

    def encode(self, joined: Iterable[str]) -> np.ndarray:
        """Return rows as (rows, width) numbers.

        Args:
            joined: The texts of each row, as `joined_texts` returns them.
        """
        texts = tuple(joined)
        known = _LAST.get(self)
        if known is None or known[0] != texts:
            weighted = _weighted(texts, self.blocks)
            # Columns are shuffled one at a time, so the same texts often come again.
            known = _LAST[self] = texts, weighted @ self.projection + self.offset
        return known[1].copy()

    def encode_train(self, joined: Iterable[str]) -> np.ndarray:
        """Return the train rows as numbers that do not show a row its own target.

        Args:
            joined: The texts of the rows that the encoding was learnt from.
        """
        encoded = self.encode(joined)
        if self.fitted is not None:
            encoded[:, -self.fitted.shape[1] :] = self.fitted
        return encoded


_LAST: WeakKeyDictionary[TableTexts, tuple[tuple[str, ...], np.ndarray]] = WeakKeyDictionary()


def joined_texts(table: pd.DataFrame, names: Sequence[str]) -> np.ndarray:
    """Return the texts of some columns, those of one row joined by line breaks.

    Missing ones are empty.

    Args:
        table: The table.
        names: The columns.

    Raises:
        DataError: If the table does not have one of them.
    """
    missing = [name for name in names if name not in table.columns]
    if missing:
        raise absent_columns(missing, names)
    columns = [column_of(table, name) for name in names]
    texts = [column.astype(object).where(column.notna(), "").astype(str) for column in columns]
    known = [["" if text in MISSING_TEXTS else text for text in column] for column in texts]
    return np.array(["\n".join(row).strip() for row in zip(*known, strict=True)], dtype=object)


def learn_table_texts(
    table: pd.DataFrame, names: Sequence[str], targets: np.ndarray | None
) -> TableTexts | None:
    """Learn columns of sentences from the train rows and their targets.

    Args:
        table: The train rows.
        names: The columns.
        targets: Their targets, as `category_targets.target_numbers` returns them, or None.

    Returns:
        The encoding. None if texts have no term in common, or tell nothing about the targets.
    """
    from sklearn.utils.extmath import randomized_svd

    texts = tuple(joined_texts(table, names))
    blocks = tuple(_learn_blocks(texts))
    if not blocks:
        return None
    weighted: Any = _weighted(texts, blocks)
    fitted = None
    coefficients = np.empty((weighted.shape[1], 0))
    if targets is not None:
        fitted = _cross_fitted(weighted, texts, targets)
        if not _follows(fitted, targets):
            return None
        coefficients = _linear_model(weighted, targets)[0]
    most = min(_MAX_DIRECTIONS, len(texts) // _ROWS_PER_DIRECTION)
    num_directions = min(most, min(weighted.shape) - 1)
    directions = np.empty((weighted.shape[1], 0))
    if num_directions > 0:
        some = weighted[:: -(-len(texts) // _MAX_ROWS_OF_DIRECTIONS)]
        svd: Any = randomized_svd
        directions = svd(some, num_directions, n_iter=2, random_state=0)[2].T
    projection = np.concatenate([directions, coefficients], axis=1)
    if not projection.shape[1]:
        return None
    numbers = weighted @ projection
    mean = numbers.mean(axis=0)
    scale = divisor(mean, numbers.std(axis=0))
    if fitted is not None and targets is not None:
        num_fitted = fitted.shape[1]
        # New rows are encoded with the model of all train rows, without its intercept.
        intercept = targets.mean(axis=0) - mean[-num_fitted:]
        scale[-num_fitted:] = divisor(fitted.mean(axis=0), fitted.std(axis=0))
        mean[-num_fitted:] = fitted.mean(axis=0) - intercept
        fitted = (fitted - fitted.mean(axis=0)) / scale[-num_fitted:]
    return TableTexts(tuple(names), blocks, projection / scale, -mean / scale, fitted)


def _learn_blocks(texts: Sequence[str]) -> Iterator[TermWeights]:
    """Yield the most frequent terms of each block with their weights."""
    for counts, terms, most in (
        (*_word_counts(texts), MAX_WORDS),
        (*_part_counts(texts), MAX_WORD_PARTS),
    ):
        num_rows = np.bincount(counts.indices, minlength=len(terms))
        frequent = [place for place in range(len(terms)) if num_rows[place] >= _MIN_ROWS_OF_A_TERM]
        # Ties are broken by the term, so that the order of the rows does not change the encoding.
        frequent.sort(key=lambda place: (-num_rows[place], terms[place]))
        kept = np.array(frequent[:most], dtype=np.int64)
        if len(kept):
            weights = np.log((1 + len(texts)) / (1 + num_rows[kept])) + 1
            yield TermWeights(tuple(terms[place] for place in kept), weights)


def _weighted(texts: Sequence[str], blocks: Sequence[TermWeights]) -> csr_matrix:
    """Return the weights of the terms of texts.

    Source: the formula of scikit-learn's `TfidfVectorizer` with `sublinear_tf`.
    """
    from scipy import sparse

    parts = []
    for block in blocks:
        counted = _part_counts if block.terms[0].startswith(PART) else _word_counts
        counts, _ = counted(texts, block.places)
        counts.data = (1 + np.log(counts.data)) * block.weights[counts.indices]
        lengths = np.sqrt(np.asarray(counts.multiply(counts).sum(axis=1)).ravel())
        parts.append(sparse.diags(1 / np.maximum(lengths, 1e-300)) @ counts)
    return sparse.csr_matrix(sparse.hstack(parts))


def _word_counts(
    texts: Iterable[str], known: Mapping[str, int] | None = None
) -> tuple[csr_matrix, list[str]]:
    """Count the words and pairs of words of each text."""
    return _counts((_words_and_pairs(text) for text in texts), known)


def _words_and_pairs(text: str) -> list[str]:
    words = words_of(text)
    return words + [" ".join(pair) for pair in pairwise(words)]


def _part_counts(
    texts: Iterable[str], known: Mapping[str, int] | None = None
) -> tuple[csr_matrix, list[str]]:
    """Count the parts of words of each text. Each different word is divided once."""
    of_texts, words = _counts(text.lower().split() for text in texts)
    of_words, parts = _counts((parts_of_word(word) for word in words), known)
    counts: Any = of_texts @ of_words
    counts.sort_indices()
    return counts, parts


def _counts(
    rows: Iterable[Iterable[str]], known: Mapping[str, int] | None = None
) -> tuple[csr_matrix, list[str]]:
    """Count terms. Return the counts, (rows, terms), and the terms.

    Args:
        rows: The terms of each row.
        known: The place of each term that counts, or None if all do.
    """
    from scipy import sparse

    places: dict[str, int] = {}
    known_places = places if known is None else known
    starts, columns, counts = [0], [], []
    for row in rows:
        for term, count in Counter(row).items():
            if known is None:
                columns.append(places.setdefault(term, len(places)))
            elif term in known:
                columns.append(known[term])
            else:
                continue
            counts.append(count)
        starts.append(len(columns))
    shape = len(starts) - 1, len(known_places)
    matrix = sparse.csr_matrix((np.array(counts, dtype=np.float64), columns, starts), shape)
    return matrix, list(known_places)


def _cross_fitted(weighted: csr_matrix, texts: Sequence[str], targets: np.ndarray) -> np.ndarray:
    """Return what linear models predict for each row that did not learn from its text."""
    places = {text: place for place, text in enumerate(sorted(set(texts)))}
    order = np.random.default_rng(len(places)).permutation(len(places)) % _NUM_PARTS
    part = order[[places[text] for text in texts]]
    fitted = np.tile(targets.mean(axis=0), (len(texts), 1))
    for number in range(_NUM_PARTS):
        chosen, others = part == number, part != number
        if chosen.any() and others.any():
            coefficients, intercept = _linear_model(weighted[others], targets[others])
            fitted[chosen] = weighted[chosen] @ coefficients + intercept
    return fitted


def _linear_model(weighted: csr_matrix, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the coefficients of a ridge regression, (terms, targets), and its intercepts."""
    from sklearn.linear_model import Ridge

    mean = targets.mean(axis=0)
    model = Ridge(alpha=_RIDGE, solver="sparse_cg", tol=1e-3, max_iter=_MAX_STEPS)
    model.fit(weighted, targets - mean)
    coefficients: Any = np.atleast_2d(model.coef_).T
    return coefficients, np.atleast_1d(model.intercept_) + mean


def _follows(fitted: np.ndarray, targets: np.ndarray) -> bool:
    """Return whether predictions for rows that were not learnt from follow any of the targets."""
    centred, wanted = fitted - fitted.mean(axis=0), targets - targets.mean(axis=0)
    products = (centred * wanted).sum(axis=0)
    lengths = np.sqrt((centred**2).sum(axis=0) * (wanted**2).sum(axis=0))
    correlations = products / np.maximum(lengths, 1e-300)
    return bool((correlations * np.sqrt(len(targets)) > _MIN_ERRORS).any())
