"""Settings that change while a run goes on."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.experiment import Experiment
from workbench.experiment.changes import change, describe_changes, values_of
from workbench.experiment.experiment import DEFAULT_TRIALS
from workbench.foundation.errors import ExperimentError


def make(**fields: Any) -> Experiment:
    settings: dict[str, Any] = {
        "train": "json:dumps",
        "objectives": [{"metric": "loss", "goal": "minimize"}],
        "search": {"x": {"low": 0.0, "high": 1.0}},
    }
    return Experiment(**settings | fields)


def test_what_is_named_changes_and_the_rest_stays() -> None:
    before = make(
        budget={"trials": 7, "plateau": 3}, resources={"concurrency": 1, "max_retries": 5}
    )

    after = change(before, {"budget.time": "1h30m", "resources.concurrency": "auto"})

    assert values_of(after) == {
        "resources.concurrency": "auto",
        "budget.trials": 7,
        "budget.time": 5400.0,
        "budget.gpu_time": None,
        "budget.energy": None,
        "budget.money": None,
        "budget.plateau": 3,
        "confirm.best": None,
    }
    assert after.resources.max_retries == 5
    assert values_of(before)["resources.concurrency"] == 1
    assert describe_changes(before, after) == [
        "resources.concurrency 1 -> auto",
        "budget.time none -> 1 h 30 min",
    ]


def test_a_limit_that_is_added_does_not_lift_the_trials_that_every_run_gets() -> None:
    assert change(make(), {"budget.time": 60}).max_configurations() == DEFAULT_TRIALS


def test_money_is_in_the_currency_of_the_price() -> None:
    before = make(budget={"price": "2.50 EUR/h", "money": "5 EUR"})
    after = change(before, {"budget.money": "20 EUR"})
    assert values_of(after)["budget.money"] == 20.0
    assert describe_changes(before, after) == ["budget.money 5.00 EUR -> 20.00 EUR"]
    with pytest.raises(
        ExperimentError, match=r"budget.money: .*not in the currency of the price, 2.5 EUR/h"
    ):
        change(before, {"budget.money": "20 USD"})
    with pytest.raises(ExperimentError, match=r"budget.price: .*needs the price"):
        change(make(), {"budget.money": "20 USD"})


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({}, None),
        ({"budget.trials": 0}, "budget.trials"),
        ({"budget.trials": 2.5}, "budget.trials"),
        ({"budget.time": "soon"}, "budget.time"),
        ({"budget.plateau": True}, "budget.plateau"),
        ({"resources.concurrency": None}, "resources.concurrency"),
        ({"resources.concurrency": "many"}, "resources.concurrency"),
        ({"seed": 3}, "seed"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_its_field(
    settings: dict[str, Any], field: str | None
) -> None:
    with pytest.raises(ExperimentError) as refusal:
        change(make(), settings)
    assert refusal.value.field == field
