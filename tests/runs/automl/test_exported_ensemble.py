from __future__ import annotations

import csv
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner

import workbench as wb
from tests.builders.recorded_runs import record_run
from tests.data.test_category_pairs import shops
from tests.deploy.test_exported_bundle import BLOCK
from tests.deploy.trained import write_table
from workbench.cli.exported_models import predict
from workbench.foundation.errors import RunError
from workbench.models.configurations import configure
from workbench.runs.automl.class_decisions import Decisions
from workbench.runs.automl.exported_ensemble import write_ensemble
from workbench.runs.automl.model_selection import Candidate, ChosenModel
from workbench.runs.automl.preparation import HeldOut, LearningData, prepare
from workbench.runs.automl.stored_model import without_unused
from workbench.runs.automl.task_detection import as_samples, read_problem


def chosen_from(
    data: Any, target: str | None, *families: str, num_folds: int = 5
) -> tuple[ChosenModel, LearningData, HeldOut]:
    """Return an ensemble of a model of each family on the first folds.

    Fitted models and an untrained `mlp`.
    """
    learning, held_out = prepare(read_problem(data, target), 0, [0, 1, 2, 3, 4])
    num_classes = learning.num_outputs if learning.class_names else None
    candidates = []
    for number, family in enumerate(families):
        models = {}
        for place, fold in enumerate(learning.folds[:num_folds]):
            inputs = fold.train_inputs.reshape(len(fold.train_inputs), -1)
            if family == "mlp":
                torch.manual_seed(number)
                shapes: Any = {"input_shape": fold.input_shape, "num_outputs": learning.num_outputs}
                models[place] = configure(family, {}).build(vocabulary_size=None, **shapes).eval()
                continue
            small = {"num_passes": 5.0} if family == "tabular_mlp" else {"num_trees": 5}
            configuration: Any = configure(family, small)
            *_, models[place] = configuration.grow(
                inputs, fold.train_targets, num_classes=num_classes, num_rounds=1, seed=number
            )
        candidates.append(Candidate(number, family, {"family": family}, models, np.zeros(0), 0.0))
    weights = (0.75, 0.25)[: len(candidates)] if len(candidates) > 1 else (1.0,)
    chosen = ChosenModel(
        tuple(candidates), weights, np.zeros(0), held_out.interpreter, held_out.guess
    )
    return chosen, learning, held_out


@pytest.fixture
def run(tmp_path: Path) -> wb.Run:
    return wb.attach(record_run(tmp_path), store=str(tmp_path / "store.sqlite"))


@pytest.mark.parametrize(
    ("target", "second"),
    [
        ("price", "extra_trees"),
        ("colour", "extra_trees"),
        pytest.param("colour", "tabular_mlp", marks=pytest.mark.slow),
    ],
)
def test_an_ensemble_of_all_folds_is_one_graph_that_takes_the_rows_of_the_table(
    target: str, second: str, run: wb.Run, tmp_path: Path
) -> None:
    frame = write_table(tmp_path / "houses.csv").assign(always=1).dropna(subset=["colour"])
    num_folds = 2 if second == "tabular_mlp" else 5
    chosen, learning, held_out = chosen_from(
        frame, target, "boosted_trees", second, num_folds=num_folds
    )
    assert len(learning.folds) > 1

    model = without_unused(chosen, learning, held_out, values={"test_r2": 0.5}, bands=None)
    write_ensemble(run, model, held_out, tmp_path / "best", label="two", force=False)

    bundle = wb.load_bundle(tmp_path / "best")
    rows = held_out.samples.assign(more="than was learnt")
    rows.to_csv(tmp_path / "rows.csv", index=False)
    expected = chosen.outputs(rows)
    for samples in (rows, tmp_path / "rows.csv"):
        answers = bundle.predict(samples)
        if target == "price":
            assert answers.values == pytest.approx(expected[:, 0], rel=1e-5)
        else:
            assert answers.probabilities == pytest.approx(expected, abs=1e-5)
            assert set(answers.classes) <= {"red", "green", "blue"}
    assert "always" not in {one.name for one in bundle.card.inputs}
    assert (bundle.card.metrics[0].name, bundle.card.metrics[0].split) == ("r2", "test")
    with pytest.raises(RunError, match="its model as ONNX only"):
        _ = bundle.model
    with pytest.raises(RunError, match="is not empty"):
        write_ensemble(run, model, held_out, tmp_path / "best", label="two", force=False)


