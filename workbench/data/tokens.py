"""Words as numbers: how texts are divided, numbered, and counted by terms."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from workbench.experiment.setting_types import TokenKind

PADDING = ""
"""The token of places after the end of a text, the first of the vocabulary."""
UNKNOWN = "<unknown>"
"""The token of words that training never saw, the second of the vocabulary."""
PART = "#"
"""The prefix of terms that are parts of words. No word has it."""
NUM_CHARACTERS_OF_PART = (2, 5)
_WORDS = re.compile(r"\w+|[^\w\s]")
_COUNTED_WORDS = re.compile(r"\b\w\w+\b")


def split_text(text: str, kind: TokenKind) -> list[str]:
    """Return the tokens of a text.

    Example:
        >>> split_text("It works!", "words")
        ['it', 'works', '!']
    """
    if kind == "spaces":
        return text.split()
    return _WORDS.findall(text.lower())


def learn_vocabulary(texts: Iterable[Sequence[str]], size: int) -> tuple[str, ...]:
    """Return padding, the unknown token, and the most frequent tokens of some texts.

    Args:
        texts: Texts as tokens.
        size: Largest number of entries, at least 2.
    """
    counts = Counter(token for text in texts for token in text)
    kept = sorted(counts, key=lambda token: (-counts[token], token))[: size - 2]
    return (PADDING, UNKNOWN, *kept)


def encode_texts(
    texts: Sequence[Sequence[str]], vocabulary: Sequence[str], context: int
) -> np.ndarray:
    """Return the numbers of tokens as int64 of shape (texts, context).

    Args:
        texts: Texts as tokens. Tokens beyond the context are dropped.
        vocabulary: As `learn_vocabulary` returns it.
        context: Tokens of each row. Padding follows a shorter text.
    """
    numbers = {token: number for number, token in enumerate(vocabulary)}
    rows = np.zeros((len(texts), context), dtype=np.int64)
    for row, text in zip(rows, texts, strict=True):
        ids = [numbers.get(token, 1) for token in text[:context]]  # 1 is the unknown token
        row[: len(ids)] = ids
    return rows


def terms_of(text: str) -> Iterator[str]:
    """Yield the words, pairs of words, and parts of words of a text, in small letters.

    These are the terms that scikit-learn's `TfidfVectorizer` counts by word and by `char_wb`, so
    that a model which was trained on its counts can be used without it.

    Example:
        >>> list(terms_of("Go"))
        ['go', '# g', '#go', '#o ', '# go', '#go ', '# go ']
    """
    words = words_of(text)
    yield from words
    yield from map(" ".join, pairwise(words))
    for word in text.lower().split():
        yield from parts_of_word(word)


def words_of(text: str) -> list[str]:
    """Return the words of a text that count, in small letters: those of two letters and more."""
    return _COUNTED_WORDS.findall(text.lower())


def parts_of_word(word: str) -> Iterator[str]:
    """Yield the parts of a word, each with a prefix that says so.

    Args:
        word: The word, in small letters.
    """
    shortest, longest = NUM_CHARACTERS_OF_PART
    padded = f" {word} "
    for size in range(shortest, min(longest, len(padded)) + 1):
        for first in range(len(padded) - size + 1):
            yield PART + padded[first : first + size]


def count_terms(texts: Sequence[str], places: Mapping[str, int]) -> np.ndarray:
    """Return how often terms occur in texts, as float32 of shape (texts, terms).

    Args:
        texts: The texts.
        places: The place of each term that `terms_of` yields. Other terms do not count.
    """
    counts = np.zeros((len(texts), len(places)), dtype=np.float32)
    for row, text in zip(counts, texts, strict=True):
        for term, count in Counter(terms_of(text)).items():
            if term in places:
                row[places[term]] = count
    return counts
