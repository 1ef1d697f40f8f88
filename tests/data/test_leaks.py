"""Columns that hold the answer are found, and those that merely help are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from workbench.data.column_encoding import text_form_of
from workbench.data.leaks import Leak, find_leaks

NUM_ROWS = 400
RANDOM = np.random.default_rng(3)
CLASSES = RANDOM.integers(0, 3, NUM_ROWS)
NUMBERS = RANDOM.normal(50.0, 10.0, NUM_ROWS)


def leaks(target: np.ndarray, **columns: Any) -> dict[str, float]:
    table = {name: pd.Series(column) for name, column in columns.items()}
    forms = {
        name: form for name, column in table.items() if (form := text_form_of(column)) is not None
    }
    leaky = find_leaks(table, target, forms, is_classification=target.dtype.kind == "i")
    return {leak.name: leak.score for leak in leaky}


def test_what_stands_for_the_class_is_found_however_it_is_written() -> None:
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(
        100 * CLASSES + RANDOM.integers(0, 50, NUM_ROWS), "D"
    )
    leaky = leaks(
        CLASSES,
        name=np.array(["low", "mid", "high"])[CLASSES],
        codes=10 * CLASSES + RANDOM.random(NUM_ROWS),
        price=[f"${value:,}" for value in 5_000 * (CLASSES + 1)],
        date=days,
        text_date=pd.Series(days).dt.strftime("%d/%m/%Y"),
        gap=np.where(CLASSES == 1, np.nan, CLASSES),
        noise=RANDOM.random(NUM_ROWS),
        hint=CLASSES + RANDOM.normal(0.0, 0.5, NUM_ROWS),
        text=[f"row {row}" for row in range(NUM_ROWS)],
        one=np.ones(NUM_ROWS),
        empty=np.full(NUM_ROWS, np.nan),
    )
    assert leaky == dict.fromkeys(["name", "codes", "price", "date", "text_date", "gap"], 1.0)


def test_a_number_from_which_the_target_is_computed_is_found() -> None:
    leaky = leaks(
        NUMBERS,
        doubled=2.0 * NUMBERS + 1.0,
        squared=NUMBERS**2,
        rounded=np.round(NUMBERS),
        helps=NUMBERS + RANDOM.normal(0.0, 5.0, NUM_ROWS),
        noise=RANDOM.random(NUM_ROWS),
    )
    assert leaky.keys() == {"doubled", "squared", "rounded"}
    assert min(leaky.values()) > 0.98


def test_a_rare_class_is_not_predicted_by_always_guessing_the_other() -> None:
    rare = (np.arange(NUM_ROWS) % 100 == 0).astype(int)
    assert leaks(rare, noise=RANDOM.random(NUM_ROWS), one=np.ones(NUM_ROWS)) == {}
    assert leaks(rare, copy=1 - rare) == {"copy": 1.0}


@pytest.mark.parametrize("target", [CLASSES[:12], NUMBERS[:12]])
def test_a_few_rows_show_nothing(target: np.ndarray) -> None:
    assert leaks(target, copy=target) == {}


def test_the_note_names_the_column_its_score_and_what_leaves_it_out() -> None:
    assert (
        Leak("paid", 1.0, "accuracy").note("`y`", "--drop paid")
        == "`paid` alone predicts `y` with accuracy 1.00: if it is not known when a prediction is"
        " made, leave it out with --drop paid"
    )
