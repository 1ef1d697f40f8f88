"""Energies, sums and prices as people write them: `2kWh`, `20 EUR`, `2.50 EUR/h`, `1.80 USD/GPU-h`.

`store.history` computes what a run costs.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any, Literal, NamedTuple

from workbench.foundation.errors import ExperimentError
from workbench.foundation.formatting import (
    format_money,
    format_number,
    parse_duration_s,
    parse_quantity,
)


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
    """Write an energy in watt-hours or kilowatt-hours: `12.5 Wh`, `2 kWh`."""
    if wh < 1000.0:
        return f"{format_number(wh)} Wh"
    return f"{format_number(wh / 1000.0)} kWh"


_SYMBOLS = {"$": "USD", "€": "EUR", "£": "GBP"}
_CURRENCY = r"[A-Za-z]{3}|[$€£]"
_SUM = re.compile(
    rf"(?P<before>{_CURRENCY})?\s*(?P<amount>\d+(?:\.\d+)?)\s*(?P<after>{_CURRENCY})?"
)
_PRICE = re.compile(rf"{_SUM.pattern}\s*/\s*(?P<gpu>GPU-)?h", re.IGNORECASE)


class Price(NamedTuple):
    """The price of hardware for an hour.

    Attributes:
        amount: The sum for an hour.
        currency: The currency, such as `EUR`.
        is_per_gpu: Whether the price is for each GPU that trials hold, not for the active run.
    """

    amount: float
    currency: str
    is_per_gpu: bool

    def __str__(self) -> str:
        unit = "h"
        if self.is_per_gpu:
            unit = "GPU-h"
        amount = repr(self.amount).removesuffix(".0")
        return f"{amount} {self.currency}/{unit}"


def parse_price(text: str) -> Price:
    """Return a price such as `2.50 EUR/h` or `1.80 USD/GPU-h`.

    Args:
        text: A sum with its currency, for an hour of the run or of each GPU.

    Raises:
        ExperimentError: If the text is not a price.

    Example:
        >>> str(parse_price("$1.80/GPU-h"))
        '1.8 USD/GPU-h'
    """
    match = _PRICE.fullmatch(text.strip())
    if match is not None:
        amount, currency = float(match["amount"]), _currency(match)
        if amount > 0.0 and currency is not None:
            return Price(amount, currency, is_per_gpu=match["gpu"] is not None)
    raise ExperimentError(
        f"{text!r} is not a price", allowed="such as 2.50 EUR/h, or 1.80 USD/GPU-h"
    )


def price_text(given: Any) -> Any:
    """Return a price as it is stored. None stays None.

    Args:
        given: A price as text, or None.

    Raises:
        ExperimentError: If it is not a price, such as a number without a currency.
    """
    if given is None:
        return None
    return str(parse_price(str(given)))


def parse_money(given: Any, price: str | None) -> Any:
    """Return a sum in the currency of a price.

    Args:
        given: Text such as `20 EUR`, or `20` in the currency of the price, or a value of another
            type.
        price: The price of the hardware. If it is None, the currency is not checked.

    Returns:
        The sum, or `given` itself if it is not text.

    Raises:
        ExperimentError: If the text is not a sum, or is in another currency.

    Example:
        >>> parse_money("$20", "1.8 USD/GPU-h")
        20.0
    """
    if not isinstance(given, str):
        return given
    match = _SUM.fullmatch(given.strip())
    if match is None or (match["before"] and match["after"]):
        raise ExperimentError(
            f"{given!r} is not an amount of money", allowed="such as 20 EUR, $20, or a number"
        )
    currency = _currency(match)
    if price is not None and currency not in (None, parse_price(price).currency):
        raise ExperimentError(
            f"{given!r} is not in the currency of the price, {price}",
            allowed=f"an amount in {parse_price(price).currency}",
        )
    return float(match["amount"])


class Amount(NamedTuple):
    """An amount of what a run uses up.

    Attributes:
        kind: What is used up.
        number: Seconds, watt-hours, or a sum in the currency of the price.
    """

    kind: Literal["time", "energy", "money"]
    number: float


def parse_amount(text: str, price: str | None) -> Amount:
    """Return an amount such as `30m`, `1kWh` or `2 EUR`.

    Args:
        text: A duration, an energy or a sum with its currency.
        price: The price of the hardware, or None.

    Raises:
        ExperimentError: If the text is none of these, or is a sum that no price leads to.

    Example:
        >>> parse_amount("1kWh", None)
        Amount(kind='energy', number=1000.0)
    """
    amount = _time_or_energy(text)  # first, because `kWh` has the form of a currency
    match = _SUM.fullmatch(text.strip())
    if amount is None and match is not None and _currency(match) is not None:
        if price is None:
            raise ExperimentError(
                "an amount of money needs the price of the hardware",
                next_step="Set budget.price, such as 2.50 EUR/h or 1.80 EUR/GPU-h.",
            )
        amount = Amount("money", parse_money(text, price))
    if amount is not None and amount.number > 0:
        return amount
    raise ExperimentError(
        f"{text!r} is not an amount of time, energy or money",
        allowed="such as 30m, 1kWh or 2 EUR",
    )


def _time_or_energy(text: str) -> Amount | None:
    with contextlib.suppress(ExperimentError):
        return Amount("energy", float(parse_energy_wh(text) or 0.0))
    with contextlib.suppress(ExperimentError):
        return Amount("time", float(parse_duration_s(text)))
    return None


def describe_money(amount: float, price: str) -> str:
    """Write a sum in the currency of a price: `20.00 EUR`."""
    return format_money(amount, parse_price(price).currency)


def _currency(match: re.Match[str]) -> str | None:
    """Return the currency of a sum, or None if it has none or two."""
    if match["before"] and match["after"]:
        return None
    written = match["before"] or match["after"]
    if written is None:
        return None
    return _SYMBOLS.get(written, written.upper())