def test_columns_that_are_encoded_together_are_so_in_the_graph(run: wb.Run, tmp_path: Path) -> None:
    frame, target = shops(num_rows=2_000)
    frame.loc[:100, "year"] = np.nan
    frame.loc[50:150, "shop"] = None
    chosen, learning, held_out = chosen_from(
        frame.assign(sales=target), "sales", "boosted_trees", num_folds=2
    )
    encoders: Any = [reader.encoder for reader in held_out.interpreter.readers]
    assert all(encoder.pairs for encoder in encoders)
    model = without_unused(chosen, learning, held_out, values={}, bands=None)
    write_ensemble(run, model, held_out, tmp_path / "best", label="one", force=False)
    rows = held_out.samples.copy()
    rows.iloc[0, rows.columns.get_loc("shop")] = "a new shop"
    rows.iloc[1, rows.columns.get_loc("year")] = 1900
    rows.to_csv(tmp_path / "rows.csv", index=False)
    bundle = wb.load_bundle(tmp_path / "best")
    expected = chosen.outputs(rows)[:, 0]
    for samples in (rows, tmp_path / "rows.csv"):
        assert bundle.predict(samples).values == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_calibration_and_factors_of_classes_are_those_of_the_bundle(
    run: wb.Run, tmp_path: Path
) -> None:
    frame = write_table(tmp_path / "houses.csv").dropna(subset=["colour"])
    chosen, learning, held_out = chosen_from(frame, "colour", "forest", num_folds=2)
    chosen = replace(chosen, decisions=Decisions(1.7, (1.0, 30.0, 1.0)))
    plain = replace(chosen, decisions=Decisions())
    model = without_unused(chosen, learning, held_out, values={}, bands=None)
    write_ensemble(run, model, held_out, tmp_path / "best", label="one", force=False)
    rows = held_out.samples
    rows.to_csv(tmp_path / "rows.csv", index=False)
    expected = chosen.outputs(rows)
    assert np.abs(expected - plain.outputs(rows)).max() > 0.01
    wanted = np.array(held_out.interpreter.labels)[
        chosen.decisions.weighed(expected).argmax(axis=1)
    ]
    assert (wanted != np.array(held_out.interpreter.labels)[expected.argmax(axis=1)]).any()

    answers = wb.load_bundle(tmp_path / "best").predict(rows)

    assert answers.probabilities == pytest.approx(expected, abs=1e-5)
    assert list(answers.classes) == list(wanted)
    script = [sys.executable, "predict.py", "../rows.csv"]
    printed = subprocess.run(
        script, cwd=tmp_path / "best", capture_output=True, text=True, check=True
    ).stdout
    assert [line.split(",")[0] for line in printed.splitlines()[1:]] == list(wanted)
    arguments = [str(tmp_path / "best"), str(tmp_path / "rows.csv")]
    shown = CliRunner().invoke(predict, arguments, standalone_mode=False)
    assert shown.stdout == printed


@pytest.mark.parametrize("shape", [(6, 5), (6, 5, 3)])
def test_images_are_taken_as_they_were_given(
    shape: tuple[int, ...], run: wb.Run, tmp_path: Path
) -> None:
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (90, *shape)).astype(np.uint8)
    labels = np.where(images[:, 0, 0].reshape(90, -1)[:, 0] > 128, "bright", "dark")
    chosen, learning, held_out = chosen_from((images, labels), None, "forest")

    model = without_unused(chosen, learning, held_out, values={}, bands=None)
    write_ensemble(run, model, held_out, tmp_path / "best", label="one", force=False)

    answers = wb.load_bundle(tmp_path / "best").predict(images[:7])
    assert answers.probabilities == pytest.approx(chosen.outputs(images[:7]), abs=1e-5)


