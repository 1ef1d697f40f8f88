"""Words as numbers: how a text is divided, and which number each word has."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from workbench.experiment.setting_types import TokenKind

PADDING = ""
"""What the places after the end of a text hold: the first of the vocabulary."""
UNKNOWN = "<unknown>"
"""What a word that training never saw becomes: the second of the vocabulary."""
_WORDS = re.compile(r"\w+|[^\w\s]")


def split_text(text: str, kind: TokenKind) -> list[str]:
    """Return the tokens of a text.

    Example:
        >>> split_text("It works!", "words")
        ['it', 'works', '!']
    """
    return text.split() if kind == "spaces" else _WORDS.findall(text.lower())


def learn_vocabulary(texts: Iterable[Sequence[str]], size: int) -> tuple[str, ...]:
    """Return padding, the unknown token, and the most frequent tokens of some texts.

    Args:
        texts: Texts as tokens.
        size: Largest number of entries, at least 2.
    """
    counts = Counter(token for text in texts for token in text)
    kept = sorted(counts, key=lambda token: (-counts[token], token))[: size - 2]
    return (PADDING, UNKNOWN, *kept)


def encode_texts(texts: Sequence[Sequence[str]], vocabulary: Sequence[str], context: int) -> np.ndarray:
    """Return the numbers of tokens as int64 of shape (texts, context).

    Args:
        texts: Texts as tokens; what exceeds the context is left out.
        vocabulary: As `learn_vocabulary` returns it.
        context: Tokens of each row; a shorter text is followed by padding.
    """
    numbers = {token: number for number, token in enumerate(vocabulary)}
    found = np.zeros((len(texts), context), dtype=np.int64)
    for row, text in enumerate(texts):
        ids = [numbers.get(token, 1) for token in text[:context]]
        found[row, : len(ids)] = ids
    return found
