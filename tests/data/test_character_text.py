from __future__ import annotations

import numpy as np
import pytest

from workbench.data import load
from workbench.foundation.errors import DataError, ExperimentError


def decoded(datasets, split) -> str:
    inputs, targets = split.batch(np.arange(len(split)))
    assert (inputs[:, 1:] == targets[:, :-1]).all()
    return "".join(datasets.class_names[token] for token in inputs.reshape(-1))


def test_the_default_corpus_is_the_standard_library(tmp_path):
    corpus = load("text", {"max_characters": 50_000}, cache=tmp_path)
    assert (corpus.task, corpus.input_shape) == ("language_model", (64,))
    assert corpus.num_outputs == corpus.vocabulary_size == len(corpus.class_names)
    assert len(corpus.train) == (45_000 - 1) // 64
    assert len(corpus.validation) == (5_000 - 1) // 64
    assert "import" in decoded(corpus, corpus.train)


def test_the_end_of_the_text_is_held_out(tmp_path):
    text = "".join(chr(ord("a") + index % 26) for index in range(900)) + "z\u00e4\U0001f600" * 40
    path = tmp_path / "text.txt"
    path.write_text(text, encoding="utf-8")
    corpus = load(
        "text", {"path": str(path), "context": 8, "validation_fraction": 0.2}, cache=tmp_path
    )
    assert text.startswith(decoded(corpus, corpus.train))
    assert text[round(len(text) * 0.8) :].startswith(decoded(corpus, corpus.validation))
    assert {"\u00e4", "\U0001f600"} < set(corpus.class_names)


def test_a_folder_is_read_in_the_order_of_names_and_by_pattern(tmp_path):
    folder = tmp_path / "texts"
    (folder / "deeper").mkdir(parents=True)
    (folder / "b.txt").write_text("b" * 50)
    (folder / "deeper" / "c.txt").write_text("c" * 50)
    (folder / "a.txt").write_text("a" * 50)
    (folder / "image.bin").write_bytes(b"\xff\xfe\xff")
    options = {"path": str(folder), "pattern": "*.txt", "context": 4}
    corpus = load("text", options, cache=tmp_path)
    assert corpus.class_names == ("a", "b", "c")
    assert decoded(corpus, corpus.train).startswith("a" * 50 + "b" * 50)
    with pytest.raises(DataError, match=r"image\.bin cannot be read as UTF-8 text") as caught:
        load("text", options | {"pattern": "*"}, cache=tmp_path)
    assert caught.value.field == "data.path"


def test_no_more_characters_are_read_than_asked_for(tmp_path):
    corpus = load("text", {"max_characters": 1000, "context": 10, "stride": 1}, cache=tmp_path)
    assert len(corpus.train) == 900 - 10
    assert len(corpus.validation) == (100 - 1) // 10


@pytest.mark.parametrize(
    ("options", "kind", "field"),
    [
        ({"path": "/does/not/exist"}, DataError, "data.path"),
        ({"max_characters": 100}, DataError, "data.context"),
        ({"context": 0}, ExperimentError, "data.context"),
        ({"pattern": "*.py"}, ExperimentError, "data.pattern"),
        ({"tokens": "words"}, ExperimentError, "data.tokens"),
    ],
)
def test_what_cannot_be_read_is_refused_by_its_field(tmp_path, options, kind, field):
    with pytest.raises(kind) as caught:
        load("text", options, cache=tmp_path)
    assert caught.value.field == field


def test_an_empty_folder_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no file"):
        load("text", {"path": str(tmp_path / "empty")}, cache=tmp_path)
