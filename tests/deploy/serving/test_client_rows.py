from __future__ import annotations

import base64
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from PIL import Image

from tests.builders.examples import examples
from tests.deploy.trained import exported, write_table
from tests.services.served import write_table_bundle
from workbench.deploy.card import Card, Input, Output, read_card
from workbench.deploy.predictor import Answers, Predictor
from workbench.deploy.serving.client_rows import (
    RequestError,
    RowReader,
    RowsError,
    answers_as_json,
    feeds_of_rows,
    parse_rows,
)
from workbench.deploy.serving.openapi import answer_schema, describe_server, row_schema
from workbench.foundation.errors import DataError

ROW: dict[str, Any] = {"age": 3, "animal": "cat", "note": "x", "born": "2020-01-01"}
PIXELS = Card(
    name="digits",
    run_id="r",
    trained_on="digits",
    task="classification",
    model="convnet",
    opset=18,
    inputs=(Input(name="pixels", kind="array", shape=(2, 3), dtype="float32"),),
    outputs=(Output(name="outputs", kind="classes", shape=(2,), classes=("a", "b")),),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_table_bundle(tmp_path_factory.mktemp("bundles") / "animals")


def test_rows_of_a_trained_table_are_answered_as_offline(tmp_path: Path) -> None:
    frame = write_table(tmp_path / "houses.csv", 60)
    table = {"name": "table", "path": str(tmp_path / "houses.csv"), "target": "price"}
    exported(tmp_path / "bundle", "mlp", table)
    predictor = Predictor.open(tmp_path / "bundle")
    columns = [one.name for one in predictor.card.inputs]
    rows = json.loads(frame[columns].to_json(orient="records"))
    read = RowReader(predictor.card).read(rows)
    online = predictor.compute(feeds_of_rows(predictor.card, read))
    offline = predictor.predict({name: [row[name] for row in rows] for name in columns})
    assert online.values is not None
    assert online.values == pytest.approx(offline.values)


def test_numbers_that_the_table_wrote_with_a_unit_may_be_sent_like_that() -> None:
    share = Input(name="share", kind="number", dtype="float64", unit="%", has_thousands=True)
    plain = Input(name="plain", kind="number", dtype="float64")
    card = PIXELS.model_copy(update={"inputs": (share, plain)})
    reader, schema = RowReader(card), Draft202012Validator(row_schema(card))
    row = {"share": "1,058.1 %", "plain": 2}
    assert reader.read([row, {"share": 7, "plain": None}])[0] == (1058.1, 2.0)
    assert schema.is_valid(row)
    for wrong in ({"share": "58.1 €", "plain": 2}, {"share": "58.1%", "plain": "2%"}):
        with pytest.raises(RowsError, match=r"column 'share'.*is not a number|column 'plain'"):
            reader.read([wrong])


def test_true_and_false_are_numbers_where_they_were_in_training() -> None:
    member = Input(name="member", kind="number", dtype="float64", example=False)
    card = PIXELS.model_copy(
        update={"inputs": (member, Input(name="age", kind="number", dtype="float64"))}
    )
    reader, schema = RowReader(card), Draft202012Validator(row_schema(card))
    assert reader.read([{"member": True, "age": 3}, {"member": 0, "age": None}])[0] == (1.0, 3.0)
    assert schema.is_valid({"member": True, "age": 3})
    wrong = {"member": True, "age": True}
    assert not schema.is_valid(wrong)
    with pytest.raises(RowsError) as refused:
        reader.read([wrong])
    assert refused.value.to_json()["problem"] == "row 0, column 'age': true is not a number"


def test_rows_are_answered_as_offline(folder: Path) -> None:
    predictor = Predictor.open(folder)
    rows = [
        ROW,
        ROW | {"age": 2.5, "animal": "bird"},
        ROW | {"age": 1, "born": None},
        ROW | {"note": None, "animal": None},
    ]
    read = RowReader(predictor.card).read(rows)
    online = answers_as_json(predictor.card, predictor.compute(feeds_of_rows(predictor.card, read)))
    offline = predictor.predict({name: [row[name] for row in rows] for name in ROW})
    assert (
        [answer["values"]["years"] for answer in online]
        == offline.values.tolist()
        == [103, 2.5, 102, 3]
    )


def test_what_training_never_saw_is_noted(folder: Path) -> None:
    reader = RowReader(read_card(folder))
    strange = reader.read([ROW | {"age": None, "animal": "bird", "born": None}])[0]
    answer = {"values": {"years": 1.0}}
    assert reader.notes(strange, answer) == [
        "column 'age' is missing, and was never missing in training",
        "column 'animal': 'bird' did not occur in training",
    ]
    assert reader.notes(reader.read([ROW])[0], answer) == []


@pytest.mark.parametrize("targets", [("years",), ()])
def test_what_is_far_outside_of_what_was_learned_is_noted_where_predict_notes_it(
    folder: Path, targets: tuple[str, ...]
) -> None:
    card = read_card(folder)
    age, *others = card.inputs
    age = age.model_copy(update={"learned": (0.0, 20.0)})
    output = card.outputs[0].model_copy(update={"learned": (0.0, 120.0), "targets": targets})
    card = card.model_copy(update={"inputs": (age, *others), "outputs": (output,)})
    predictor = Predictor.open(folder)
    predictor.card = card
    reader = RowReader(card)
    ages = [-20, -20.5, 40, 40.5, 139, 141, 1e300]  # a cat has 100 years more
    rows = reader.read([ROW | {"age": age} for age in ages])
    answers = answers_as_json(card, predictor.compute(feeds_of_rows(card, rows)))
    notes = [reader.notes(row, answer) for row, answer in zip(rows, answers, strict=True)]
    alone = [predictor.predict({n: [v] for n, v in (ROW | {"age": age}).items()}) for age in ages]
    assert list(map(bool, notes)) == [bool(offline.notes) for offline in alone]
    assert list(map(len, notes)) == [0, 1, 0, 1, 1, 2, 2]
    assert notes[5] == [
        "column 'age' is 141, far outside of what was learned, 0 to 20: do not rely on the answer",
        "the answer is 241, far outside of what was learned, 0 to 120: do not rely on the answer",
    ]


@pytest.mark.parametrize(
    ("row", "column", "problem"),
    [
        (ROW | {"age": "three"}, "age", "'three' is not a number"),
        (ROW | {"age": True}, "age", "true is not a number"),
        (ROW | {"animal": ["cat"]}, "animal", "is not text"),
        (ROW | {"born": "soon"}, "born", "'soon' is not a date"),
        (ROW | {"born": 5}, "born", "5 is not a date"),
        ([1, 2], None, "is not a row"),
    ],
)
def test_what_is_wrong_is_named_by_row_and_column(
    folder: Path, row: Any, column: str, problem: str
) -> None:
    with pytest.raises(RowsError) as refused:
        RowReader(read_card(folder)).read([ROW, row])
    [found] = refused.value.problems
    assert (found.row, found.column) == (1, column)
    assert problem in found.problem
    assert refused.value.to_json()["field"] == "rows.1" + (f".{column}" if column else "")


@pytest.mark.parametrize(("name", "text"), [("age", "noon"), ("age", "1 PB"), ("born", "soon")])
@pytest.mark.parametrize("num_texts", [1, 2, 3])
def test_a_few_texts_among_numbers_are_missing_or_refused_as_by_predict(
    folder: Path, name: str, text: str, num_texts: int
) -> None:
    given = [ROW | {name: text}] * num_texts + [ROW, ROW | {"age": 7}]
    predictor = Predictor.open(folder)
    columns = {column: [row[column] for row in given] for column in ROW}
    reader = RowReader(predictor.card)
    if num_texts >= 2:  # no more can be read than not
        with pytest.raises(DataError, match=text):
            predictor.predict(columns)
        with pytest.raises(RowsError) as refused:
            reader.read(given)
        assert [problem.row for problem in refused.value.problems] == list(range(num_texts))
        return
    offline = predictor.predict(columns)
    rows = reader.read(given)
    online = answers_as_json(predictor.card, predictor.compute(feeds_of_rows(predictor.card, rows)))
    assert offline.values is not None
    offline_years = [None if math.isnan(number) else number for number in offline.values.tolist()]
    assert [answer["values"]["years"] for answer in online] == offline_years
    noted = [reader.notes(*three) for three in zip(rows, online, given, strict=True)]
    assert [any(f"has {text!r}, which is not a" in note for note in notes) for notes in noted] == [
        number < num_texts for number in range(len(given))
    ]
    assert any(repr(text) in note for note in offline.notes)


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        (["0,4"], [0.4]),
        (["1.200,5", "2.500", "7", 8], [1200.5, 2500.0, 7.0, 8.0]),
        (["0,4", "12,5", "1,234", None], [0.4, 12.5, 1.234, None]),
        (["0,4 kg", "1,5 kg"], [0.4, 1.5]),
        (["2.500", "7"], [2.5, 7.0]),
    ],
)
def test_decimal_commas_mean_the_same_as_to_predict(
    folder: Path, sent: list[Any], meant: list[float | None]
) -> None:
    predictor = Predictor.open(folder)
    reader = RowReader(predictor.card)
    given, plain = ([ROW | {"age": age} for age in ages] for ages in (sent, meant))
    rows = reader.read(given)
    assert feeds_of_rows(predictor.card, rows)["age"].ravel().tolist() == pytest.approx(
        [math.nan if age is None else age for age in meant], nan_ok=True
    )
    online = answers_as_json(predictor.card, predictor.compute(feeds_of_rows(predictor.card, rows)))
    wanted, offline = (
        predictor.predict({name: [row[name] for row in listed] for name in ROW})
        for listed in (plain, given)
    )
    assert wanted.values is not None
    assert offline.values is not None
    assert offline.values.tolist() == pytest.approx(wanted.values.tolist(), nan_ok=True)
    has_comma = any(isinstance(age, str) and "," in age for age in sent)
    assert any("decimal comma" in note for note in offline.notes) == has_comma
    noted = [reader.notes(*three) for three in zip(rows, online, given, strict=True)]
    assert any("0,4" in note for note in noted[0]) == (sent[0] == "0,4")


