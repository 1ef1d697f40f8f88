"""What is known of a group is added to predictions for it, at every door, and not to its score."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests.builders.ended_automl import create_automl, end
from workbench.deploy.predictor import Predictor
from workbench.deploy.serving.client_rows import RowReader, feeds_of_rows
from workbench.runs.automl import refitting
from workbench.runs.automl.group_offsets import group_texts, learn_offsets
from workbench.runs.automl.preparation import AllRows, Reader

TREES = {
    "family": "boosted_trees",
    "boosted_trees_num_trees": 20,
    "boosted_trees_shrinkage": 0.2,
    "boosted_trees_max_leaves": 4,
    "boosted_trees_min_samples_leaf": 3,
    "boosted_trees_l2": 1.0,
}


def persons(num_rows: int = 240) -> pd.DataFrame:
    """Return rows of 40 persons, who differ by far more than their rows."""
    random = np.random.default_rng(0)
    person = random.integers(0, 40, num_rows)
    table = pd.DataFrame({"person": 1000 + 7 * person, "x": random.normal(size=num_rows)})
    own = random.normal(size=40)
    return table.assign(y=table["x"] + 5 * own[person] + random.normal(size=num_rows))


def test_offsets_are_the_means_of_groups_shrunken_by_their_variances() -> None:
    random = np.random.default_rng(1)
    counts = random.integers(1, 6, 500)
    truth = 2.0 * random.normal(size=500)
    places = np.repeat(np.arange(500), counts)
    left = truth[places] + 3.0 * random.normal(size=len(places))
    groups = np.array([f"p{place}" for place in places], dtype=object)
    found = learn_offsets("person", groups, left)
    assert found is not None
    assert found.table is not None
    offsets = np.array([found.table[found.ranks[f"p{place}"], 0] for place in range(500)])
    means = np.array([left[places == place].mean() for place in range(500)])
    # The variances are 4 between groups and 9 within, so a mean of n rows counts n / (n + 2.25).
    assert offsets / means == pytest.approx(counts / (counts + 9 / 4), rel=0.3)
    assert np.mean((offsets - truth) ** 2) < 0.8 * np.mean((means - truth) ** 2)
    new = found.encode(pd.Series(["p0", "nobody", None, "p1"]))[:, 0]
    assert new.tolist() == [offsets[0], 0.0, 0.0, offsets[1]]


def test_groups_that_do_not_differ_have_no_offsets() -> None:
    left = np.tile([1.0, -1.0], 60)
    assert (
        learn_offsets("g", np.repeat([f"g{n}" for n in range(60)], 2).astype(object), left) is None
    )
    alone = np.array([f"g{n}" for n in range(120)], dtype=object)
    assert learn_offsets("g", alone, left) is None
    assert learn_offsets("g", np.full(120, None, dtype=object), left) is None


def test_a_group_has_one_text_however_its_number_is_written() -> None:
    assert group_texts(pd.Series([3, 4])).tolist() == ["3", "4"]
    assert group_texts(pd.Series(["a", None, "b"])).tolist() == ["a", None, "b"]


@pytest.mark.parametrize("share", [1.0, 0.6, 0.4])
def test_offsets_are_learned_from_the_models_that_were_fitted_to_all_rows(share: float) -> None:
    random = np.random.default_rng(2)
    person = np.repeat(np.arange(50), 8)
    targets = (3.0 * random.normal(size=50)[person] + random.normal(size=400)).astype(np.float32)

    def candidate(place: int) -> SimpleNamespace:
        def outputs(number: int, inputs: np.ndarray, *, classes: bool) -> np.ndarray:
            assert (number, classes) == (3, False)
            return np.full((len(inputs), 1), 0.5)

        return SimpleNamespace(models={place: None}, outputs=outputs)

    interpreter = SimpleNamespace(group="person", task="regression")
    used = [(candidate(3), share), (candidate(0), 1.0 - share)]
    final: Any = SimpleNamespace(interpreter=interpreter, used=used)
    groups = person.astype(str).astype(object)
    encoder: Any = None
    reader = Reader(encoder, 1.0, 2.0)
    rows = AllRows(np.zeros((400, 1)), targets, reader, groups)
    found = refitting._offsets(final, 3, rows)
    if share < 0.5:
        assert found is None
        return
    assert found is not None
    means = np.array([2.0 * targets[person == number].mean() - 1.0 for number in range(50)])
    offsets = found.encode(pd.Series(np.arange(50)))[:, 0]
    assert offsets == pytest.approx(means, rel=0.05)


def test_known_groups_have_their_offset_at_every_door_and_new_ones_have_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refitting, "expected_fit_s", lambda *_: -60.0)  # on any machine
    table, later = persons(480)[:240], persons(480)[240:].reset_index(drop=True)
    with wb.Store.open(str(tmp_path / "store.sqlite")) as store:
        created = create_automl(
            table, "y", time="20s", families="boosted_trees", group_column="person", store=store
        )
        ended = end(created, TREES)
        plain = ended.predict(later.drop(columns=["y", "person"]))
        new = ended.predict(later.drop(columns="y").assign(person=5))
        known = np.asarray(ended.predict(later.drop(columns="y")))
        assert np.asarray(new) == pytest.approx(np.asarray(plain), rel=1e-6)
        wrong = [np.mean((np.asarray(given) - later["y"]) ** 2) for given in (plain, known)]
        assert wrong[1] < 0.2 * wrong[0]
        claimed = ended.score()["rmse"]
        assert claimed == pytest.approx(np.sqrt(wrong[0]), rel=0.5)  # that of new persons
        ended.export(tmp_path / "bundle")
    bundle = wb.load_bundle(tmp_path / "bundle")
    rows = later.drop(columns="y")
    rows.to_csv(tmp_path / "rows.csv", index=False)
    for samples in (rows, rows.astype({"person": float}), tmp_path / "rows.csv"):
        assert bundle.predict(samples).values == pytest.approx(known, rel=1e-5, abs=1e-6)
    script = [sys.executable, str(tmp_path / "bundle" / "predict.py"), str(tmp_path / "rows.csv")]
    done = subprocess.run(script, capture_output=True, text=True, check=True)
    answers = [float(line) for line in done.stdout.split()[1:]]
    assert answers == pytest.approx(known.tolist(), rel=1e-5, abs=1e-6)
    pairs = zip(rows["person"].tolist(), rows["x"].tolist(), strict=True)
    sent = [*({"person": person, "x": x} for person, x in pairs), {"person": None, "x": 0.5}]
    predictor = Predictor.open(tmp_path / "bundle")
    assert set(predictor.card.statistics) == {"x"}  # a new person is no drift
    served = predictor.compute(feeds_of_rows(predictor.card, RowReader(predictor.card).read(sent)))
    assert served.values is not None
    assert served.values.ravel()[:-1].tolist() == pytest.approx(known.tolist(), rel=1e-5, abs=1e-6)
