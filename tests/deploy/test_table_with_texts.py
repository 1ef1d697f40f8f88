"""A table with columns of sentences gets the same answers from the model and all its copies."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from workbench.data.encoders import TableEncoder, learn_encoder
from workbench.deploy.card import Output
from workbench.deploy.exported_bundle import Exported, write
from workbench.deploy.exported_model import Member, build
from workbench.deploy.predictor import Predictor
from workbench.deploy.rows import columns_from
from workbench.deploy.serving.client_rows import RowReader, feeds_of_rows
from workbench.runs.automl.exported_ensemble import _inputs, _terms

WORDS = ["Straße", "Garten", "kitchen", "Süd", "old", "quiet", "noisy", "roof", "See", "wall"]


def homes(num_rows: int, seed: int) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    texts = [" ".join(random.choice(WORDS, 5)) for _ in range(num_rows)]
    # A column has the name that the graph would give to the counts of terms.
    return pd.DataFrame(
        {
            "counts": random.normal(size=num_rows).round(3),
            "city": random.choice(["Rome", "Oslo"], num_rows),
            "title": [text[:12] if place % 3 else None for place, text in enumerate(texts)],
            "text": texts,
        }
    )


NEW = homes(6, 5)
NEW["text"] = [
    "",
    None,
    "QUIET ROOF an der STRAßE",
    "völlig neue wörter",
    "old, old OLD; x y",
    "NA",
]
NEW.loc[1, "title"] = "See"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    """Return a bundle of models of three folds, and what they answer for new rows.

    In the second fold all texts are the same, and in the third all other columns.
    """
    table = homes(120, 0)
    targets = np.array([[text.count("See") + 0.0] for text in table["text"]])
    folds = [
        table,
        table.assign(text="See", title=None),
        table.assign(counts=1.0, city="Rome"),
    ]
    names = ["title", "text"]
    encoders = [learn_encoder("table", fold, targets=targets, text_columns=names) for fold in folds]
    torch.manual_seed(0)
    members = []
    for encoder in encoders:
        assert isinstance(encoder, TableEncoder)
        model = nn.Sequential(
            nn.Linear(encoder.encode(table).shape[1], 8), nn.Tanh(), nn.Linear(8, 1)
        )
        parts = {"columns": encoder.columns, "pairs": encoder.pairs, "table_texts": encoder.texts}
        members.append(Member(model.eval(), target_scale=3.0, **parts))
    assert [member.table_texts is None for member in members] == [False, True, False]
    assert not members[2].columns

    def answered(rows: pd.DataFrame) -> np.ndarray:
        with torch.inference_mode():
            outputs = [
                3.0 * member.model(torch.from_numpy(encoder.encode(rows))).numpy()[:, 0]
                for member, encoder in zip(members, encoders, strict=True)
            ]
        return np.mean(outputs, axis=0)

    inputs, columns = _inputs(members, table)
    terms = _terms(members)
    output = Output(name="values", kind="values")
    weighted = [(member, 1 / 3) for member in members]
    examples = [encoder.encode(table[:7]) for encoder in encoders]
    folder = tmp_path_factory.mktemp("bundle")
    write(
        folder,
        build(weighted, inputs, output, examples, terms=terms),
        Exported("homes", "r1", None, "mean", "homes", "regression", {}, 120),
        inputs=inputs,
        output=output,
        samples=columns,
        expected=lambda places: answered(table.iloc[places]),
        terms=terms,
    )
    return folder, answered(NEW)


@pytest.mark.slow
def test_a_data_frame_and_a_file_are_answered_as_by_the_model(
    bundle: tuple[Path, np.ndarray], tmp_path: Path
) -> None:
    folder, expected = bundle
    predictor = Predictor.open(folder)
    card = predictor.card
    assert [taken.kind for taken in card.inputs] == ["number", "category", "text", "text"]
    assert card.counts_name == "counts_"
    NEW.to_csv(tmp_path / "new.csv", index=False)
    for samples in (NEW, tmp_path / "new.csv", NEW.to_dict("records")):
        answers = predictor.predict(columns_from(card, samples))
        assert answers.values is not None
        np.testing.assert_allclose(answers.values, expected, atol=1e-5)


def test_rows_of_a_request_are_answered_as_by_the_model(bundle: tuple[Path, np.ndarray]) -> None:
    folder, expected = bundle
    predictor = Predictor.open(folder)
    sent = json.loads(NEW.to_json(orient="records"))
    rows = RowReader(predictor.card).read(sent)
    answers = predictor.compute(feeds_of_rows(predictor.card, rows))
    assert answers.values is not None
    np.testing.assert_allclose(answers.values, expected, atol=1e-5)


def test_many_rows_are_counted_in_parts(
    bundle: tuple[Path, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, expected = bundle
    monkeypatch.setattr("workbench.deploy.predictor._MAX_COUNTED", 4)
    predictor = Predictor.open(folder)
    answers = predictor.predict(columns_from(predictor.card, NEW))
    assert answers.values is not None
    np.testing.assert_allclose(answers.values, expected, atol=1e-5)


def test_the_script_answers_as_the_model(bundle: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    folder, expected = bundle
    NEW.to_csv(tmp_path / "new.csv", index=False, quoting=csv.QUOTE_ALL)
    done = subprocess.run(
        [sys.executable, str(folder / "predict.py"), str(tmp_path / "new.csv")],
        capture_output=True,
        text=True,
        check=True,
    )
    head, *lines = done.stdout.splitlines()
    assert head == "prediction"
    answers = [float(line) for line in lines]
    np.testing.assert_allclose(answers, expected, atol=1e-5)