def test_columns_of_an_array_are_known_by_their_place(run: wb.Run, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(120, 4))
    rows[:, 1] = 1.0  # constant, so it is no input
    chosen, learning, held_out = chosen_from((rows, rows[:, 0] + rows[:, 3]), None, "boosted_trees")

    model = without_unused(chosen, learning, held_out, values={}, bands=None)
    write_ensemble(run, model, held_out, tmp_path / "best", label="one", force=False)

    bundle = wb.load_bundle(tmp_path / "best")
    assert [one.name for one in bundle.card.inputs] == ["x0", "x2", "x3"]
    assert bundle.card.inputs[0].learned == held_out.ranges["x0"]
    assert bundle.card.outputs[0].learned == held_out.ranges["prediction"]
    assert not bundle.predict(rows).notes
    (note,) = bundle.predict(rows[:3] * 1000.0).notes
    assert note.startswith("3 rows of 3 are far outside of what was learned: row 0 (from 0) has x0")
    expected = chosen.outputs(pd.DataFrame(rows, columns=["x0", "x1", "x2", "x3"]))[:, 0]
    assert bundle.predict(rows).values == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.slow
def test_predict_py_says_about_odd_rows_what_predict_says(run: wb.Run, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "size": random.normal(size=90),
            "price": random.uniform(5, 20, 90).round(2),
            "town": random.choice(["Bern", "Ulm"], 90),
        }
    )
    table["y"] = table["size"] + 0.1 * table["price"] + (table["town"] == "Ulm")
    chosen, learning, held_out = chosen_from(table, "y", "boosted_trees")
    model = without_unused(chosen, learning, held_out, values={}, bands=None)
    write_ensemble(run, model, held_out, tmp_path / "best", label="one", force=False)
    odd = "0.5,12 €,Bern\n900,7,Paris\n,8,Ulm\ninf,€ 9,\n"
    (tmp_path / "odd.csv").write_text(f"size,price,town\n{odd}")
    (tmp_path / "plain.csv").write_text("size,price,town\n0.5,12,Bern\n0.1,7,Ulm\n")
    (tmp_path / "mixed.csv").write_text("size,price,town\n0.5,12 €,Bern\n0.1,$7,Ulm\n")

    for name, num_notes in (("odd", 6), ("plain", 0)):
        arguments = [str(tmp_path / "best"), str(tmp_path / f"{name}.csv")]
        shown = CliRunner().invoke(predict, arguments, standalone_mode=False)
        script = [sys.executable, "predict.py", f"../{name}.csv"]
        done = subprocess.run(
            script, cwd=tmp_path / "best", capture_output=True, text=True, check=True
        )
        assert done.stdout == shown.stdout
        notes = [line.removeprefix("note: ") for line in shown.stderr.splitlines()]
        told = [line.removeprefix("predict.py: ") for line in done.stderr.splitlines()]
        assert sorted(told) == sorted(notes)
        assert len(notes) == num_notes
    numbers = held_out.interpreter.readers[0].encoder.encode(
        pd.DataFrame({"size": [0.5], "price": ["12 €"], "town": ["Bern"]})
    )
    plain = held_out.interpreter.readers[0].encoder.encode(
        pd.DataFrame({"size": [0.5], "price": [12.0], "town": ["Bern"]})
    )
    np.testing.assert_array_equal(numbers, plain)
    script = [sys.executable, "predict.py", "../mixed.csv"]
    done = subprocess.run(
        script, cwd=tmp_path / "best", capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "is not a number" in done.stderr


def written_texts() -> pd.DataFrame:
    words = ["good", "Bad", "plain", "élan", "l'été", "x_y", "IO", "so-so", "42nd"]
    chance = np.random.default_rng(0)
    texts = [" ".join([*chance.choice(words, 6), f"{number}th"]) for number in range(90)]
    label = ["yes" if "good" in text else "no" for text in texts]
    return pd.DataFrame(
        {"title": [f"The {n}, written" for n in range(90)], "review": texts, "liked": label}
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("columns", "family"), [(["review"], "mlp"), (["title", "review"], "forest")]
)
def test_texts_are_counted_without_scikit_learn(
    columns: list[str], family: str, run: wb.Run, tmp_path: Path
) -> None:
    frame = written_texts()[[*columns, "liked"]]
    chosen, learning, held_out = chosen_from(frame, "liked", family, num_folds=2)

    model = without_unused(chosen, learning, held_out, values={}, bands=None)
    write_ensemble(run, model, held_out, tmp_path / "best", label="two", force=False)

    bundle = wb.load_bundle(tmp_path / "best")
    assert [(one.name, one.kind) for one in bundle.card.inputs] == [
        (name, "text") for name in columns
    ]
    rows = frame[columns].head(9).copy()
    rows.loc[0, "review"] = "nothing-of-this Was Learnt"
    rows.loc[1, "review"] = None
    rows.to_csv(tmp_path / "rows.csv", index=False)
    expected = chosen.outputs(as_samples("texts", rows, columns))
    for samples in (rows, tmp_path / "rows.csv"):
        assert bundle.predict(samples).probabilities == pytest.approx(expected, abs=1e-5)
    script, table = tmp_path / "best" / "predict.py", tmp_path / "rows.csv"
    done = subprocess.run(
        [sys.executable, "-I", "-c", BLOCK, str(script), str(table)],
        capture_output=True,
        text=True,
        check=True,
    )
    header, *named = csv.reader(done.stdout.splitlines())
    assert header == ["prediction", "probability of no", "probability of yes"]
    assert [name for name, *_ in named] == list(bundle.predict(rows).classes)
    shares = [[float(share) for share in row[1:]] for row in named]
    np.testing.assert_allclose(shares, expected, atol=1e-5)


def test_a_mere_guess_is_refused_in_words(run: wb.Run, tmp_path: Path) -> None:
    texts = [f"a {'good' if number % 2 else 'bad'} thing number {number}" for number in range(60)]
    chosen, learning, held_out = chosen_from((texts, [n % 2 for n in range(60)]), None, "forest")
    nothing = ChosenModel((), (), chosen.targets, chosen.interpreter, chosen.guess)
    model = without_unused(nothing, learning, held_out, values={}, bands=None)
    with pytest.raises(RunError, match="no model was ready in time"):
        write_ensemble(run, model, held_out, tmp_path / "best", label="one", force=False)
    assert not (tmp_path / "best").exists()


@pytest.mark.slow
def test_no_probability_is_0_and_none_in_the_graph(run: wb.Run, tmp_path: Path) -> None:
    sizes = np.concatenate([np.linspace(-2000.0, -100.0, 60), np.linspace(100.0, 2000.0, 60)])
    frame = pd.DataFrame({"size": sizes, "kind": np.where(sizes > 0, "large", "small")})
    chosen, learning, held_out = chosen_from(frame, "kind", "mlp", num_folds=1)
    weights: Any = chosen.candidates[0].models[0]
    with torch.no_grad():
        for parameter in weights.parameters():
            parameter.mul_(1000.0)  # as sure as if the classes were far apart in many columns
    model = without_unused(chosen, learning, held_out, values={}, bands=None)
    write_ensemble(run, model, held_out, tmp_path / "best", label="one", force=False)
    rows = pd.DataFrame({"size": [-1e6, 1e6]})
    answers = wb.load_bundle(tmp_path / "best").predict(rows).probabilities
    assert answers is not None
    for shares in (chosen.outputs(rows), answers):
        assert shares.min() == pytest.approx(1e-7, rel=1e-3)
        np.testing.assert_allclose(shares.sum(axis=1), 1.0)
