from __future__ import annotations

import numpy as np
import pytest

from workbench.data import load
from workbench.data.tagged_text import IGNORED, _lines_of
from workbench.foundation.errors import DataError

CONLL = """\
Ada NNP B-PER
lives VBZ O
in IN O
Paris NNP B-LOC

Bob NNP B-PER
sings VBZ O

"""


def test_tokens_of_a_file_keep_their_tags_and_padding_has_none(tmp_path):
    path = tmp_path / "names.conll"
    path.write_text(CONLL * 5)
    data = load("tagged_text", {"path": str(path), "context": 3, "vocabulary": 50})
    inputs, targets = data.train.batch(np.arange(2))
    named = [[data.token_names[number] for number in row] for row in inputs]
    assert named == [["Ada", "lives", "in"], ["Bob", "sings", ""]]
    assert data.class_names == ("B-LOC", "B-PER", "O")
    assert targets.tolist() == [[1, 2, 2], [1, 2, IGNORED]]
    assert (len(data.train), len(data.validation)) == (8, 2)
    assert data.target_shape == data.input_shape == (3,)


def test_a_token_without_a_tag_is_named_by_its_line(tmp_path):
    path = tmp_path / "names.conll"
    path.write_text("Ada NNP\nlives\n")
    with pytest.raises(DataError, match=r"line 2 of .* has a token without a tag"):
        load("tagged_text", {"path": str(path)})


def test_names_in_source_have_their_roles():
    [first, second] = _lines_of(
        "def join(parts, by=','):\n    return by.join(str(part) for part in parts)\n"
    )
    assert list(zip(*first, strict=True)) == [
        ("def", "keyword"),
        ("join", "function"),
        ("(", "sign"),
        ("parts", "parameter"),
        (",", "sign"),
        ("by", "parameter"),
        ("=", "sign"),
        ("','", "string"),
        (")", "sign"),
        (":", "sign"),
    ]
    roles = dict(zip(*second, strict=True))
    assert (roles["join"], roles["str"], roles["parts"]) == ("method", "call", "variable")
    assert roles["part"] == "assigned"  # its last place is that of the loop
