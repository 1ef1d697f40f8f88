"""Energies, sums and prices as people write them: `2kWh`, `20 EUR`, `2.50 EUR/h`, `1.80 USD/GPU-h`.

What a run costs follows from its price and is left to `history`.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from workbench.foundation.errors import ExperimentError
from workbench.foundation.formatting import format_money, format_number, parse_quantity


def parse_energy_wh(given: str | float | None) -> float | None:
    """Return the watt-hours of an energy such as `500Wh` or `2kWh`.

    Args:
        given: Text with a number and a unit, or a value of another type.

    Returns:
        Watt-hours, or `given` itself if it is not text.

    Raises:
        ExperimentError: If the text is not an energy.

    Example:
        >>> parse_energy_wh("2kWh")
        2000.0
    """
    return parse_quantity(given, ("Wh",), allowed="such as 500Wh, 2kWh, or a number of watt-hours")


def format_energy(wh: float) -> str:
    """Write an energy in watt-hours, or from a thousand on in kilowatt-hours.

    `12.5 Wh`, `2 kWh`.
    """
    return f"{format_number(wh)} Wh" if wh < 1000.0 else f"{format_number(wh / 1000.0)} kWh"


_SYMBOLS = {"$": "USD", "€": "EUR", "£": "GBP"}
_CURRENCY = r"[A-Za-z]{3}|[$€£]"
_SUM = re.compile(
    rf"(?P<before>{_CURRENCY})?\s*(?P<amount>\d+(?:\.\d+)?)\s*(?P<after>{_CURRENCY})?"
)
_PRICE = re.compile(rf"{_SUM.pattern}\s*/\s*(?P<gpu>GPU-)?h", re.IGNORECASE)


class Price(NamedTuple):
    """What time costs.

    Attributes:
        amount: For an hour.
        currency: Such as `EUR`.
        is_per_gpu: Whether for each GPU that trials hold, instead of for the run while it is
            active.
    """

    amount: float
    currency: str
    is_per_gpu: bool

    def __str__(self) -> str:
        return f"{self.amount:.17g} {self.currency}/{'GPU-h' if self.is_per_gpu else 'h'}"


def parse_price(text: str) -> Price:
    """Return a price such as `2.50 EUR/h` or `1.80 USD/GPU-h`.

    Args:
        text: A sum with its currency, for an hour of the run or of each GPU.

    Raises:
        ExperimentError: If the text is no price.

    Example:
        >>> str(parse_price("$1.80/GPU-h"))
        '1.8 USD/GPU-h'
    """
    found = _PRICE.fullmatch(text.strip())
    currency = None if found is None else _currency(found)
    if found is None or currency is None or not float(found["amount"]) > 0.0:
        raise ExperimentError(
            f"{text!r} is not a price", allowed="such as 2.50 EUR/h, or 1.80 USD/GPU-h"
        )
    return Price(float(found["amount"]), currency, found["gpu"] is not None)


def price_text(given: Any) -> Any:
    """Return a price in the form in which it is stored; None is returned as it is.

    Args:
        given: A price, which may be a number written without a currency.

    Raises:
        ExperimentError: If it is no price.
    """
    return None if given is None else str(parse_price(str(given)))


def parse_money(given: Any, price: str | None) -> Any:
    """Return a sum in the currency of a price.

    Args:
        given: Text such as `20 EUR`, or `20` in the currency of the price; or a value of another
            type.
        price: What time costs; None where that is not known, and any currency will do.

    Returns:
        The sum, or `given` itself if it is not text.

    Raises:
        ExperimentError: If the text is no sum, or in another currency.

    Example:
        >>> parse_money("$20", "1.8 USD/GPU-h")
        20.0
    """
    if not isinstance(given, str):
        return given
    found = _SUM.fullmatch(given.strip())
    if found is None or (found["before"] and found["after"]):
        raise ExperimentError(
            f"{given!r} is not an amount of money", allowed="such as 20 EUR, $20, or a number"
        )
    currency = _currency(found)
    if (
        price is not None
        and currency is not None
        and currency != (of_price := parse_price(price).currency)
    ):
        raise ExperimentError(
            f"{given!r} is in another currency than the price, {price}",
            allowed=f"an amount in {of_price}",
        )
    return float(found["amount"])


def describe_money(amount: float, price: str) -> str:
    """Write a sum in the currency of a price: `20.00 EUR`."""
    return format_money(amount, parse_price(price).currency)


def _currency(found: re.Match[str]) -> str | None:
    """Return the currency of a sum; None where it names none, or two."""
    if found["before"] and found["after"]:
        return None
    written = found["before"] or found["after"]
    return None if written is None else _SYMBOLS.get(written, written.upper())
