"""Sums and prices as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.experiment import Budget, Experiment
from workbench.experiment.budget_units import (
    Price,
    describe_money,
    parse_amount,
    parse_money,
    parse_price,
)
from workbench.foundation.errors import ExperimentError


@pytest.mark.parametrize(
    ("text", "price"),
    [
        ("2.50 EUR/h", Price(2.5, "EUR", False)),
        ("$1.80/GPU-h", Price(1.8, "USD", True)),
        ("3€ / h", Price(3.0, "EUR", False)),
        ("usd 4/gpu-h", Price(4.0, "USD", True)),
    ],
)
def test_texts_become_prices_and_are_stored_in_one_form(text: str, price: Price) -> None:
    assert parse_price(text) == price
    assert Budget(price=text).price == str(price)
    assert parse_price(str(price)) == price


@pytest.mark.parametrize(
    "text", ["2.50/h", "2.50 EUR", "$2 EUR/h", "0 EUR/h", "-1 EUR/h", "2 EUR/day", "cheap"]
)
def test_anything_else_is_no_price(text: str) -> None:
    with pytest.raises(ExperimentError, match=r"2.50 EUR/h, or 1.80 USD/GPU-h"):
        parse_price(text)
    with pytest.raises(ExperimentError, match="price"):
        Budget(price=text)


def test_a_price_that_is_a_bare_number_is_refused_with_an_example() -> None:
    with pytest.raises(
        ExperimentError, match=r"'2\.5' is not a price; allowed: such as 2\.50 EUR/h"
    ):
        Budget(price=2.50)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["$20 EUR", "much", "-1 EUR", "20 EUR/h", "EUR"])
def test_anything_else_is_no_sum(text: str) -> None:
    with pytest.raises(ExperimentError, match="such as 20 EUR"):
        parse_money(text, "2 EUR/h")


@pytest.mark.parametrize("money", ["20 EUR", "€20", "20", 20])
def test_a_budget_has_one_currency(money: str | int) -> None:
    budget = Budget(price="2 EUR/h", money=money)  # type: ignore[arg-type]
    assert budget.money == 20.0
    assert Budget(**budget.model_dump()) == budget
    with pytest.raises(ExperimentError, match="not in the currency of the price"):
        Budget(money="20 USD", price="2 EUR/h")  # type: ignore[arg-type]


@given(st.floats(0.01, 99.0), st.sampled_from(["2 EUR/h", "2 USD/GPU-h", "2 CHF/h"]))
def test_what_is_written_can_be_read_again(amount: float, price: str) -> None:
    assert parse_money(describe_money(amount, price), price) == pytest.approx(amount, abs=0.00501)


@pytest.mark.parametrize(
    ("text", "price", "expected"),
    [
        ("30m", None, ("time", 1800.0)),
        ("1kWh", None, ("energy", 1000.0)),
        ("2 EUR", "1 EUR/h", ("money", 2.0)),
        ("$3", "1 USD/GPU-h", ("money", 3.0)),
    ],
)
def test_an_amount_is_a_time_an_energy_or_a_sum(
    text: str, price: str | None, expected: tuple[str, float]
) -> None:
    assert parse_amount(text, price) == expected


@pytest.mark.parametrize(
    ("text", "price", "problem"),
    [
        ("2 EUR", None, "needs the price"),
        ("2 EUR", "1 USD/h", "not in the currency"),
        ("0h", None, "not an amount of time"),
        ("much", None, "not an amount of time"),
    ],
)
def test_an_amount_that_cannot_be_used_up_is_refused(
    text: str, price: str | None, problem: str
) -> None:
    fields = {"gain": {"at_least": 0.1, "per": text}, "price": price}
    with pytest.raises(ExperimentError, match=f"budget.gain.per: .*{problem}"):
        Experiment(
            model="mlp",
            data="digits",
            objectives=[{"metric": "val_loss", "goal": "minimize"}],
            budget=fields,
        )
