from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.deploy.trained import experiment, exported, trained, write_table
from workbench.data import load
from workbench.data.tables import TableOptions
from workbench.deploy.card import CARD, read_card
from workbench.deploy.exported_bundle import Exported, add_mean
from workbench.deploy.onnx_export import difference_of, write_onnx
from workbench.deploy.predictor import Predictor, open_session
from workbench.deploy.rows import columns_from, table_of
from workbench.deploy.serving.client_rows import RowReader, answers_as_json, feeds_of_rows
from workbench.foundation.errors import DataError, RunError
from workbench.models import MODELS
from workbench.models.ensemble_selection import weighted_mean
from workbench.training.ensembles import in_unit_of_target, predict

TEXT = {"name": "text", "context": 8, "max_characters": 2000}
DATA: dict[str, Any] = {"lstm": TEXT, "transformer": TEXT}
OF_OTHER_DATA: dict[str, Any] = {
    "forecaster": {"name": "series", "targets": ["load"], "lookback": 12, "horizon": 3},
    "text_encoder": {"name": "labelled_text"},
    "unet": {"name": "masks"},
    "detector": {"name": "boxes"},
}
"""Models whose bundles take data of their own: `test_exported_applications` has them."""
SMALL: dict[str, dict[str, Any]] = {
    "transformer": {"width": 16, "num_layers": 2},
    "resnet": {"depth": 8},
    "boosted_trees": {"num_trees": 9},
    "forest": {"num_trees": 9},
    "tabular_mlp": {"num_passes": 1.0, "hidden_width": 8, "num_members": 2},
    "lightgbm": {"num_trees": 5, "max_leaves": 7},
    "xgboost": {"num_trees": 5, "max_depth": 3},
    "catboost": {"num_trees": 5, "depth": 3},
    "text_encoder": {"width": 16, "num_layers": 1},
    "unet": {"width": 4},
    "detector": {"width": 4},
}
# Allows only what predict.py needs.
BLOCK = """
import runpy, sys
class Block:
    def find_spec(self, name, path=None, target=None):
        heavy = "torch ray workbench pandas sklearn onnx pydantic scipy".split()
        if name.partition(".")[0] in heavy:
            raise ImportError(name)
sys.meta_path.insert(0, Block())
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


# one_of is any, a foundation model is no graph, and hf needs a folder
EXPORTED = sorted({*MODELS.names()} - {*OF_OTHER_DATA, "one_of", "foundation", "hf"})
USUAL = ("mlp", "convnet", "transformer", "lightgbm")


@pytest.mark.parametrize(
    "model",
    [name if name in USUAL else pytest.param(name, marks=pytest.mark.slow) for name in EXPORTED],
)
def test_every_model_of_the_zoo_answers_as_torch_does(model: str, tmp_path: Path) -> None:
    if model in ("lightgbm", "xgboost", "catboost"):
        pytest.importorskip(model)
    made, data, card = exported(
        tmp_path / "bundle", model, DATA.get(model, "digits"), **SMALL.get(model, {})
    )

    predictor = Predictor.open(tmp_path / "bundle", threads=1)
    inputs = data.validation.batch(np.arange(7))[0]
    raw = inputs
    if not DATA.get(model):  # pixels from 0 to 16, as the model's users have them
        train = data.train.batch(np.arange(len(data.train)))[0]
        scale = 16.0 / np.ptp(train)
        mean = -float(train.min()) * scale
        raw = np.round(inputs * scale + mean).astype(np.float32)
    for size in (1, 7):
        with torch.no_grad():
            expected = made(torch.from_numpy(inputs[:size]))
        answers = predictor.predict({"inputs": raw[:size]})
        outputs = answers.values if answers.probabilities is None else answers.probabilities
        expected = expected if answers.probabilities is None else expected.softmax(-1)
        assert np.abs(outputs - expected.numpy()).max() <= 1e-5 * max(
            1.0, float(expected.abs().max())
        )
    assert (card.outputs[0].kind, len(card.outputs[0].classes)) == (
        ("outputs", 0) if DATA.get(model) else ("classes", 10)
    )


@pytest.mark.slow
@pytest.mark.parametrize("model", OF_OTHER_DATA)
def test_networks_of_other_data_answer_as_torch_does(model: str, tmp_path: Path) -> None:
    wanted = experiment(model, OF_OTHER_DATA[model]).data
    assert wanted is not None
    data = load(wanted.name, wanted.options)
    made = trained(model, data, **SMALL.get(model, {}))
    inputs = torch.from_numpy(data.validation.batch(np.arange(7))[0])

    write_onnx(made, inputs[:2], tmp_path / "model.onnx")

    session = open_session(tmp_path / "model.onnx", threads=1)
    for size in (1, 7):
        with torch.no_grad():
            expected = made(inputs[:size])
        outputs = session.run(None, {session.get_inputs()[0].name: inputs[:size].numpy()})[0]
        assert difference_of(torch.from_numpy(outputs), expected) <= 1e-5


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pd.DataFrame, Any]:
    folder = tmp_path_factory.mktemp("house")
    frame = write_table(folder / "houses.csv")
    options = {"path": str(folder / "houses.csv"), "target": "price"}
    made, _, _ = exported(
        folder / "bundle", "boosted_trees", {"name": "table", **options}, num_trees=40
    )
    reading = TableOptions.model_validate(options).reading(seed=0)

    def expected(rows: pd.DataFrame) -> np.ndarray:
        encoded = np.concatenate(
            [column.encode(rows[column.name]) for column in reading.columns], axis=1
        )
        prices = pd.read_csv(folder / "houses.csv")["price"]
        assert prices.min() < reading.target_mean < prices.max()
        outputs = made(torch.from_numpy(encoded.astype(np.float32))).numpy()[:, 0]
        return outputs * reading.target_scale + reading.target_mean

    return folder, frame, expected


def test_rows_of_a_table_are_encoded_in_the_graph(house: tuple[Path, pd.DataFrame, Any]) -> None:
    folder, frame, expected = house
    predictor = Predictor.open(folder / "bundle")
    changed = frame.head(6).copy()
    changed.loc[0, "colour"] = "mauve"
    changed.loc[1, ["size", "day", "town"]] = None
    changed.loc[2, "at"] = "2031-05-01T12:30:00Z"
    changed.to_csv(folder / "new.csv", index=False)

    answers = predictor.predict(columns_from(predictor.card, changed))

    assert answers.values is not None
    assert answers.values == pytest.approx(expected(changed), rel=1e-5)
    assert len(set(answers.values)) > 1
    from_file = predictor.predict(columns_from(predictor.card, folder / "new.csv"))
    assert from_file.values is not None
    assert from_file.values.tolist() == answers.values.tolist()
    text = "\n".join(answers.notes)
    assert (
        "column 'colour' contains values that did not occur in training in row 0 (from 0), such as"
        " 'mauve'" in text
    )
    assert "column 'day' is missing in row 1 (from 0)" in text
    assert "size" not in text, "it was missing in training too"


def test_the_mean_of_models_answers_in_the_unit_of_the_target(tmp_path: Path) -> None:
    frame = write_table(tmp_path / "houses.csv", 120)
    options = {"name": "table", "path": str(tmp_path / "houses.csv"), "target": "price"}
    wanted = experiment("mlp", options)
    assert wanted.data is not None
    data = load(wanted.data.name, wanted.data.options, seed=wanted.seed)
    models = [trained("mlp", data, hidden_width=8), trained("boosted_trees", data, num_trees=9)]
    origin = Exported("mine", "mine-1", None, "two", "houses", data.task, {}, len(data.train))

    add_mean(tmp_path, [(models[0], 0.25), (models[1], 0.75)], data, wanted, origin)

    places = np.arange(len(data.train))
    inputs, scaled = data.train.batch(places)
    means = weighted_mean(
        [predict(model, inputs, is_classes=False) for model in models], [0.25, 0.75]
    )
    expected = in_unit_of_target(means, wanted)[:, 0]
    prices = in_unit_of_target(scaled.astype(np.float64).reshape(-1), wanted)
    rows = [int(np.abs(frame["price"] - price).argmin()) for price in prices]
    predictor = Predictor.open(tmp_path)
    answers = predictor.predict(columns_from(predictor.card, frame.iloc[rows]))
    assert answers.values == pytest.approx(expected, rel=1e-4)
    assert frame["price"].min() < expected.mean() < frame["price"].max()


@pytest.mark.parametrize("separator", [",", ";"])
def test_numbers_written_as_text_are_read_alike_by_training_predict_and_the_script(
    tmp_path: Path, separator: str
) -> None:
    random = np.random.default_rng(0)
    paid, size = random.integers(800, 4000, 300), random.normal(10, 3, 300).round(2)
    frame = pd.DataFrame({"paid": [f"{number:,}" for number in paid], "size": size.astype(str)})
    frame.loc[::30, "size"] = "?"
    frame.loc[5, "size"] = "unknown"
    frame.assign(price=paid + 50 * size).to_csv(tmp_path / "table.csv", index=False, sep=separator)
    options = {"path": str(tmp_path / "table.csv"), "target": "price"}
    exported(tmp_path / "bundle", "boosted_trees", {"name": "table", **options}, num_trees=20)
    given = [("1,200", "?"), ("2,000.0", "Unknown"), ("3000", " 9.5 "), ("N/A", "12")]
    plain = [(1200, np.nan), (2000, np.nan), (3000, 9.5), (np.nan, 12)]
    new = tmp_path / "new.csv"
    pd.DataFrame(given, columns=["paid", "size"]).to_csv(new, index=False, sep=separator)

    predictor = Predictor.open(tmp_path / "bundle", threads=1)
    answers = predictor.predict(columns_from(predictor.card, new))
    expected = predictor.predict(
        columns_from(predictor.card, pd.DataFrame(plain, columns=["paid", "size"]))
    )
    script = subprocess.run(
        [sys.executable, str(tmp_path / "bundle" / "predict.py"), str(new)],
        capture_output=True,
        text=True,
        check=True,
    )

    assert answers.values is not None
    assert expected.values is not None
    assert answers.values.tolist() == expected.values.tolist()
    header, *printed = script.stdout.splitlines()
    assert header == "prediction"
    printed = [float(line) for line in printed]
    np.testing.assert_allclose(np.ravel(printed), answers.values, rtol=1e-6)
    columns = TableOptions.model_validate(options).reading(seed=0).columns
    for column in columns:
        rows = [
            pd.DataFrame(values, columns=["paid", "size"])[column.name] for values in (given, plain)
        ]
        np.testing.assert_array_equal(column.encode(rows[0]), column.encode(rows[1]))
    with pytest.raises(
        DataError, match=r"column 'size', row 0 \(from 0\) contains 'many'; allowed: a number"
    ):
        predictor.predict({"paid": ["1,000"], "size": ["many"]})
    with pytest.raises(DataError, match="contains '1,000'"):
        predictor.predict({"paid": ["1,000"], "size": ["1,000"]})


def test_values_of_any_kind_are_answered_alike_by_torch_predict_and_the_rows_of_a_client(
    tmp_path: Path,
) -> None:
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "code": random.choice(["NA", "None", "-", "", "DE"], 120),
            "gap": random.choice(np.array(["", "NA", "a", None], dtype=object), 120),
            "is_new": pd.array(random.choice(np.array([True, False, None]), 120), dtype="boolean"),
            "took": pd.to_timedelta(random.integers(1, 9e6, 120), unit="ms"),
            "day": pd.date_range("2024-01-01", periods=120).strftime("%d.%m.%y"),
            "price": random.normal(50, 9, 120),
        }
    )
    frame.loc[7, "took"] = pd.NaT
    frame.to_parquet(tmp_path / "table.parquet")
    options = {"path": str(tmp_path / "table.parquet"), "target": "price"}
    made, _, card = exported(tmp_path / "bundle", "mlp", {"name": "table", **options})
    columns = TableOptions.model_validate(options).reading(seed=0).columns
    encoded = np.concatenate([column.encode(frame[column.name]) for column in columns], axis=1)
    with torch.no_grad():
        expected = in_unit_of_target(
            made(torch.from_numpy(encoded.astype(np.float32))).numpy(),
            experiment("mlp", {"name": "table", **options}),
        )[:, 0]

    assert next(one for one in card.inputs if one.name == "took").example < 9000, (
        "in seconds, as it is read"
    )
    predictor = Predictor.open(tmp_path / "bundle", threads=1)
    answers = predictor.predict(columns_from(card, frame))
    assert answers.values == pytest.approx(expected, rel=1e-5)
    assert not answers.notes
    rows = json.loads(frame.assign(took=frame["took"].dt.total_seconds()).to_json(orient="records"))
    reader = RowReader(card)
    sent = reader.read([{one.name: row[one.name] for one in card.inputs} for row in rows])
    assert predictor.run(feeds_of_rows(card, sent)) == pytest.approx(expected, rel=1e-5)
    shown = answers_as_json(card, answers)
    assert not [note for pair in zip(sent, shown, strict=True) for note in reader.notes(*pair)]


@pytest.mark.parametrize("model", ["boosted_trees", "forest"])
def test_trees_that_found_nothing_to_divide_answer_what_they_began_with(
    model: str, tmp_path: Path
) -> None:
    frame = pd.DataFrame({"x": np.zeros(40), "y": ["a"] * 8 + ["b"] * 12 + ["c"] * 20})
    frame.to_csv(tmp_path / "table.csv", index=False)
    data = {"name": "table", "path": str(tmp_path / "table.csv"), "target": "y"}
    _, loaded, card = exported(tmp_path / "bundle", model, data, num_trees=3)

    probabilities = (
        Predictor.open(tmp_path / "bundle", threads=1).predict({"x": [0.0, 5.0]}).probabilities
    )

    classes = loaded.train.batch(np.arange(len(loaded.train)))[1]
    assert probabilities is not None
    # A forest votes with drawn rows; boosted trees begin with the shares of the classes.
    expected = np.bincount(classes) / len(classes)
    assert probabilities == pytest.approx(
        np.array([expected, expected]), abs=1e-6 if model == "boosted_trees" else 0.2
    )
    assert card.outputs[0].classes == ("a", "b", "c")


def test_a_frame_with_a_repeated_column_is_refused_as_a_file_is(
    house: tuple[Path, pd.DataFrame, Any],
) -> None:
    folder, frame, _ = house
    card = Predictor.open(folder / "bundle").card
    with pytest.raises(DataError, match="the table has more than one column named 'town'"):
        columns_from(card, pd.concat([frame, frame[["town"]]], axis=1))


def test_a_table_that_a_program_wrote_again_has_the_same_answers_in_every_door(
    tmp_path: Path,
) -> None:
    """Training had 1,234 for one and a fifth.

    Pandas writes 1.234, which alone could be a thousand.
    """
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"weight": random.uniform(1, 9, 80).round(3), "share": random.uniform(0, 1, 80).round(1)}
    )
    frame["price"] = frame["weight"] * 10 + frame["share"]
    frame.to_csv(tmp_path / "german.csv", index=False, sep=";", decimal=",")
    frame.to_csv(tmp_path / "points.csv", index=False)
    frame.to_csv(tmp_path / "mixed.csv", index=False, sep=";")
    frame[:1].to_csv(tmp_path / "one.csv", index=False)
    data = {"name": "table", "path": str(tmp_path / "german.csv"), "target": "price"}
    _, _, card = exported(tmp_path / "bundle", "boosted_trees", data, num_trees=20)
    predictor = Predictor.open(tmp_path / "bundle", threads=1)
    expected = predictor.predict(columns_from(card, frame)).values
    assert expected is not None
    for name in ("german", "points", "mixed", "one"):
        path = tmp_path / f"{name}.csv"
        values = predictor.predict(columns_from(card, path)).values
        assert values is not None
        assert values.tolist() == expected[: len(values)].tolist(), name
        script = [sys.executable, str(tmp_path / "bundle" / "predict.py"), str(path)]
        printed = subprocess.run(script, capture_output=True, text=True, check=True).stdout
        np.testing.assert_allclose(
            [float(line) for line in printed.splitlines()[1:]], values, rtol=1e-6
        )


def test_a_file_with_a_header_only_has_no_answers(house: tuple[Path, pd.DataFrame, Any]) -> None:
    folder, frame, _ = house
    frame.head(0).to_csv(folder / "none.csv", index=False)
    predictor = Predictor.open(folder / "bundle")

    answers = predictor.predict(columns_from(predictor.card, folder / "none.csv"))

    assert table_of(predictor.card, answers) == (["prediction"], [])


def test_rows_in_windows_1252_are_read(house: tuple[Path, pd.DataFrame, Any]) -> None:
    folder, frame, _ = house
    card = Predictor.open(folder / "bundle").card
    rows = frame.head(3).assign(colour="gr\u00fcn")
    rows.to_csv(folder / "latin.csv", index=False, encoding="cp1252")
    columns = columns_from(card, folder / "latin.csv")
    assert list(columns["colour"]) == ["gr\u00fcn"] * 3


def test_an_array_without_samples_has_no_answers(tmp_path: Path) -> None:
    exported(tmp_path / "bundle", "mlp", "digits")
    predictor = Predictor.open(tmp_path / "bundle", threads=1)

    answers = predictor.predict(columns_from(predictor.card, np.zeros((0, 1, 8, 8))))

    assert table_of(predictor.card, answers)[1] == []


def test_values_of_another_kind_are_refused_with_column_and_row(
    house: tuple[Path, pd.DataFrame, Any],
) -> None:
    folder, frame, _ = house
    predictor = Predictor.open(folder / "bundle")
    rows = frame.head(3).to_dict("list")
    cases: list[tuple[dict[str, Any], str]] = [
        (
            {"size": [1.0, "large", "small"]},
            r"column 'size', row 1 \(from 0\) contains 'large'; allowed: a number",
        ),
        (
            {"day": ["01/02/2024", "soon", "later"]},
            r"column 'day', row 1 .* a date as day/month/year",
        ),
        ({"size": [1.0]}, "different lengths"),
    ]
    for change, message in cases:
        with pytest.raises(DataError, match=message):
            predictor.predict({**rows, **change})
    with pytest.raises(DataError, match=r"there is no column 'size'; needed: colour, size"):
        predictor.predict({name: values for name, values in rows.items() if name != "size"})


def test_infinite_numbers_count_as_missing_and_are_said(
    house: tuple[Path, pd.DataFrame, Any],
) -> None:
    folder, frame, _ = house
    predictor = Predictor.open(folder / "bundle")
    rows = frame.head(3).to_dict("list")
    answers = predictor.predict({**rows, "size": [1.0, float("inf"), float("-inf")]})
    missing = predictor.predict({**rows, "size": [1.0, None, None]})
    assert answers.values.tolist() == missing.values.tolist()
    assert any("'size' is infinite in rows 1, 2" in note for note in answers.notes), answers.notes


NOTE = "predict.py: column 'town' contains values that did not occur in training"
"""What the script says of the rows, which have towns that training has not seen."""


def without_rows(text: str) -> str:
    return text.partition(" in rows ")[0]


def test_the_script_needs_numpy_and_onnxruntime_only(house: tuple[Path, pd.DataFrame, Any]) -> None:
    folder, frame, expected = house
    words = [
        sys.executable,
        "-I",
        "-c",
        BLOCK,
        str(folder / "bundle" / "predict.py"),
        str(folder / "houses.csv"),
    ]

    done = subprocess.run(words, capture_output=True, text=True, check=False)

    assert (done.returncode, without_rows(done.stderr)) == (0, NOTE)
    assert [float(line) for line in done.stdout.split()[1:]] == pytest.approx(
        expected(frame), rel=1e-5
    )
    script = (folder / "bundle" / "predict.py").read_text()
    assert "workbench" not in script.replace("the workbench", "")


def test_the_script_ends_quietly_where_nobody_reads_its_answers_to_the_end(
    house: tuple[Path, pd.DataFrame, Any],
) -> None:
    folder, _, _ = house
    reads, writes = os.pipe()
    os.close(reads)

    done = subprocess.run(
        [sys.executable, str(folder / "bundle" / "predict.py"), str(folder / "houses.csv")],
        stdout=writes,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )

    os.close(writes)
    assert (done.returncode, without_rows(done.stderr)) == (0, NOTE)


@pytest.mark.slow
def test_a_bundle_predicts_in_an_environment_with_numpy_and_onnxruntime_only(
    house: tuple[Path, pd.DataFrame, Any], tmp_path: Path
) -> None:
    folder, frame, expected = house
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "env")], check=True)
    python = str(tmp_path / "env" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", "numpy", "onnxruntime"], check=True)

    out = subprocess.run(
        [python, str(folder / "bundle" / "predict.py"), str(folder / "houses.csv")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert [float(line) for line in out.split()[1:]] == pytest.approx(expected(frame), rel=1e-5)


def test_the_command_predicts_without_torch_and_ray(house: tuple[Path, pd.DataFrame, Any]) -> None:
    folder, frame, expected = house
    bundle, rows = str(folder / "bundle"), str(folder / "houses.csv")
    program = (
        "import sys; from workbench.cli.entry import run_command\ncode = run_command(['predict',"
        f" {bundle!r}, {rows!r}, '--json'])\nprint(code, sorted({{'torch', 'ray', 'pandas',"
        " 'sklearn'} & set(sys.modules)), file=sys.stderr)"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stderr.splitlines()[-1] == "0 []"
    document = json.loads(done.stdout)
    assert "column 'town' contains values that did not occur in training" in document["messages"][0]
    assert [row["prediction"] for row in document["predictions"]] == pytest.approx(
        expected(frame), rel=1e-5
    )


def test_the_card_states_what_the_model_is_and_what_it_was_trained_on(
    house: tuple[Path, pd.DataFrame, Any],
) -> None:
    folder, frame, _ = house
    card = read_card(folder / "bundle")

    assert {one.name: one.kind for one in card.inputs} == {
        "colour": "category",
        "size": "number",
        "day": "date",
        "at": "date",
        "town": "category",
        "new": "number",
        "share": "number",
    }
    assert (card.outputs[0].kind, card.outputs[0].targets) == ("values", ("price",))
    assert {(metric.name, metric.split) for metric in card.metrics} == {
        ("loss", "validation"),
        ("accuracy", "validation"),
    }
    colour = card.input("colour")
    assert colour is not None
    assert set(colour.categories) == {"red", "green", "blue"}
    size = card.statistics["size"]
    assert len(size.shares) == len(size.edges) + 1
    assert sum(size.shares) == pytest.approx(1.0)
    assert size.missing == pytest.approx(frame["size"].isna().mean(), abs=0.05)
    assert card.answers is not None


def test_a_changed_model_and_an_unknown_card_are_refused(
    house: tuple[Path, pd.DataFrame, Any], tmp_path: Path
) -> None:
    content = json.loads((house[0] / "bundle" / CARD).read_text())
    (tmp_path / CARD).write_text(json.dumps(content))
    (tmp_path / "model.onnx").write_bytes(b"another model")
    with pytest.raises(RunError, match="its SHA-256 differs"):
        Predictor.open(tmp_path)
    (tmp_path / CARD).write_text(json.dumps(content | {"version": 99}))
    with pytest.raises(
        RunError, match="format version 99, but this workbench reads versions up to 1"
    ):
        Predictor.open(tmp_path)
    (tmp_path / CARD).unlink()
    with pytest.raises(RunError, match=r"has no card\.json"):
        Predictor.open(tmp_path)
    (tmp_path / "configuration.json").write_text("{}")
    with pytest.raises(
        RunError, match="contains no model: it was exported without weights, or its train function"
    ):
        Predictor.open(tmp_path)
    (tmp_path / "weights.safetensors").touch()
    with pytest.raises(RunError, match="was exported without --format onnx"):
        Predictor.open(tmp_path)
    (tmp_path / "model").mkdir()
    for kind, task in (
        ("LlamaForCausalLM", "text-generation"),
        ("BertModel", "feature-extraction"),
    ):
        config = tmp_path / "model" / "config.json"
        config.write_text(json.dumps({"architectures": [kind]}))
        with pytest.raises(RunError, match=rf"transformers\.pipeline\(\"{task}\", .*model\"\)"):
            Predictor.open(tmp_path)
