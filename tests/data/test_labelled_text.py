from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.language_models import write_tokenizer
from workbench.data import check_options, load
from workbench.data.chat_tokens import load_tokenizer
from workbench.data.labelled_text import TextPairsOptions
from workbench.data.tokens import encode_texts, learn_vocabulary, split_text
from workbench.foundation.errors import DataError, ExperimentError


def test_words_and_signs_are_tokens_in_small_letters():
    assert split_text("It's 3 o'clock!", "words") == ["it", "'", "s", "3", "o", "'", "clock", "!"]
    assert split_text("It's 3 o'clock!", "spaces") == ["It's", "3", "o'clock!"]


@given(
    st.lists(st.lists(st.sampled_from("abcdef"), max_size=9), min_size=1),
    st.integers(3, 9),
    st.integers(1, 6),
)
def test_known_tokens_have_their_number_and_all_rows_the_length_of_the_context(
    texts, size, context
):
    vocabulary = learn_vocabulary(texts, size)
    encoded = encode_texts(texts, vocabulary, context)
    assert encoded.shape == (len(texts), context)
    assert len(vocabulary) <= size
    for row, text in zip(encoded, texts, strict=True):
        kept = text[:context]
        expected = [vocabulary.index(token) if token in vocabulary else 1 for token in kept]
        assert row.tolist() == expected + [0] * (context - len(kept))


def test_the_vocabulary_comes_from_train_alone(tmp_path):
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "review": [f"word{number} {random.choice(['good', 'bad'])}" for number in range(200)],
            "stars": random.choice(["one", "five"], 200),
        }
    )
    frame.to_csv(tmp_path / "reviews.csv", index=False)
    data = load(
        "labelled_text",
        {"path": str(tmp_path / "reviews.csv"), "text": "review", "target": "stars", "context": 4},
    )
    train, validation = (
        split.batch(np.arange(len(split)))[0] for split in (data.train, data.validation)
    )
    assert data.class_names == ("five", "one")
    assert data.vocabulary_size == len(data.token_names)
    assert 1 not in train
    assert (validation[:, 0] == 1).all()
    assert {data.token_names[number] for number in validation[:, 1]} == {"good", "bad"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text": "title"}, "there is no column 'title'"),
        ({"target": "words"}, "1 of 3 rows have no text or no class"),
    ],
)
def test_what_is_missing_is_named(tmp_path, options, message):
    frame = pd.DataFrame(
        {"text": ["a", "b", "c"], "label": ["x", "y", "x"], "words": ["x", None, "y"]}
    )
    frame.to_csv(tmp_path / "texts.csv", index=False)
    with pytest.raises(DataError) as caught:
        load("labelled_text", {"path": str(tmp_path / "texts.csv"), **options})
    assert message in str(caught.value)


def test_columns_of_no_table_are_refused():
    with pytest.raises(ExperimentError, match="needs a table"):
        load("labelled_text", {"text": "review"})


def test_tokens_of_a_tokenizer_are_padded_only_as_far_as_the_longest_text_of_a_batch(tmp_path):
    tokenizer = write_tokenizer(tmp_path)
    texts = [f"{'red ' * number}cat" for number in range(1, 41)]
    frame = pd.DataFrame({"text": texts, "label": ["odd", "even"] * 20})
    frame.to_csv(tmp_path / "texts.csv", index=False)
    options = {"path": str(tmp_path / "texts.csv"), "tokenizer": str(tmp_path), "context": 30}
    data = load("labelled_text", options)
    known = {text: tokenizer(text)["input_ids"][:30] for text in texts}
    seen = {}
    for split in (data.train, data.validation):
        inputs, targets = split.batch(np.arange(len(split)))
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        assert ids.shape[1] == mask.sum(axis=1).max()
        for row, kept, target in zip(ids, mask, targets, strict=True):
            assert kept.tolist() == sorted(kept, reverse=True)
            seen[tuple(row[: kept.sum()])] = data.class_names[target]
    labels = dict(zip(texts, frame["label"], strict=True))
    short = {tuple(ids): labels[text] for text, ids in known.items() if len(ids) < 30}
    assert len(short) > 10
    assert short.items() <= seen.items()
    assert data.vocabulary_size == len(tokenizer)
    assert data.tokens_per_sample == pytest.approx(
        np.mean(
            [
                data.train.batch(np.array([row]))[0]["attention_mask"].sum()
                for row in range(len(data.train))
            ]
        )
    )


