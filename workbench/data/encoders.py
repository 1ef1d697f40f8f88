"""Raw samples as numbers: tables, images and texts, encoded with statistics of their train part.

An encoder is learnt once, from train samples alone. Then it encodes validation samples, test
samples, and new samples to predict. The caller splits the data, and `workbench.models` has the
models.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from workbench.data.category_pairs import MANY_CATEGORIES, CategoryPair, learn_pairs
from workbench.data.column_encoding import (
    Column,
    ReadColumns,
    TextForm,
    is_category,
    learn_categories,
    learn_column,
)
from workbench.data.plain_frames import column_of
from workbench.data.splits import divisor
from workbench.data.table_texts import TableTexts, joined_texts, learn_table_texts
from workbench.data.tokens import NUM_CHARACTERS_OF_PART, PART
from workbench.foundation.errors import DataError
from workbench.foundation.text_tables import absent_columns

if TYPE_CHECKING:
    import pandas as pd

SampleKind = Literal["table", "images", "texts"]

MAX_CATEGORIES = MANY_CATEGORIES
MAX_WORDS, MAX_WORD_PARTS = 3000, 3000


class Encoder(Protocol):
    """Turns raw samples into what a model takes."""

    def encode(self, samples: Any) -> np.ndarray:
        """Return samples as float32, the sample first.

        Args:
            samples: Samples of the kind that the encoder was learnt from.

        Raises:
            DataError: If they are of another kind or shape.
        """
        ...


@dataclass(frozen=True)
class TableEncoder:
    """A table: numbers and times are standardised, categories get columns, gaps are marked.

    Attributes:
        columns: How each column is encoded, in the order of the features.
        pairs: Columns that are also encoded together. Their features come next.
        texts: How the columns of sentences are encoded, or None if they tell nothing. Their
            features come last.
    """

    columns: tuple[Column, ...] = field(repr=False)
    pairs: tuple[CategoryPair, ...] = field(default=(), repr=False)
    texts: TableTexts | None = field(default=None, repr=False)

    @property
    def widths(self) -> list[int]:
        """The number of features of each column, pair of columns, and of all texts, in order."""
        texts = [] if self.texts is None else [self.texts]
        return [part.width for part in (*self.columns, *self.pairs, *texts)]

    @property
    def shows_few_rows(self) -> bool:
        """Whether some features tell the targets of a few rows, such as those of one shop."""
        has_many = any(
            column.target_scales and column.width < len(column.ranks) for column in self.columns
        )
        return has_many or bool(self.pairs) or self.texts is not None

    @property
    def pair_features(self) -> slice:
        """The places of the features of pairs."""
        first = sum(column.width for column in self.columns)
        return slice(first, first + sum(pair.width for pair in self.pairs))

    def encode(self, samples: pd.DataFrame) -> np.ndarray:
        """Return rows as (rows, features). Columns that were not learnt are ignored."""
        return self.encode_read(ReadColumns(samples))

    def encode_read(self, samples: ReadColumns) -> np.ndarray:
        """Return rows as `encode` does. Other encoders may have read them as well."""
        names = [column.name for column in self.columns]
        names += self.texts.names if self.texts is not None else ()
        if missing := samples.absent(names):
            raise absent_columns(missing, names)
        parts = [column.encoded(samples.numbers(column)) for column in self.columns]
        if self.pairs:
            values = samples.series(self.columns)
            parts += [pair.encode(values) for pair in self.pairs]
        if self.texts is not None:
            parts.append(self.texts.encode(samples.texts(self.texts.names)))
        return np.concatenate(parts, axis=1).astype(np.float32)

    def encode_train(self, samples: pd.DataFrame, targets: np.ndarray | None) -> np.ndarray:
        """Return the rows that the encoder was learnt from, without showing a row its own target.

        Args:
            samples: The rows.
            targets: Their targets, as they were given to `learn_encoder`.
        """
        values = self._values(samples)
        parts = [column.encode_train(values[column.name], targets) for column in self.columns]
        parts += [pair.encode_train(values, targets) for pair in self.pairs]
        if self.texts is not None:
            parts.append(self.texts.encode_train(joined_texts(samples, self.texts.names)))
        return np.concatenate(parts, axis=1).astype(np.float32)

    def _values(self, samples: pd.DataFrame) -> dict[str, pd.Series]:
        known = {str(name): name for name in samples.columns}
        return {column.name: column_of(samples, known[column.name]) for column in self.columns}


@dataclass(frozen=True)
class ImageEncoder:
    """Images of one shape, (height, width) or (height, width, channels).

    Standardised, channels first.
    """

    shape: tuple[int, ...]
    mean: np.ndarray = field(repr=False)
    scale: np.ndarray = field(repr=False)

    def encode(self, samples: np.ndarray) -> np.ndarray:
        """Return images as (images, channels, height, width)."""
        if samples.shape[1:] != self.shape:
            raise DataError(
                f"images of shape {samples.shape[1:]} were given",
                allowed=f"the trained shape {self.shape}",
            )
        return ((_channels_first(samples) - self.mean) / self.scale).astype(np.float32)


@dataclass(frozen=True)
class TextEncoder:
    """Texts as weighted counts of words, pairs of words and parts of words (TF-IDF)."""

    words: Any = field(repr=False)
    word_parts: Any = field(repr=False)

    def encode(self, samples: Sequence[str]) -> np.ndarray:
        """Return texts as (texts, features)."""
        texts = [str(text) for text in samples]
        learnt = [part for part in (self.words, self.word_parts) if part is not None]
        counts = [part.transform(texts).toarray() for part in learnt]
        return np.concatenate(counts, axis=1).astype(np.float32) * self.factor

    @property
    def factor(self) -> np.float32:
        """The factor of all features.

        Rows have unit length, so a single feature is small, but networks learn fastest from
        numbers around 1.
        """
        return np.float32(np.sqrt(sum(len(terms) for terms, _ in self.weights())) / 2)

    def weights(self) -> Iterator[tuple[list[str], np.ndarray]]:
        """Yield terms and their weights in the order of the features: words, then parts of words.

        Terms are as `workbench.data.tokens.terms_of` yields them.
        """
        for learnt, begin in ((self.words, ""), (self.word_parts, PART)):
            if learnt is not None:
                yield [begin + term for term in learnt.get_feature_names_out()], learnt.idf_


def learn_encoder(
    kind: SampleKind,
    train: Any,
    *,
    text_forms: Mapping[str, TextForm] | None = None,
    targets: np.ndarray | None = None,
    text_columns: Sequence[str] = (),
    has_pairs: bool = True,
) -> Encoder:
    """Learn how to encode samples from the train part.

    Args:
        kind: The kind of the samples.
        train: The train part alone: a DataFrame, an array of images, or texts.
        text_forms: How columns write dates or numbers as text, by name.
        targets: Targets of the train part, as `category_targets.target_numbers` returns them. With
            them, categories of a table are also encoded by their mean target.
        text_columns: The columns of a table that hold sentences.
        has_pairs: Whether columns of a table may also be encoded in pairs. It needs targets.

    Raises:
        DataError: If nothing can be learnt from it.
    """
    if kind == "table":
        forms = text_forms or {}
        columns = [
            _learn(column_of(train, name), forms.get(str(name)), targets)
            for name in train
            if name not in text_columns
        ]
        # A constant column carries no information.
        kept = tuple(
            column for column in columns if not _is_constant(column, column_of(train, column.name))
        )
        texts = learn_table_texts(train, text_columns, targets) if text_columns else None
        if not kept and texts is None:
            raise DataError(
                "every column is constant or empty", next_step="Add columns that differ."
            )
        pairs = ()
        if targets is not None and has_pairs:
            values = {column.name: column_of(train, column.name) for column in kept}
            pairs = learn_pairs(kept, values, targets)
        return TableEncoder(kept, pairs, texts)
    if kind == "images":
        pixels = _channels_first(train)
        mean = pixels.mean(axis=(0, 2, 3), dtype=np.float64)
        scale = divisor(mean, pixels.std(axis=(0, 2, 3), dtype=np.float64))
        return ImageEncoder(train.shape[1:], mean[:, None, None], scale[:, None, None])
    return _learn_texts(train)


def _learn(values: pd.Series, form: TextForm | None, targets: np.ndarray | None) -> Column:
    if targets is not None and is_category(values, form):
        return learn_categories(values, targets, max_categories=MAX_CATEGORIES)
    return learn_column(values, max_categories=MAX_CATEGORIES, form=form)


def encode_all(encoders: Sequence[Encoder], samples: Any) -> list[np.ndarray]:
    """Return samples as each encoder returns them. A column of a table is read only once.

    Args:
        encoders: Encoders of one kind of samples.
        samples: The samples.

    Raises:
        DataError: As `encode`.
    """
    if len(encoders) < 2 or not all(isinstance(encoder, TableEncoder) for encoder in encoders):
        return [encoder.encode(samples) for encoder in encoders]
    read = ReadColumns(samples)
    return [encoder.encode_read(read) for encoder in encoders if isinstance(encoder, TableEncoder)]


def encode_train(encoder: Encoder, train: Any, targets: np.ndarray | None) -> np.ndarray:
    """Return the train part as models learn from it.

    Args:
        encoder: What was learnt from it.
        train: The train part.
        targets: Its targets, as they were given to `learn_encoder`.
    """
    if isinstance(encoder, TableEncoder):
        return encoder.encode_train(train, targets)
    return encoder.encode(train)


def _is_constant(column: Column, values: pd.Series) -> bool:
    return values.nunique(dropna=False) <= 1


def _channels_first(images: np.ndarray) -> np.ndarray:
    values = np.asarray(images, dtype=np.float64)
    if values.ndim == 3:
        return values[:, None]
    return np.moveaxis(values, -1, 1)


def _learn_texts(train: Sequence[str]) -> TextEncoder:
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = [str(text) for text in train]
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, max_features=MAX_WORDS)
    parts = TfidfVectorizer(
        analyzer="char_wb",
        ngram_range=NUM_CHARACTERS_OF_PART,
        sublinear_tf=True,
        max_features=MAX_WORD_PARTS,
    )
    learnt = []
    for vectorizer in (words, parts):
        try:
            learnt.append(vectorizer.fit(texts))
        except ValueError:  # no text contains a word of two letters
            learnt.append(None)
    if learnt == [None, None]:
        raise DataError("the texts are empty", next_step="Check the column that holds them.")
    return TextEncoder(*learnt)
