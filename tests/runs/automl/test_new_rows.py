"""What a result says of new rows, without a run: the model is a small forest."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import workbench as wb
from tests.runs.automl.test_exported_ensemble import chosen_from
from workbench.foundation.errors import ArgumentError
from workbench.runs.automl.class_decisions import Decisions
from workbench.runs.automl.model_selection import Candidate, ChosenModel
from workbench.training.trained_model import outputs_of


class Ended(wb.AutoML):
    """A result whose model was chosen elsewhere."""

    def __init__(self, chosen: ChosenModel, learning: Any, held_out: Any) -> None:
        run = SimpleNamespace(
            experiment=SimpleNamespace(data=None),
            history=SimpleNamespace(result=None),
            row=SimpleNamespace(last_seq=1, state="complete"),
        )
        self.run: Any = run
        self.__dict__ |= {"_held_out": held_out, "_learning": learning}
        self._made = chosen, chosen.outputs(held_out.samples)
        self._delivered = self._learned_bands = None
        self._refitted = {}

    def _ending(self) -> tuple[ChosenModel, np.ndarray]:
        return self._made


def houses(num_rows: int = 240) -> pd.DataFrame:
    random = np.random.default_rng(0)
    area = random.uniform(20, 200, num_rows)
    price = 5.0 * area + random.normal(0, 50, num_rows)
    return pd.DataFrame({"area": area, "rooms": (area // 30) + 1, "price": price})


def ended(data: pd.DataFrame, target: str, decisions: Decisions | None = None) -> Ended:
    chosen, learning, held_out = chosen_from(data, target, "forest")
    models = chosen.candidates[0].models
    is_classification = bool(learning.class_names)
    parts = []
    for number, fold in enumerate(learning.folds):
        reader = held_out.interpreter.readers[number]
        outputs = outputs_of(models[number], fold.validation_inputs, classes=is_classification)
        targets = fold.validation_targets
        if not is_classification:
            targets = reader.in_units(targets, fold.validation_inputs)
        parts.append((reader.in_units(outputs, fold.validation_inputs), targets))
    predicted, targets = (np.concatenate(each) for each in zip(*parts, strict=True))
    made = ChosenModel(
        (Candidate(0, "forest", {}, models, predicted, 0.0),),
        (1.0,),
        targets,
        held_out.interpreter,
        held_out.guess,
        decisions=decisions or Decisions(),
    )
    return Ended(made, learning, held_out)


def test_an_interval_of_each_row_holds_most_numbers_of_the_test():
    run = ended(houses(), "price")
    rows = run._held_out.samples
    table = run.predict(rows, interval=0.9)
    assert list(table.columns) == ["prediction", "low", "high"]
    np.testing.assert_array_equal(table["prediction"], run.predict(rows))
    truth = run._held_out.targets
    held = ((table["low"] <= truth) & (truth <= table["high"])).mean()
    assert 0.8 <= held <= 1.0
    narrow = run.predict(rows, interval=0.5)
    assert ((narrow["high"] - narrow["low"]) < (table["high"] - table["low"])).all()
    tested = run._tested_interval()
    assert tested is not None
    assert tested["held"] == pytest.approx(held)
    with pytest.raises(ArgumentError, match=r"interval: 90 is no share of rows"):
        run.predict(rows, interval=90)


def test_rows_far_outside_of_what_was_learned_are_warned_of():
    run = ended(houses(), "price")
    rows = pd.DataFrame({"area": [50.0, 9e6], "rooms": [2.0, 3.0]})
    with pytest.warns(UserWarning, match="1 row of 2 is far outside of what was learned: row 1"):
        run.predict(rows)
    unusual = run.unusual(rows)
    assert unusual[["row", "column"]].to_numpy().tolist() == [[1, "area"]]
    assert not len(run.unusual(rows[:1]))


def test_categories_and_gaps_that_training_never_saw_are_warned_of():
    towns = np.resize(["Bern", "Rome", "Rome"], 240)
    run = ended(houses().assign(town=towns), "price")
    rows = pd.DataFrame(
        {"area": [50.0, 60.0, None], "rooms": 2.0, "town": ["ROME", "Oslo", "Bern"]}
    )
    with pytest.warns(UserWarning, match="column '") as warned:
        predicted = run.predict(rows)
    assert [str(warning.message) for warning in warned] == [
        "column 'area' is missing in row 2 (from 0), and was never missing in training: the mean of"
        " the training data is used",
        "column 'town' contains values that did not occur in training in row 1 (from 0), such as"
        " 'Oslo': they count as unknown categories",
    ]
    assert warned[0].filename == __file__
    plain = rows.assign(town=["Rome", "Oslo", "Bern"])
    with pytest.warns(UserWarning, match="column '"):
        np.testing.assert_array_equal(run.predict(plain), predicted)


def test_the_predicted_class_follows_the_factors():
    random = np.random.default_rng(1)
    size = random.normal(size=240)
    rare = np.where(size + random.normal(size=240) > 1.5, "yes", "no")
    table = pd.DataFrame({"size": size, "rare": rare})
    plain = ended(table, "rare")
    eager = ended(table, "rare", Decisions(factors=(1.0, 6.0)))
    rows = plain._held_out.samples
    np.testing.assert_array_equal(plain.predict_proba(rows), eager.predict_proba(rows))
    assert (eager.predict(rows) == "yes").sum() > (plain.predict(rows) == "yes").sum()
    assert eager.score()["log_loss"] == plain.score()["log_loss"]
    truth = np.where(eager._held_out.targets == 1, "yes", "no")
    assert eager.score()["accuracy"] == (eager.predict(rows) == truth).mean()
    low, high = eager.intervals()["accuracy"]
    assert low < eager.score()["accuracy"] < high
    with pytest.raises(ArgumentError, match="interval: classes have no interval"):
        plain.predict(rows, interval=0.9)


def test_numbers_written_as_text_are_far_outside_as_well():
    table = houses()
    area = [f"{value:.1f}".replace(".", ",") + " m2" for value in table["area"]]
    run = ended(table.assign(area=area), "price")
    rows = pd.DataFrame({"area": ["50,5 m2", "9000000,0 m2"], "rooms": [2.0, 3.0]})
    assert run.unusual(rows)[["row", "column", "value"]].to_numpy().tolist() == [[1, "area", 9e6]]
    low, high = run._held_out.ranges["area"]
    assert 20.0 <= low < high <= 200.0