def test_a_comma_that_may_separate_thousands_is_refused(folder: Path) -> None:
    with pytest.raises(RowsError):
        RowReader(read_card(folder)).read([ROW | {"age": "1,234"}])


def test_a_column_that_no_row_has_is_named(folder: Path) -> None:
    short = {name: ROW[name] for name in ("age", "animal", "note")}
    with pytest.raises(RowsError) as refused:
        RowReader(read_card(folder)).read([short])
    assert refused.value.to_json()["field"] == "rows.0.born"
    assert "the value is missing" in refused.value.problems[0].problem


def test_texts_gaps_and_infinity_mean_the_same_as_to_predict(folder: Path) -> None:
    short = {name: ROW[name] for name in ("age", "animal", "note")}
    given = [ROW, ROW | {"age": "3"}, ROW | {"age": "7 kg"}, ROW | {"age": 10**400}, short]
    given.append(ROW | {"age": math.inf})
    predictor = Predictor.open(folder)
    reader = RowReader(predictor.card)
    rows = [row for sent in given[:-2] for row in reader.read([sent])]
    rows += reader.read([short, given[-1]])
    answers = answers_as_json(
        predictor.card, predictor.compute(feeds_of_rows(predictor.card, rows))
    )
    for row, answer, sent in zip(rows, answers, given, strict=True):
        plain = {name: [sent.get(name)] for name in ROW}
        if sent["age"] == 10**400:
            plain["age"] = [math.inf]
        offline = predictor.predict(plain)
        assert offline.values is not None
        years = offline.values.ravel().tolist()[0]
        assert answer["values"]["years"] == (None if math.isnan(years) else pytest.approx(years))
        notes = reader.notes(row, answer, sent)
        for word in ("infinite", "kg"):
            said = [word in note for note in notes]
            assert any(said) == any(word in note for note in offline.notes)


