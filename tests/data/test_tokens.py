from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from workbench.data.tokens import PART, count_terms, terms_of

WORDS = TfidfVectorizer(ngram_range=(1, 2)).build_analyzer()
PARTS = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5)).build_analyzer()


@given(
    st.text(st.sampled_from(" \n\t\x1fabAB_9'-.éİßΣ中\u0301"), max_size=40) | st.text(max_size=30)
)
def test_terms_are_those_that_scikit_learn_counts(text: str) -> None:
    expected = Counter(WORDS(text)) + Counter(PART + part for part in PARTS(text))
    assert Counter(terms_of(text)) == expected


def test_terms_are_counted_in_the_order_given() -> None:
    counts = count_terms(["a cat, a cat", ""], {"cat": 0, "dog": 1, f"{PART}at": 2, "cat cat": 3})
    assert counts.tolist() == [[2, 0, 2, 1], [0, 0, 0, 0]]
    assert counts.dtype == np.float32
