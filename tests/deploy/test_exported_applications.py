from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from jsonschema import Draft202012Validator

from tests.deploy.test_exported_bundle import BLOCK
from tests.deploy.trained import exported
from workbench.deploy.predictor import Predictor
from workbench.deploy.rows import columns_from, table_of
from workbench.deploy.serving.client_rows import RowReader, answers_as_json, feeds_of_rows
from workbench.deploy.serving.openapi import answer_schema
from workbench.foundation.errors import DataError


def run_script(bundle: Path, rows: Path) -> list[str]:
    """Return the lines that predict.py prints where only numpy and onnxruntime can be imported."""
    done = subprocess.run(
        [sys.executable, "-c", BLOCK, str(bundle / "predict.py"), str(rows)],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def write_sales(path: Path) -> pd.DataFrame:
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"sold": random.normal(50, 9, 90), "rain": random.normal(3, 1, 90)})
    frame.to_csv(path, index=False)
    return frame


@pytest.mark.slow
def test_a_forecast_of_the_last_rows_of_a_file_is_in_their_unit(tmp_path: Path) -> None:
    write_sales(tmp_path / "sales.csv")
    options = {
        "name": "series",
        "path": str(tmp_path / "sales.csv"),
        "targets": ["sold"],
        "lookback": 6,
        "horizon": 3,
    }
    made, _, card = exported(tmp_path / "bundle", "forecaster", options)

    recent = pd.read_csv(tmp_path / "sales.csv").tail(8)
    recent.to_csv(tmp_path / "recent.csv", index=False)
    predictor = Predictor.open(tmp_path / "bundle", threads=1)
    answers = predictor.predict(columns_from(card, tmp_path / "recent.csv"))
    header, rows = table_of(card, answers)
    assert (header, len(rows)) == (["sold +1", "sold +2", "sold +3"], 3)

    train = pd.read_csv(tmp_path / "sales.csv").to_numpy()[:63]
    window = ((recent.to_numpy()[-6:] - train.mean(0)) / train.std(0)).astype(np.float32)
    with torch.no_grad():
        expected = (
            made(torch.from_numpy(window[None]))[0].numpy() * train.std(0)[0] + train.mean(0)[0]
        )
    np.testing.assert_allclose(rows[-1], expected, rtol=1e-5)
    np.testing.assert_allclose(
        [
            float(cell)
            for cell in run_script(tmp_path / "bundle", tmp_path / "recent.csv")[-1].split(",")
        ],
        rows[-1],
        rtol=1e-6,
    )
    np.testing.assert_allclose(predictor.predict(columns_from(card, recent)).values, answers.values)

    [served] = answers_as_json(card, predictor.predict({"inputs": recent.to_numpy()[None, -6:]}))
    assert list(served["values"]) == header
    with pytest.raises(DataError, match="5 rows are too few"):
        columns_from(card, recent.tail(5))
    with pytest.raises(DataError, match="there is no column 'rain'"):
        columns_from(card, recent[["sold"]])


def write_reviews(path: Path) -> None:
    words = ["good", "bad", "fine", "awful"]
    rows = [
        {"text": f"{words[n % 4]} film, no {n}", "label": "up" if n % 2 == 0 else "down"}
        for n in range(40)
    ]
    pd.DataFrame(rows).to_csv(path, index=False)


def test_a_text_is_classified_as_text_everywhere(tmp_path: Path) -> None:
    write_reviews(tmp_path / "reviews.csv")
    options = {"name": "labelled_text", "path": str(tmp_path / "reviews.csv"), "context": 8}
    made, data, card = exported(
        tmp_path / "bundle", "text_encoder", options, width=16, num_layers=1
    )

    predictor = Predictor.open(tmp_path / "bundle", threads=1)
    texts = ["Good film!", "awful, unheard of"]
    pd.DataFrame({"text": texts}).to_csv(tmp_path / "new.csv", index=False)
    answers = predictor.predict(columns_from(card, tmp_path / "new.csv"))
    known = {token: number for number, token in enumerate(data.token_names)}
    ids = [
        [known["good"], known["film"], 1, 0, 0, 0, 0, 0],
        [known["awful"], known[","], 1, 1, 0, 0, 0, 0],
    ]
    with torch.no_grad():
        expected = made(torch.tensor(ids)).softmax(-1).numpy()
    assert answers.probabilities is not None
    assert answers.classes is not None
    np.testing.assert_allclose(answers.probabilities, expected, atol=1e-5)

    lines = run_script(tmp_path / "bundle", tmp_path / "new.csv")
    assert [line.split(",")[0] for line in lines[1:]] == answers.classes.tolist()
    rows = RowReader(card).read([{"text": text} for text in texts])
    served = answers_as_json(card, predictor.compute(feeds_of_rows(card, rows)))
    assert [answer["class"] for answer in served] == answers.classes.tolist()


