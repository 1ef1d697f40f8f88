"""The search space as rows of a form: their kinds, other kinds, and how a search begins."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.experiment import Experiment
from workbench.views.forms.protocol import FormField, SearchRow
from workbench.views.forms.search_rows import initial_search, rows_of_search


def rows(search: Any) -> tuple[SearchRow, ...]:
    return rows_of_search({"search": search})


def field(**known: Any) -> FormField:
    given = {"path": "training.x", "label": "X", "kind": "number", "default": None, "value": None}
    return FormField(**{**given, **known})


def test_a_row_shows_the_value_that_is_probably_good_however_it_is_written() -> None:
    search = {
        "lr": {"low": 1e-4, "high": 0.1, "log": True, "prior": {"near": 3e-4}},
        "optimizer": {"choices": ["sgd", "adamw"], "prior": {"near": "adamw"}},
        "width": {"low": 1, "high": 9, "prior": "wrong"},
        "depth": 3,
    }
    rows = rows_of_search({"search": search})
    assert [row.near for row in rows] == [3e-4, "adamw", None, None]


def test_a_parameter_is_shown_as_the_kind_that_its_file_means() -> None:
    search = {
        "lr": {"low": 1e-4, "high": 0.1, "log": True},
        "layers": {"low": 1, "high": 3},
        "share": {"type": "float", "low": 0, "high": 1},
        "width": {"choices": [8, 16]},
        "bare": "sgd",
        "answer": {"value": [1, 2], "when": {"width": 8}},
    }
    kinds = ["float", "int", "float", "choices", "fixed", "fixed"]
    assert [row.kind for row in rows(search)] == kinds
    written = Experiment(
        train="package:train", objectives=[{"metric": "loss", "goal": "minimize"}], search=search
    ).model_dump(mode="json")
    assert [row.kind for row in rows_of_search(written)] == kinds


def test_what_was_typed_and_is_wrong_is_shown_as_it_was_typed() -> None:
    [row] = rows({"lr": {"low": "abc", "high": 1, "type": "float"}})
    assert (row.kind, row.low, row.high) == ("float", "abc", 1)
    assert rows("nonsense") == rows(None) == ()


def test_another_kind_keeps_the_numbers_and_the_condition() -> None:
    when = {"optimizer": "sgd"}
    [row] = rows({"lr": {"low": 0.1, "high": 2.5, "log": True, "when": when}})
    assert row.written_as["choices"] == {"choices": [0.1, 2.5], "when": when}
    assert row.written_as["int"] == {"type": "int", "low": 0, "high": 3, "log": True, "when": when}
    assert row.written_as["fixed"] == {"value": 0.1, "when": when}
    [choices] = rows({"width": {"choices": [8, 16, 32]}})
    assert choices.written_as["int"] == {"type": "int", "low": 8, "high": 32}
    assert choices.written_as["fixed"] == 8
    [fixed] = rows({"name": "sgd"})
    assert fixed.written_as["float"] == {"type": "float", "low": 0, "high": 1}


@pytest.mark.parametrize(
    "written", ["sgd", 0.5, {"choices": [8, 16]}, {"low": 2, "high": 2}, {"low": 0.1, "high": 5.5}]
)
def test_each_other_kind_of_a_valid_parameter_is_valid(written: Any) -> None:
    [row] = rows({"x": written})
    objectives = [{"metric": "loss", "goal": "minimize"}]
    for kind, other in row.written_as.items():
        Experiment(train="package:train", objectives=objectives, search={"x": other})
        assert rows({"x": other})[0].kind == kind


@pytest.mark.parametrize(
    ("known", "begins"),
    [
        ({"kind": "switch"}, {"choices": [True, False]}),
        (
            {"kind": "choice", "choices": ("auto", "fp32", "bf16")},
            {"choices": ["fp32", "bf16"]},
        ),
        (
            {"kind": "whole", "low": 1, "high": 8, "default": 6},
            {"type": "int", "low": 3, "high": 8},
        ),
        ({"kind": "whole", "low": 1, "value": 8}, {"type": "int", "low": 4, "high": 16}),
        ({"kind": "whole", "high": 0}, {"type": "int", "low": -1, "high": 0}),
        ({"kind": "whole", "low": -5, "high": 0}, {"type": "int", "low": -1, "high": 0}),
        (
            {"low": 0, "high": 1, "high_open": True, "default": 0.9},
            {"type": "float", "low": 0, "high": 0.9},
        ),
        ({"default": 0.01}, {"type": "float", "low": 0.001, "high": 0.1, "log": True}),
        ({"default": "auto"}, {"type": "float", "low": 1e-4, "high": 0.1, "log": True}),
    ],
)
def test_the_search_of_a_field_begins_within_its_bounds(
    known: dict[str, Any], begins: dict[str, Any]
) -> None:
    assert initial_search(field(**known)) == begins


BOUNDS = st.none() | st.integers(-1000, 1000)
TYPED = st.none() | st.just("auto") | st.booleans() | st.integers() | st.floats()
HUGE = st.sampled_from([10**400, -(10**400), 1e308, -1e308, float("inf"), float("nan")])


@given(
    kind=st.sampled_from(["whole", "number"]),
    low=BOUNDS,
    high=BOUNDS,
    is_open=st.booleans(),
    value=TYPED | HUGE,
)
def test_a_search_starts_within_its_bounds_and_holds_its_value(
    *, kind: str, low: int | None, high: int | None, is_open: bool, value: Any
) -> None:
    if low is not None and high is not None and high < low + 3:
        high = low + 3
    known = {"kind": kind, "low": low, "high": high, "value": value}
    search = initial_search(field(**known, low_open=is_open, high_open=is_open))
    assert search["low"] < search["high"] < float("inf")
    if low is not None:
        assert search["low"] > low if is_open else search["low"] >= low
    if high is not None:
        assert search["high"] < high if is_open else search["high"] <= high
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    is_free = (low, high) == (None, None)
    if is_number and is_free and 1e-300 < abs(value) < 1e299:
        assert search["low"] <= value <= search["high"]
    assert search.get("log", False) <= (search["low"] > 0)
