"""Columns of sentences become a few numbers, which tell what their words tell about a target."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from workbench.data.encoders import TableEncoder, encode_train, learn_encoder
from workbench.data.table_texts import joined_texts, learn_table_texts
from workbench.data.tokens import NUM_CHARACTERS_OF_PART
from workbench.foundation.errors import DataError

WORDS = ["Straße", "garden", "kitchen", "Süd", "old", "quiet", "noisy", "roof", "lake", "wall"]
NUM_ROWS = 300


def homes(num_rows: int = NUM_ROWS, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Return homes with a text, and prices that depend on two of its words."""
    random = np.random.default_rng(seed)
    chosen = random.random((num_rows, len(WORDS))) < 0.4
    chosen[:, 0] = True
    texts = [
        " ".join(word for word, is_in in zip(WORDS, row, strict=True) if is_in) for row in chosen
    ]
    size = random.normal(size=num_rows)
    targets = size + 2.0 * chosen[:, 8] - 2.0 * chosen[:, 6] + 0.3 * random.normal(size=num_rows)
    return pd.DataFrame({"size": size, "text": texts}), targets[:, None]


def test_the_weights_of_terms_are_those_of_scikit_learn() -> None:
    table, targets = homes(60)
    learnt = learn_table_texts(table, ["text"], targets)
    assert learnt is not None
    for block, options in zip(
        learnt.blocks,
        (
            {"ngram_range": (1, 2)},
            {"analyzer": "char_wb", "ngram_range": NUM_CHARACTERS_OF_PART},
        ),
        strict=True,
    ):
        vectorizer = TfidfVectorizer(min_df=2, **options).fit(table["text"])
        wanted = dict(zip(vectorizer.get_feature_names_out(), vectorizer.idf_, strict=True))
        weights = {
            term.removeprefix("#"): weight
            for term, weight in zip(block.terms, block.weights, strict=True)
        }
        assert weights == pytest.approx({term: wanted[term] for term in weights})
        assert len(weights) == min(len(wanted), 3_000 if "analyzer" not in options else 2_000)


def test_the_last_number_follows_the_target_on_new_rows_and_train_rows_do_not_see_theirs() -> None:
    table, targets = homes()
    encoder = learn_encoder("table", table, targets=targets, text_columns=["text"])
    assert isinstance(encoder, TableEncoder)
    train = encode_train(encoder, table, targets)
    new, wanted = homes(seed=1)
    encoded = encoder.encode(new)
    assert encoded.shape[1] == train.shape[1] == 1 + 3 + 1
    assert np.corrcoef(encoded[:, -1], wanted[:, 0])[0, 1] > 0.7
    on_train = np.corrcoef(train[:, -1], targets[:, 0])[0, 1]
    assert on_train == pytest.approx(np.corrcoef(encoded[:, -1], wanted[:, 0])[0, 1], abs=0.1)
    np.testing.assert_allclose(encoded[:, -1].mean(), 0.0, atol=0.3)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(encoder)).encode(new), encoded)
    again = learn_encoder("table", table, targets=targets, text_columns=["text"])
    np.testing.assert_array_equal(again.encode(new), encoded)


def test_texts_that_tell_nothing_become_no_numbers() -> None:
    table, targets = homes()
    random = np.random.default_rng(3)
    table["text"] = table["text"].to_numpy()[random.permutation(NUM_ROWS)]
    encoder = learn_encoder("table", table, targets=targets, text_columns=["text"])
    assert isinstance(encoder, TableEncoder)
    assert encoder.texts is None
    assert encoder.encode(table[["size"]]).shape == (NUM_ROWS, 1)


@pytest.mark.parametrize("text", ["", "a quiet lake", None])
def test_a_text_that_is_the_same_in_all_rows_of_a_fold_becomes_no_numbers(text: str | None) -> None:
    table, targets = homes()
    encoder = learn_encoder(
        "table", table.assign(text=text), targets=targets, text_columns=["text"]
    )
    assert isinstance(encoder, TableEncoder)
    assert encoder.texts is None


def test_copies_of_a_text_are_predicted_by_others() -> None:
    table, _ = homes(100)
    copies = pd.concat([table, table], ignore_index=True)
    random = np.random.default_rng(0).normal(size=100)
    targets = np.concatenate([random, random])[:, None]
    assert learn_table_texts(copies, ["text"], targets) is None


def test_missing_texts_are_empty_and_columns_are_read_by_their_names() -> None:
    table = pd.DataFrame({"a": ["x y", None, "NA"], "b": [np.nan, "z", "w"], "c": 1})
    assert joined_texts(table, ["a", "b"]).tolist() == ["x y", "z", "w"]
    with pytest.raises(DataError, match="no column 'd'; needed: a, d"):
        joined_texts(table, ["a", "d"])
    known, targets = homes()
    encoder = learn_encoder("table", known, targets=targets, text_columns=["text"])
    with pytest.raises(DataError, match="no column 'text'; needed: size, text"):
        encoder.encode(known[["size"]])
    strange = pd.DataFrame({"size": [0.0] * 3, "text": [None, "", "Ünknown wörds only"]})
    assert np.isfinite(encoder.encode(strange)).all()
    capital = known.assign(text=known["text"].str.upper().str.replace("SS", "ß"))
    np.testing.assert_allclose(encoder.encode(capital), encoder.encode(known))


def test_texts_alone_are_enough_in_a_fold_whose_other_columns_are_constant() -> None:
    table, targets = homes()
    encoder = learn_encoder("table", table.assign(size=1.0), targets=targets, text_columns=["text"])
    assert encoder.encode(table).shape == (NUM_ROWS, 4)