def test_a_share_without_its_sign_is_noted() -> None:
    share = Input(name="share", kind="number", dtype="float64", unit="%")
    card = PIXELS.model_copy(update={"inputs": (share,)})
    reader = RowReader(card)
    for value, is_noted in ((0.58, True), ("0.58", True), ("58 %", False), (None, False)):
        (row,) = reader.read([{"share": value}])
        notes = [
            note for note in reader.notes(row, {"values": 1.0}, {"share": value}) if "%" in note
        ]
        assert bool(notes) == is_noted


def test_columns_that_the_model_does_not_need_are_skipped(folder: Path) -> None:
    card = read_card(folder)
    turned = {"colour": "red", **dict(reversed(ROW.items())), "": None}
    assert RowReader(card).read([turned]) == RowReader(card).read([ROW])
    assert Draft202012Validator(row_schema(card)).is_valid(turned)


@pytest.mark.parametrize(
    ("pixels", "problem"),
    [
        ([[1, 2, 3]], "has shape [1, 3]"),
        ([[1, 2, 3], [4, 5]], "different lengths"),
        ([[1, 2, "3"], [4, 5, 6]], "not an array of numbers"),
        ([[1, 2, True], [4, 5, 6]], "not an array of numbers"),
        ([True] * 6, "not an array of numbers"),
        (None, "not an array of numbers"),
        ([[1, 2, 1e39], [4, 5, 6]], "too large"),
    ],
)
def test_an_array_has_the_shape_and_the_type_of_the_card(pixels: Any, problem: str) -> None:
    with pytest.raises(RowsError) as refused:
        RowReader(PIXELS).read([{"pixels": pixels}])
    found = refused.value.problems[0]
    assert problem in found.problem
    if "shape" in problem:
        assert found.allowed == "numbers of shape [2, 3] or a flat list of 6"
    with pytest.raises(RowsError) as refused:
        RowReader(PIXELS).read([{}])
    assert refused.value.problems[0].allowed == "numbers of shape [2, 3] or a flat list of 6"


