"""What counts as a number, for values of Python, numpy, torch and pandas."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workbench.foundation.reported_values import (
    judge,
    result_of,
    side_value_of,
    sort_values,
    why_no_result,
)


class LikeJax:
    """An array of a library that is not known, which converts itself."""

    shape, dtype = (), "float32"

    def __float__(self) -> float:
        return 0.25


class Raises:
    def __float__(self) -> float:
        raise RuntimeError("no value here")


NUMBERS = [
    0.25,
    np.float64(0.25),
    np.float32(0.25),
    np.float16(0.25),
    np.longdouble(0.25),
    Decimal("0.25"),
    Fraction(1, 4),
    np.array(0.25),
    np.array([0.25]),
    np.array([[0.25]]),
    np.array(Decimal("0.25"), dtype=object),
    np.ma.array([0.25], mask=[False]),
    torch.tensor(0.25),
    torch.tensor([0.25], requires_grad=True) * 1,
    torch.tensor(0.25, dtype=torch.bfloat16),
    torch.nn.Parameter(torch.tensor(0.25)),
    pd.Series([0.25]),
    LikeJax(),
    "0.25",
    np.str_("2.5e-1"),
]


@pytest.mark.parametrize("value", NUMBERS)
def test_one_real_number_is_a_result_whatever_library_made_it(value: Any) -> None:
    assert result_of(value) == 0.25
    assert type(result_of(value)) is float
    assert why_no_result(value) is None


@pytest.mark.parametrize(
    "value", [True, False, np.bool_(True), np.array([True]), torch.tensor(True), pd.Series([False])]
)
def test_a_boolean_is_0_or_1_beside_the_results_and_no_result(value: Any) -> None:
    assert result_of(value) is None
    assert side_value_of(value) == float(bool(np.ravel(value)[0]))
    assert "boolean" in (why_no_result(value) or "")


NOT_NUMBERS = [
    (None, "None"),
    (np.ma.masked, "masked"),
    (np.ma.array([1.0], mask=[True]), "masked"),
    (1 + 0j, "complex"),
    (np.complex64(1), "complex"),
    (torch.tensor(1 + 0j), "complex"),
    (pd.NA, "missing value <NA>"),
    (pd.NaT, "missing value NaT"),
    (pd.Series([pd.NA], dtype="Float64"), "missing value"),
    (np.array([]), "an empty array"),
    (torch.empty(0), "an empty array"),
    ([], "an empty list"),
    ([1.0], "a list"),
    ((0.1, 0.2), "a tuple"),
    ({"a": 1.0}, "dict"),
    (np.array([0.1, 0.2]), "an array of the shape (2,)"),
    (pd.DataFrame({"a": [1.0]}), "DataFrame"),
    ("high", "str"),
    ("", "str"),
    (b"0.25", "bytes"),
    (datetime.timedelta(seconds=1), "timedelta"),
    (np.timedelta64(3, "ns"), "timedelta64"),
    (np.datetime64("2026-01-01", "ns"), "datetime64"),
    (np.float64, "the class float64"),
    (torch.nn.Linear(1, 1), "Linear"),
    (torch.tensor(1.0, device="meta"), "Tensor"),
    (Raises(), "raised RuntimeError"),
    (lambda: 0.25, "function"),
]


@pytest.mark.parametrize(("value", "what"), NOT_NUMBERS)
def test_anything_else_is_named_and_no_number(value: Any, what: str) -> None:
    assert result_of(value) is None
    assert side_value_of(value) is None
    assert what in (why_no_result(value) or "")


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (math.nan, math.nan),
        (np.float32("nan"), math.nan),
        (torch.tensor(math.nan), math.nan),
        (Decimal("sNaN"), math.nan),
        ("nan", math.nan),
        (np.float32("-inf"), -math.inf),
        (Decimal("1e400"), math.inf),
        (10**400, math.inf),
        (Fraction(-(10**400)), -math.inf),
        (2**70, 2.0**70),
        (np.uint64(2**64 - 1), 2.0**64),
    ],
)
def test_nan_infinity_and_numbers_beyond_64_bits_are_numbers(value: Any, number: float) -> None:
    assert result_of(value) == pytest.approx(number, nan_ok=True)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text() | st.binary() | st.complex_numbers(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_nothing_raises_an_error(value: Any) -> None:
    judge(value)
    sorted_values = sort_values({"x": value})
    assert all(type(number) is float for number in sorted_values.side_values.values())


def test_a_report_is_sorted_by_what_its_values_are() -> None:
    class Figure:
        def savefig(self, *_args: Any, **_options: Any) -> None:
            raise RuntimeError("no display")

    sorted_values = sort_values(
        {
            "loss": np.float32(0.5),
            "done": np.True_,
            "val": {"acc": 0.25, "per": {"class": [1, 2]}, "no": None},
            "text": "hello",
            "table": {"a": [1, 2], "b": [3, 4]},
            "figure": Figure(),
            "model": object(),
        }
    )
    assert sorted_values.side_values == {"loss": 0.5, "val.acc": 0.25, "done": 1.0}
    assert sorted_values.booleans == {"done": True}
    assert {name: attachment.kind for name, attachment in sorted_values.attachments.items()} == {
        "val.per": "table",
        "text": "text",
        "table": "table",
    }
    assert set(sorted_values.problems) == {"val.no", "figure", "model"}
    assert "no display" in sorted_values.problems["figure"]
    assert sorted_values.what.keys() == {
        "done",
        "val.per",
        "val.no",
        "text",
        "table",
        "figure",
        "model",
    }
