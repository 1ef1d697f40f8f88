"""The capabilities of exchanges, which planning reads without importing torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from workbench.experiment.plan import EXCHANGE_OPTIONS, PartialPlan, PlanValue
from workbench.training.exchanges import EXCHANGES

USUAL = "allreduce"
"""The exchange that is part of every strategy."""


@dataclass(frozen=True)
class Capabilities:
    """The capabilities of an exchange.

    Attributes:
        is_exact: Whether replicas make the step that one worker would make, up to rounding.
        scales_loss: Whether gradients may be multiplied by a changing factor, as fp16 needs. They
            may not if an unsent part of a step is added to a later step, which has another factor.
        is_by_bucket: Whether gradients are exchanged in buckets while the backward pass still runs.
        options: The dimensions of a plan that it reads, each with its usual value.
    """

    is_exact: bool = False
    scales_loss: bool = True
    is_by_bucket: bool = True
    options: Mapping[str, int] = field(default_factory=dict)


BUILT_IN = {
    USUAL: Capabilities(is_exact=True),
    "bf16": Capabilities(),
    "hierarchical": Capabilities(is_exact=True),
    "powersgd": Capabilities(scales_loss=False, options={"exchange_rank": 4}),
    "onebit": Capabilities(scales_loss=False),
    "topk": Capabilities(scales_loss=False, options={"exchange_compression": 100}),
    "local": Capabilities(is_by_bucket=False, options={"exchange_period": 8}),
    "diloco": Capabilities(is_by_bucket=False, options={"exchange_period": 32}),
    "server": Capabilities(
        is_by_bucket=False, options={"exchange_staleness": 0, "exchange_servers": 1}
    ),
    "asynchronous": Capabilities(is_by_bucket=False, options={"exchange_servers": 1}),
}


def capabilities_of(name: str, *, field: str | None = "plan.exchange") -> Capabilities:
    """Return the capabilities of an exchange. An exchange of another package is imported.

    Args:
        name: A registered name.
        field: The dotted field for the error, if the name is unknown.

    Raises:
        UnknownNameError: If no package registers the name.
    """
    return BUILT_IN.get(name) or EXCHANGES.load(name, field=field).capabilities


def with_options(
    plan: PartialPlan, allowed: Mapping[str, Sequence[PlanValue]] | None = None
) -> PartialPlan:
    """Return a plan with the options of its exchange. Options of other exchanges are 0.

    Args:
        plan: The plan. If it has no exchange, the usual one applies.
        allowed: The values that an undecided option may have, by name. None allows any.

    Example:
        >>> with_options(PartialPlan.of(exchange="powersgd")).get("exchange_rank")
        4
    """
    name = str(plan.get("exchange") or USUAL)
    if name not in EXCHANGES:  # an unknown name is an error when the exchange is loaded
        return plan
    usual = capabilities_of(name).options
    options: dict[str, PlanValue] = {}
    for option in EXCHANGE_OPTIONS:
        options[option] = 0
        if option in usual:
            listed = (allowed or {}).get(option, ())
            first = usual[option]
            if first not in listed:
                first = next((value for value in listed if value), first)
            options[option] = plan.get(option) or first
    return plan | PartialPlan.of(**options)