def test_a_flat_array_is_taken_in_its_order() -> None:
    reader = RowReader(PIXELS)
    flat, nested = reader.read([{"pixels": [1, 2, 3, 4, 5, 6]}, {"pixels": [[1, 2, 3], [4, 5, 6]]}])
    np.testing.assert_array_equal(flat[0], nested[0])
    assert feeds_of_rows(PIXELS, [flat, nested])["pixels"].shape == (2, 2, 3)


IMAGES = PIXELS.model_copy(
    update={
        "inputs": (
            Input(name="photo", kind="array", shape=(3, 8, 8), dtype="float32", is_image=True),
        )
    }
)


def _file(kind: str, size: tuple[int, int] = (9, 7), mode: str = "RGB") -> bytes:
    written = io.BytesIO()
    Image.new(mode, size, 0 if mode == "1" else (10, 200, 30)).save(written, kind)
    return written.getvalue()


def _read_image(content: bytes) -> np.ndarray:
    [[pixels]] = RowReader(IMAGES).read([{"photo": base64.b64encode(content).decode()}])
    return pixels


@pytest.mark.parametrize("kind", ["BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP"])
def test_an_image_in_base64_is_read_as_its_pixels(kind: str) -> None:
    pixels = _read_image(_file(kind))
    assert (pixels.shape, pixels.dtype) == ((3, 8, 8), np.float32)
    assert np.abs(pixels.mean(axis=(1, 2)) - [10, 200, 30]).max() < 8
    assert Draft202012Validator(row_schema(IMAGES)).is_valid({"photo": "aGVsbG8="})


