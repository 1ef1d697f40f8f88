"""Bounds and choices of numpy, torch and pandas, as the Python values that they are meant as."""

from __future__ import annotations

import enum
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import workbench as wb
from workbench.experiment.actions.table import stored_payload
from workbench.experiment.space import Float, Int, Space
from workbench.foundation.errors import ExperimentError
from workbench.foundation.python_values import plain


class Kind(enum.Enum):
    FIRST = 1


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (np.int64(1), np.int64(9)),
        (1, np.int32(9)),
        (np.uint8(1), 9),
        (torch.tensor(1), torch.tensor(9)),
        (np.array(1), np.array([9])),
        ("1", "9"),
    ],
)
def test_whole_bounds_stay_a_whole_range(low: Any, high: Any) -> None:
    domain = Space({"x": {"low": low, "high": high, "step": np.int64(2)}}).root["x"]
    assert isinstance(domain, Int)
    assert list(domain.values()) == [1, 3, 5, 7, 9]
    assert all(type(value) is int for value in domain.values())


@pytest.mark.parametrize(
    ("low", "high"), [(np.float64(1), 9), (np.float32(1), np.int64(9)), (1, torch.tensor(9.0))]
)
def test_real_bounds_stay_a_real_range(low: Any, high: Any) -> None:
    domain = Space({"x": {"low": low, "high": high}}).root["x"]
    assert isinstance(domain, Float)
    assert (type(domain.low), domain.low, domain.high) == (float, 1.0, 9.0)


@pytest.mark.parametrize("bound", [True, np.bool_(True)])
def test_a_boolean_is_not_a_bound(bound: Any) -> None:
    with pytest.raises(ExperimentError, match=r"x\.low: True is not valid; allowed: a number"):
        Space({"x": {"low": bound, "high": 9}})


@pytest.mark.parametrize(
    ("choices", "values"),
    [
        ([np.int64(8), np.int64(16)], [8, 16]),
        ([np.float32(0.5), np.float64(1.5)], [0.5, 1.5]),
        ([np.bool_(True), np.bool_(False)], [True, False]),
        ([np.str_("sgd"), "adam"], ["sgd", "adam"]),
        ([torch.tensor(0.5), torch.tensor(2)], [0.5, 2]),
        ([[np.int64(1), 2], {"a": np.float32(0.5)}], [[1, 2], {"a": 0.5}]),
        ((8, 16), [8, 16]),
        (np.array([8, 16]), [8, 16]),
        (np.linspace(0, 1, 3), [0.0, 0.5, 1.0]),
        (torch.tensor([8, 16]), [8, 16]),
        (pd.Series(["a", "b"]), ["a", "b"]),
        (range(3), [0, 1, 2]),
        ({"b", "a", "c"}, ["a", "b", "c"]),
    ],
)
def test_choices_are_python_values(choices: Any, values: list[Any]) -> None:
    found = wb.Choice(choices=choices).values()
    assert found == values
    assert [type(item) for item in found] == [type(item) for item in values]
    assert all(wb.Choice(choices=choices).contains(value) for value in values)


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ((3, 3), r"\(3, 3\) is a tuple, which a trial would receive as a list.*Write \[3, 3\]"),
        (np.array([1, 2]), r"is an array, which a trial would receive as a list.*Write \[1, 2\]"),
        ({"a": (1, 2)}, r"a: \(1, 2\) is a tuple"),
        ({1, 2}, "is a set, which has no order"),
        (torch.nn.ReLU, 'ReLU is a class, not a value.*Write its name, "ReLU"'),
        (torch.relu, 'relu is a function, not a value.*Write its name, "relu"'),
        (Kind.FIRST, 'a member of an enumeration.*"FIRST"'),
        (Path("a"), "which an experiment cannot hold"),
        (1j, "type complex, which an experiment cannot hold"),
        (np.datetime64("2026-01-01"), "type datetime64, which an experiment cannot hold"),
    ],
)
def test_what_a_trial_would_not_receive_as_it_is_is_refused_with_what_to_write(
    choice: Any, words: str
) -> None:
    with pytest.raises(ExperimentError, match=rf"(?s)^choices\.1.*{words}"):
        wb.Choice(choices=["first", choice])
    with pytest.raises(ExperimentError, match=rf"(?s){words}"):
        wb.Fixed(value=choice)


@pytest.mark.parametrize(
    ("section", "field"),
    [
        (
            {"training": {"optimizer_options": {"betas": (0.9, 0.95)}}},
            "training.optimizer_options.betas",
        ),
        ({"model": {"name": "mlp", "dims": (0.9, 0.95)}}, "model.options.dims"),
    ],
)
def test_options_are_refused_in_the_same_words(section: dict[str, Any], field: str) -> None:
    whole = {
        "model": "mlp",
        "data": "digits",
        "objectives": [{"metric": "val_loss", "goal": "minimize"}],
    }
    with pytest.raises(
        ExperimentError, match=rf"{field}: \(0\.9, 0\.95\) is a tuple.*Write \[0\.9, 0\.95\]"
    ):
        wb.Experiment(**whole | section)


def test_arguments_of_actions_take_scalars_of_libraries() -> None:
    assert stored_payload("set", {"trials": np.int64(3)}) == {"budget.trials": 3}


def test_an_array_alone_is_refused_like_a_list() -> None:
    with pytest.raises(ExperimentError, match=r"x: a list alone .*Write \{choices: \[8, 16\]\}"):
        Space({"x": np.array([8, 16])})


def test_conditions_configurations_and_settings_take_scalars_of_libraries() -> None:
    space = Space(
        {
            "kind": {"choices": ["a", "b"]},
            "x": {"low": 1, "high": 4, "when": {"kind": (np.str_("a"), "b")}},
            "y": {"low": 0.0, "high": 1.0, "prior": {"near": np.float32(0.5)}},
            "z": np.int64(3),
        }
    )
    params = space.check({"kind": np.str_("a"), "x": np.int64(2), "y": np.float32(0.5)})
    assert params == {"kind": "a", "x": 2, "y": 0.5, "z": 3}
    assert {type(value) for value in params.values()} == {str, int, float}
    experiment = wb.Experiment(
        model={"name": "mlp", "width": np.int64(8)},
        data="digits",
        search=space.model_dump(),
        objectives=[{"metric": "val_loss", "goal": "minimize", "target": np.float32(0.5)}],
        budget={"trials": np.int64(3)},
        seed=np.int64(7),
    )
    assert experiment.model is not None
    assert experiment.model.options == {"width": 8}
    assert wb.Experiment.from_yaml(experiment.to_yaml()) == experiment


def test_a_set_has_the_same_order_in_every_process() -> None:
    assert wb.Choice(choices={"sgd", "adam", 3, None}).values() == [None, 3, "adam", "sgd"]


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_a_strict_reader_takes_any_document(document: object) -> None:
    json.loads(json.dumps(plain(document)), parse_constant=_refuse)


def test_numbers_that_are_not_finite_are_text() -> None:
    assert plain({"a": [math.nan, (math.inf, -math.inf)]}) == {
        "a": ["NaN", ["Infinity", "-Infinity"]]
    }
