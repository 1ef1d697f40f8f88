"""Errors of public constructors: the project's own, with the field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import workbench as wb
from workbench.foundation.errors import ExperimentError

# Arguments with a default given by position are required in the eyes of type checkers.
FLOAT: Any = wb.Float
INT: Any = wb.Int


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: FLOAT(low=2, high=1), "low"),
        (lambda: INT(low=1, high=2, step=0), "step"),
        (lambda: wb.Choice(choices=(1, 1)), "choices"),
        (lambda: wb.Fixed(value=object()), "value"),  # type: ignore[arg-type]
        (lambda: wb.Space({"x": {"low": 2, "high": 1}}), "x.low"),
        (lambda: wb.PlanSettings(workers=0), "workers"),
        (lambda: wb.Objective(metric="loss", goal="up"), "goal"),  # type: ignore[arg-type]
        (lambda: wb.Constraint(metric="ms"), None),
        (lambda: wb.Training(epochs=0), "epochs"),
        (lambda: wb.Budget(trials=0), "trials"),
        (lambda: wb.EarlyStop(pruner="owl"), "pruner"),
        (lambda: wb.Sampler(name="owl"), "name"),
        (lambda: wb.Resources(concurrency=0), "concurrency"),
        (lambda: wb.Component(name=""), "name"),
    ],
)
def test_a_wrong_argument_is_an_error_of_ours(
    make: Callable[[], object], field: str | None
) -> None:
    with pytest.raises(ExperimentError) as caught:
        make()
    assert caught.value.field == field


def test_all_wrong_arguments_are_listed() -> None:
    with pytest.raises(
        ExperimentError, match=r"(?s)low: 'a' is not valid.*Also wrong:\n  high: missing"
    ):
        FLOAT(low="a")


def test_within_an_experiment_paths_are_dotted() -> None:
    with pytest.raises(ExperimentError) as caught:
        wb.Experiment(
            train="m:f",
            objectives=[{"metric": "loss", "goal": "up"}],
            search={"x": {"low": 2, "high": 1}},
            budget={"trials": 0},
        )
    assert caught.value.field == "objectives.0.goal"
    assert "search.x.low: 2 is above" in str(caught.value)
    assert "budget.trials: 0 is not valid" in str(caught.value)
