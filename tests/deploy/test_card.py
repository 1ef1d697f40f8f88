"""A card says which samples its model takes, and is refused where it was changed to what cannot
be.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.services.served import write_array_bundle, write_table_bundle
from workbench.deploy.card import Card, Input, read_card
from workbench.deploy.feeds import feeds_of
from workbench.deploy.predictor import Predictor
from workbench.foundation.bundle_manifest import CARD
from workbench.foundation.errors import DataError, RunError


@pytest.mark.parametrize(
    ("shape", "taken"),
    [
        ((1, 8, 4), True),
        ((8, 4), True),
        ((8, 4, 1), True),
        ((32,), True),
        ((4, 8), False),
        ((2, 16), False),
        ((31,), False),
        ((), False),
        ((2, 8, 4), False),
    ],
)
def test_a_sample_may_be_flat_or_lack_dimensions_of_one(
    shape: tuple[int, ...], taken: bool
) -> None:
    assert Input(name="image", kind="array", shape=(1, 8, 4), dtype="float32").takes(shape) is taken


def changed(card: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a card in which one entry has another value; None removes it."""
    card = copy.deepcopy(card)
    *parents, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    place: Any = card
    for part in parents:
        place = place[part]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return card


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("outputs", [], "at least 1 item"),
        ("inputs", [], "at least 1 item"),
        ("outputs/0/classes", ["low"], "1 classes are listed, but the model answers 2"),
        ("outputs/0/classes", ["low", "middle", "high"], "3 classes are listed"),
        ("outputs/0/shape", None, "2 classes are listed, but the model answers None"),
        ("outputs/0/shape", [-2], "greater than or equal to 0"),
        ("inputs/0/name", "others", r"statistics of 'inputs', which is not an input"),
        ("inputs/0/shape", [5], r"inputs has the shape \(5,\), but in model.onnx it is \(4,\)"),
        ("inputs/0/shape", [2, 2], r"inputs has the shape \(2, 2\)"),
        ("statistics/inputs/shares", [0.5, 0.5], "2 shares for 4 bins"),
        ("statistics/inputs/edges", [1.0, 0.0, -1.0], "edges must increase"),
        ("terms", ["a", "b"], "it lists the inputs counts, inputs, but model.onnx takes inputs"),
        ("files", {}, "does not contain the SHA-256 of model.onnx"),
        ("files", None, "does not contain the SHA-256 of model.onnx"),
        ("files/model.onnx", None, "does not contain the SHA-256 of model.onnx"),
        ("files/model.onnx", "0" * 64, "SHA-256 differs"),
        ("version", "1", "format version '1'"),
    ],
)
def test_a_card_that_was_changed_is_refused_with_a_message(
    path: str, value: Any, problem: str, tmp_path: Path
) -> None:
    folder = write_array_bundle(tmp_path)
    assert Predictor.open(folder).predict({"inputs": np.ones((1, 4))}).classes == ["high"]
    card = changed(json.loads((folder / CARD).read_text()), path, value)
    (folder / CARD).write_text(json.dumps(card))
    with pytest.raises(RunError, match=problem):
        Predictor.open(folder)


def test_a_card_that_names_other_inputs_than_the_graph_is_refused(tmp_path: Path) -> None:
    folder = write_table_bundle(tmp_path)
    card = changed(json.loads((folder / CARD).read_text()), "inputs/0/name", "years")
    card["statistics"] = {}
    (folder / CARD).write_text(json.dumps(card))
    with pytest.raises(RunError, match=r"but model\.onnx takes age, animal, born, note"):
        Predictor.open(folder)


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "[" * 100_000, '{"version": 1}', '{"version": true}']
)
def test_what_is_no_card_is_refused_with_a_message(text: str, tmp_path: Path) -> None:
    folder = write_array_bundle(tmp_path)
    (folder / CARD).write_text(text)
    with pytest.raises(RunError):
        read_card(folder)


@pytest.mark.parametrize(("example", "allowed"), [(True, "true or false"), (2.5, "a number")])
def test_a_wrong_value_is_answered_with_what_the_training_data_held(
    example: Any, allowed: str
) -> None:
    column = Input(name="paid", kind="number", dtype="float64", example=example)
    with pytest.raises(DataError, match=f"'paid', row 0 .* 'maybe'; allowed: {allowed}"):
        feeds_of(Card.model_construct(inputs=(column,)), {"paid": ["maybe"]})
