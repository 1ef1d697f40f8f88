"""What a document of another tool's habits is told to become."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.experiment import Experiment
from workbench.foundation.errors import ExperimentError

VALID: dict[str, Any] = {
    "name": "one",
    "train": "package.module:function",
    "objectives": [{"metric": "loss", "goal": "minimize"}],
    "search": {"lr": {"low": 1e-4, "high": 0.1, "log": True}},
}


def refused(**fields: Any) -> ExperimentError:
    with pytest.raises(ExperimentError) as caught:
        Experiment(**{**VALID, **fields})
    return caught.value


@pytest.mark.parametrize(
    ("key", "value", "step"),
    [
        ("n_trials", 20, "Write budget: {trials: 20}."),
        ("timeout", "1h", 'Write budget: {time: "1h"}.'),
        ("epochs", 3, "Write training: {epochs: 3}."),
        ("direction", "maximize", "Write objectives: [{metric: val_accuracy, goal: maximize}]."),
        ("metric", "loss", "Write objectives: [{metric: val_accuracy, goal: maximize}]."),
        ("params", {"x": 1}, "Write search: {lr: {low: 0.0001, high: 0.1, log: true}}."),
    ],
)
def test_a_key_of_another_place_or_tool_is_answered_with_what_to_write(
    key: str, value: Any, step: str
) -> None:
    error = refused(**{key: value})
    assert (error.field, error.problem, error.next_step) == (key, "unknown key", step)
    assert error.allowed is None, "a list of all names would hide the answer"


def test_a_key_of_another_section_is_answered_with_where_it_belongs() -> None:
    error = refused(training={"precision": "bf16"})
    assert (error.field, error.next_step) == (
        "training.precision",
        'Write plan: {precision: "bf16"}.',
    )
    assert refused(training={"epoch": 3}).next_step == "Did you mean epochs?"
    step = refused(training={"loss": "huber"}).next_step
    assert step == "Write it outside of training, at the top level."


def test_a_typo_is_answered_with_the_closest_name() -> None:
    assert refused(seedd=3).next_step == "Did you mean seed?"


@pytest.mark.parametrize(
    ("objectives", "field", "allowed"),
    [
        (
            {"metric": "x", "mode": "max"},
            "objectives",
            "a list, such as [{metric: val_accuracy, goal: maximize}]",
        ),
        (
            [("loss", "minimize")],
            "objectives.0",
            "a mapping, such as {metric: val_accuracy, goal: maximize}",
        ),
        (["loss"], "objectives.0", "a mapping, such as {metric: val_accuracy, goal: maximize}"),
    ],
)
def test_objectives_in_another_form_are_answered_with_an_example(
    objectives: Any, field: str, allowed: str
) -> None:
    error = refused(objectives=objectives)
    assert (error.field, error.allowed) == (field, allowed)


@pytest.mark.parametrize(
    ("objective", "key", "problem", "step"),
    [
        (
            {"metric": "x", "mode": "max"},
            "mode",
            "mode is called goal here",
            "Write goal: maximize.",
        ),
        (
            {"metric": "x", "direction": "minimize"},
            "direction",
            "direction is called goal here",
            "Write goal: minimize.",
        ),
        (
            {"name": "x", "goal": "minimize"},
            "name",
            "name is called metric here",
            "Write metric: x.",
        ),
        ({"metric": "x", "mode": ["max"]}, "mode", "mode is called goal here", "Write goal."),
    ],
)
def test_a_key_by_another_name_is_one_message(
    objective: dict[str, Any], key: str, problem: str, step: str
) -> None:
    error = refused(objectives=[objective])
    assert (error.field, error.problem, error.next_step) == (f"objectives.0.{key}", problem, step)


def test_a_further_name_beside_its_own_is_an_unknown_key() -> None:
    error = refused(objectives=[{"metric": "x", "goal": "minimize", "mode": "max"}])
    assert (error.field, error.problem) == ("objectives.0.mode", "unknown key")


def test_a_missing_key_with_a_few_values_lists_them() -> None:
    error = refused(objectives=[{"metric": "x"}])
    assert (error.field, error.problem) == ("objectives.0.goal", "missing")
    assert (error.allowed, error.next_step) == ("maximize, minimize", "Add goal.")
    assert refused(objectives=[{"goal": "minimize"}]).allowed is None, "any metric is possible"


def test_the_keys_that_exist_are_listed_once() -> None:
    text = str(refused(qqq=1, zzz=2))
    assert "qqq: unknown key" in text
    assert "zzz: unknown key" in text
    assert text.count("objectives") == 1


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ({"type": "loguniform", "min": 0.0001, "max": 0.1}, "{low: 0.0001, high: 0.1, log: true}"),
        ({"distribution": "uniform", "min": 0.5, "max": 2.0}, "{low: 0.5, high: 2.0}"),
        ({"distribution": "uniform", "min": 0, "max": 2}, "{low: 0, high: 2, type: float}"),
        ({"type": "randint", "lower": 1, "upper": 9}, "{low: 1, high: 9}"),
        ({"type": "categorical", "values": [1, 2]}, "{choices: [1, 2]}"),
    ],
)
def test_a_range_of_another_tool_is_answered_with_ours(
    written: dict[str, Any], instead: str
) -> None:
    error = refused(search={"lr": written})
    assert (error.field, error.next_step) == ("search.lr", f"Write {instead}.")


def test_exponents_are_not_taken_for_a_range() -> None:
    assert (
        refused(search={"lr": {"distribution": "log_uniform", "min": -9, "max": -2}}).next_step
        is None
    )


def test_two_limits_that_no_value_keeps_are_refused() -> None:
    limits = [{"metric": "size", "at_least": 0.2}, {"metric": "size", "at_most": 0.1}]
    error = refused(constraints=limits)
    assert (error.field, error.problem) == (
        "constraints.1",
        "no size is at least 0.2 and at most 0.1",
    )
    kept = Experiment(**VALID, constraints=[limits[0], {"metric": "size", "at_most": 0.2}])
    assert len(kept.constraints) == 2