@pytest.mark.parametrize(
    ("photo", "problem", "allowed"),
    [
        (
            "cat.png",
            "'cat.png' is not base64",
            "an image file in base64, or numbers of shape [3, 8, 8]",
        ),
        ("\u20ac", "is not base64", "an image file in base64"),
        (
            base64.b64encode(_file("EPS")).decode(),
            "its content has the format of no image",
            "an image file",
        ),
        (
            base64.b64encode(_file("PNG", (8000, 8000), "1")).decode(),
            "has 8000 x 8000 pixels",
            "50,000,000",
        ),
        (None, "null is neither an image nor an array", "an image file in base64"),
    ],
)
def test_what_is_no_image_or_too_large_is_named(photo: Any, problem: str, allowed: str) -> None:
    with pytest.raises(RowsError) as refused:
        RowReader(IMAGES).read([{"photo": photo}])
    [found] = refused.value.problems
    assert problem in found.problem
    assert allowed in (found.allowed or "")


@examples(100)
@given(
    kind=st.sampled_from(["BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP"]),
    changes=st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), max_size=8),
    end=st.floats(0.1, 1),
)
def test_a_broken_image_is_read_or_refused(
    kind: str, changes: list[tuple[float, int]], end: float
) -> None:
    content = bytearray(_file(kind))
    for place, value in changes:
        content[int(place * len(content))] = value
    try:
        _read_image(bytes(content[: int(end * len(content))]))
    except RowsError as error:
        json.dumps(error.to_json(), allow_nan=False)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"rows": {}}',
        b'{"rows": []}',
        b'{"rows": [1], "more": 1}',
        b'{"rows": [1], "interval": 90}',
        b'{"rows": [1], "interval": true}',
        b'{"rows": [NaN]}',
        b"\xff",
        b"[" * 100_000,
        b'{"rows": [' + b"9" * 5000 + b"]}",
    ],
)
def test_a_body_that_is_not_rows_is_refused(body: bytes) -> None:
    with pytest.raises(RequestError):
        parse_rows(body)


def test_a_body_may_ask_for_intervals() -> None:
    assert parse_rows(b'{"rows": [1]}') == ([1], None)
    assert parse_rows(b'{"rows": [1], "interval": 0.9}') == ([1], 0.9)


_SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
_ANY = st.recursive(
    _SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5
)


@given(
    values=st.fixed_dictionaries(dict.fromkeys(ROW, _ANY)),
    more=st.dictionaries(st.text(), _ANY, max_size=1),
)
def test_any_row_is_read_or_refused(values: Any, more: Any, folder: Path) -> None:
    card = read_card(folder)
    try:
        read = RowReader(card).read([more | values])
    except RowsError as error:
        json.dumps(error.to_json(), allow_nan=False)
    else:
        feeds_of_rows(card, read)


def test_answers_are_what_the_description_promises(folder: Path) -> None:
    classes = Answers(np.array(["a"], dtype=object), np.array([[np.nan, 0.25]], dtype=np.float32))
    [answer] = answers_as_json(PIXELS, classes)
    assert answer == {"class": "a", "probabilities": {"a": None, "b": 0.25}}
    Draft202012Validator(answer_schema(PIXELS.outputs[0])).validate(answer)
    card = read_card(folder)
    [answer] = answers_as_json(card, Answers(values=np.array([[3.5]])))
    Draft202012Validator(answer_schema(card.outputs[0])).validate(answer)


def test_the_description_types_each_column(folder: Path) -> None:
    card = read_card(folder)
    rows = Draft202012Validator(row_schema(card))
    assert rows.is_valid(ROW)
    assert rows.is_valid(dict.fromkeys(ROW, None))
    assert rows.is_valid(ROW | {"age": "3"})
    for wrong in (ROW | {"age": [3]}, ROW | {"animal": 3}, {"age": 3}):
        assert not rows.is_valid(wrong)
    pixels = Draft202012Validator(row_schema(PIXELS))
    assert pixels.is_valid({"pixels": [[1, 2, 3], [4, 5, 6]]})
    assert not pixels.is_valid({"pixels": [[1, 2], [4, 5]]})
    document = describe_server({"animals": card, "digits": PIXELS}, has_token=True)
    example = document["paths"]["/v1/animals/predict"]["post"]["requestBody"]["content"][
        "application/json"
    ]["example"]
    RowReader(card).read(example["rows"])