@pytest.mark.slow
def test_each_token_has_a_tag_and_padding_none(tmp_path: Path) -> None:
    (tmp_path / "names.conll").write_text(
        "Ada PER\nlives O\n\nBob PER\nlives O\nin O\nParis LOC\n\n" * 6
    )
    options = {"name": "tagged_text", "path": str(tmp_path / "names.conll"), "context": 5}
    made, data, card = exported(
        tmp_path / "bundle", "text_encoder", options, width=16, num_layers=1
    )

    predictor = Predictor.open(tmp_path / "bundle", threads=1)
    columns = {"text": ["Bob lives in Paris", "Ada sings"]}
    answers = predictor.predict(columns)
    with torch.no_grad():
        inputs = torch.from_numpy(predictor_ids(data.token_names, columns["text"], 5))
        expected = made(inputs).argmax(-1).numpy()
    assert answers.classes is not None
    assert answers.classes[0, :4].tolist() == [
        data.class_names[number] for number in expected[0, :4]
    ]
    assert [row.tolist()[length:] for row, length in zip(answers.classes, (4, 2), strict=True)] == [
        [""],
        [""] * 3,
    ]
    assert [len(row[0].split()) for row in table_of(card, answers)[1]] == [4, 2]
    [first, _] = answers_as_json(card, answers)
    assert first == {"classes": answers.classes[0].tolist()}
    assert answer_schema(card.outputs[0])["required"] == ["classes"]
    pd.DataFrame(columns).to_csv(tmp_path / "new.csv", index=False)
    header, *lines = run_script(tmp_path / "bundle", tmp_path / "new.csv")
    assert [header] == table_of(card, answers)[0]
    assert [[line] for line in lines] == table_of(card, answers)[1]


def predictor_ids(vocabulary: tuple[str, ...], texts: list[str], context: int) -> np.ndarray:
    rows = [
        [vocabulary.index(word) if word in vocabulary else 1 for word in text.split()]
        for text in texts
    ]
    return np.array([(row + [0] * context)[:context] for row in rows])


@pytest.mark.slow
def test_each_pixel_has_a_class(tmp_path: Path) -> None:
    made, data, card = exported(tmp_path / "bundle", "unet", {"name": "masks"}, width=4)
    assert (card.outputs[0].kind, card.outputs[0].shape) == ("classes", (32, 32, 11))
    inputs = data.validation.batch(np.arange(7))[0]
    predictor = Predictor.open(tmp_path / "bundle", threads=1)
    for size in (1, 7):
        answers = predictor.predict({"inputs": np.round(inputs[:size] * 127.5 + 127.5)})
        with torch.no_grad():
            expected = made(torch.from_numpy(inputs[:size])).softmax(-1).numpy()
        assert answers.probabilities is not None
        np.testing.assert_allclose(answers.probabilities, expected, atol=1e-5)
        assert answers.classes is not None
        assert answers.classes.shape == (size, 32, 32)


@pytest.mark.slow
def test_boxes_are_found_in_an_image_everywhere(tmp_path: Path) -> None:
    made, data, card = exported(tmp_path / "bundle", "detector", {"name": "boxes"}, width=4)
    assert (card.outputs[0].kind, card.outputs[0].shape) == ("boxes", (8, 8, 14))
    inputs = data.validation.batch(np.arange(7))[0]
    pixels = np.round(inputs * 127.5 + 127.5)
    predictor = Predictor.open(tmp_path / "bundle", threads=1)
    for size in (1, 7):
        answers = predictor.predict({"inputs": pixels[:size]})
        with torch.no_grad():
            boxes = made(torch.from_numpy(inputs[:size]))
        expected = torch.cat([boxes[..., :4], boxes[..., 4:].sigmoid()], dim=-1)
        assert answers.values is not None
        np.testing.assert_allclose(answers.values, expected.numpy(), atol=1e-5)