def test_a_tokenizer_leaves_no_vocabulary_to_learn(tmp_path):
    options = {"path": "texts.csv", "tokenizer": str(tmp_path), "vocabulary": 100}
    with pytest.raises(ExperimentError, match="own vocabulary"):
        load("labelled_text", options)


@pytest.mark.parametrize("seed", range(3))
def test_pairs_with_a_text_in_common_are_held_out_together(seed: int, tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    rows = [(f"q{number // 2}", f"a{number}") for number in range(30)]
    rows += [("x", "a0"), ("q0", "a0"), ("q20", "b")]  # one more, a copy, and a group of its own
    lines = [f"{first},{second}" for first, second in rows]
    path = tmp_path / "pairs.csv"
    path.write_text("\n".join(["anchor,positive", *lines]) + "\n")
    made = TextPairsOptions(
        path=path, tokenizer=tmp_path, validation_fraction=0.2, test_fraction=0.2
    )
    datasets: Any = made.load(seed=seed, cache=tmp_path / "cache")
    tokenizer = load_tokenizer(tmp_path)
    texts: list[set[str]] = []
    sizes = []
    for split in (datasets.train, datasets.validation, datasets.test):
        inputs, _ = split.batch(np.arange(len(split)))
        decoded = [
            tokenizer.decode(ids[mask == 1])
            for ids, mask in zip(
                inputs["input_ids"].reshape(2 * len(split), -1),
                inputs["attention_mask"].reshape(2 * len(split), -1),
                strict=True,
            )
        ]
        texts.append(set(decoded))
        sizes.append(len(split))
    assert sum(sizes) == len(set(rows))
    assert min(sizes) >= 4
    assert not texts[0] & texts[1]
    assert not texts[0] & texts[2]
    assert not texts[1] & texts[2]


@pytest.mark.parametrize("name", ["labelled_text", "text_pairs"])
def test_the_tokens_of_texts_and_those_that_are_cut_are_counted(name: str, tmp_path: Path) -> None:
    write_tokenizer(tmp_path / "tokenizer", None)
    texts = [f"{number} " + "q" * number for number in range(10, 50)]
    frame = pd.DataFrame({"first": texts, "second": [f"{text} x" for text in texts]})
    frame["class"] = ["even", "odd"] * 20
    frame.to_csv(tmp_path / "texts.csv", index=False)
    columns = {"text": "first", "target": "class"}
    if name == "text_pairs":
        columns = {"first": "first", "second": "second"}
    options = check_options(
        name,
        {
            "path": str(tmp_path / "texts.csv"),
            "tokenizer": str(tmp_path / "tokenizer"),
            "context": 30,
            **columns,
        },
    )
    tokenizer = load_tokenizer(tmp_path / "tokenizer")
    read = [*texts, *(frame["second"] if name == "text_pairs" else ())]
    lengths = [len(tokenizer.encode(text)) for text in read]
    *parts, cut = options.notes()
    counts = [
        [int(word.replace(",", "")) for word in part.split() if word[0].isdigit()] for part in parts
    ]
    assert sum(num for num, _ in counts) == len(read)
    assert sum(tokens for _, tokens in counts) == sum(min(length, 30) for length in lengths)
    num_cut = sum(length > 30 for length in lengths)
    assert cut.startswith(f"{num_cut} texts have more than 30 tokens, the longest {max(lengths)}.")
