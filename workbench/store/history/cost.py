"""What a run has cost so far, by the price of its hardware and the time that it held it."""

from __future__ import annotations

from workbench.experiment.money_units import parse_price
from workbench.store.history.history import History


def cost_of(history: History, now_unix_s: float) -> float | None:
    """Return what a run has cost, in the currency of its price; None without a price.

    Args:
        history: The run so far.
        now_unix_s: The time now, in seconds since 1970.
    """
    if (text := history.experiment.budget.price) is None:
        return None
    price = parse_price(text)
    used_s = history.gpu_s(now_unix_s) if price.is_per_gpu else history.active_s(now_unix_s)
    return used_s / 3600.0 * price.amount