@pytest.mark.slow
def test_found_boxes_are_the_same_in_python_in_the_script_and_served(tmp_path: Path) -> None:
    # Untrained scores are all alike and low, so that the last layer is made to answer with some
    # boxes.
    def raised(model: Any) -> None:
        with torch.no_grad():
            model.layers[-1].weight.mul_(8.0)
            model.layers[-1].bias[4:] = -1.0

    _, data, card = exported(
        tmp_path / "bundle", "detector", {"name": "boxes"}, change=raised, width=4
    )
    pixels = np.round(data.validation.batch(np.arange(5))[0] * 127.5 + 127.5)
    np.save(tmp_path / "scenes.npy", pixels)
    predictor = Predictor.open(tmp_path / "bundle", threads=1)
    answers = predictor.predict(columns_from(card, tmp_path / "scenes.npy"))
    assert answers.boxes is not None
    assert min(map(len, answers.boxes)) > 3

    header, rows = table_of(card, answers)
    assert header == ["prediction"]
    assert [json.loads(row[0]) for row in rows] == answers.boxes
    first, *cells = csv.reader(run_script(tmp_path / "bundle", tmp_path / "scenes.npy"))
    assert first == ["prediction"]
    printed = [json.loads(cell) for (cell,) in cells]
    for mine, others in zip(answers.boxes, printed, strict=True):
        assert [box["class"] for box in mine] == [box["class"] for box in others]
        np.testing.assert_allclose(
            [list(box.values())[1:] for box in mine],
            [list(box.values())[1:] for box in others],
            rtol=1e-5,
        )

    read = RowReader(card).read([{"inputs": image.tolist()} for image in pixels])
    served = answers_as_json(card, predictor.compute(feeds_of_rows(card, read)))
    assert served == [{"boxes": boxes} for boxes in answers.boxes]
    for answer in served:
        Draft202012Validator(answer_schema(card.outputs[0])).validate(answer)


@pytest.mark.slow
def test_no_window_of_an_exported_forecaster_mixes_two_series(tmp_path: Path) -> None:
    days = pd.date_range("2024-01-01", periods=60, freq="D").astype(str)
    series = {"a": np.sin(np.arange(60.0)), "b": 5 + np.cos(np.arange(60.0))}
    frame = pd.concat(
        [pd.DataFrame({"day": days, "shop": name, "sold": sold}) for name, sold in series.items()]
    )
    frame = frame.sort_values(["day", "shop"])  # the rows of the two alternate
    frame.to_csv(tmp_path / "sales.csv", index=False)
    options = {"name": "series", "path": str(tmp_path / "sales.csv"), "time": "day"}
    options |= {"group": "shop", "targets": ["sold"], "lookback": 6, "horizon": 2}
    _, _, card = exported(tmp_path / "bundle", "forecaster", options)
    assert card.inputs[0].group == "shop"
    windows = np.concatenate(
        [[sold[first : first + 6] for first in range(55)] for sold in series.values()]
    )
    predictor = Predictor.open(tmp_path / "bundle", threads=1)
    known = predictor.predict({"inputs": windows[:, :, None]}).values
    assert known is not None
    for samples in (frame, tmp_path / "sales.csv"):
        values = predictor.predict(columns_from(card, samples)).values
        assert values == pytest.approx(known, abs=1e-5)
    printed = run_script(tmp_path / "bundle", tmp_path / "sales.csv")[1:]
    scripted = np.array([[float(cell) for cell in line.split(",")] for line in printed])
    assert scripted == pytest.approx(known.reshape(len(known), -1), abs=1e-5)
    # A file of one shop needs no such column.
    alone = frame[frame["shop"] == "b"].drop(columns="shop")
    values = predictor.predict(columns_from(card, alone)).values
    assert values == pytest.approx(known[55:], abs=1e-5)
