"""Seconds per step of every exchange, from the probe of a model and one sweep of the links; nothing is run.

What a step computes is the time of `ddp` without waiting for the others. How much of an exchange hides behind
the backward pass is read off the measured steps of `ddp`, which the law must repeat. Steps that were measured
with an exchange replace its prediction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.advisor.advice import Estimate
from workbench.advisor.variants import read_plan
from workbench.errors import ExperimentError
from workbench.events import PlanMeasured
from workbench.exchanges.capabilities import USUAL, with_options
from workbench.performance.exchange_time import Link
from workbench.plan import EXCHANGE_OPTIONS, PartialPlan, Plan

_SAME_LINK_S = 3600.0
"""Sweeps that lie further apart may have seen another network."""


@dataclass(frozen=True)
class ExchangeForecast:
    """What an exchange brings.

    Attributes:
        exchange: Its name.
        plan: The plan, as it would be.
        step_time_s: Seconds per step.
        sent_bytes: What a replica contributes per step, in the mean.
        is_exact: Whether it makes the step of one worker, up to rounding.
        is_measured: Whether exactly this was timed.
    """

    exchange: str
    plan: Plan
    step_time_s: Estimate
    sent_bytes: float
    is_exact: bool
    is_measured: bool


def forecast_exchanges(
    measured: Sequence[PlanMeasured], *, micro_batch: int | None = None
) -> list[ExchangeForecast]:
    """Predict the seconds per step of every exchange, on the links and in the plan that were swept last.

    Args:
        measured: Of one setting.
        micro_batch: Of which steps to predict; the largest where `ddp` was not timed with it, or if None.

    Returns:
        The fastest first.

    Raises:
        ExperimentError: If no links were swept, or no plan of these workers was timed with `ddp`.
    """
    swept = [each for each in measured if each.all_reduce_s and each.exchanges]
    if not swept:
        raise ExperimentError(
            "no links between workers were measured",
            field="plan.workers",
            next_step="Run `workbench advise FILE` with plan.workers: auto, or 2 or more.",
        )
    latest = swept[-1]
    together = [
        each for each in swept
        if each.workers_per_node == latest.workers_per_node
        and abs(latest.time_unix_s - each.time_unix_s) < _SAME_LINK_S
    ]  # fmt: skip
    link = Link.fit(_shortest_s(together), _workers(latest))
    alike = [
        (plan, each)
        for each in measured
        if each.step_time_s is not None
        and each.by_trial is None
        and each.workers_per_node == latest.workers_per_node
        and (plan := read_plan(each.plan)) is not None
        and plan.strategy == "ddp"
    ]
    usual = [(plan, each) for plan, each in alike if plan.exchange == USUAL and plan.accumulation == 1]
    if not usual:
        raise ExperimentError(
            f"no step of ddp was timed on {_workers(latest)} workers", field="plan.exchange",
            next_step="Run `workbench advise FILE` with plan.strategy and plan.exchange: auto.",
        )  # fmt: skip
    plan, reference = max(usual, key=lambda item: (item[0].micro_batch == micro_batch, item[0].micro_batch))
    return _forecast(link, plan, reference, latest.exchanges, dict(alike))


def _shortest_s(swept: Sequence[PlanMeasured]) -> dict[int, float]:
    """Return the shortest seconds of an all-reduce by its bytes: others were disturbed."""
    found: dict[int, float] = {}
    for each in swept:
        for size, took_s in each.all_reduce_s.items():
            found[int(size)] = min(took_s, found.get(int(size), took_s))
    return found


def _workers(measured: PlanMeasured) -> int:
    return sum(measured.workers_per_node)


def _forecast(
    link: Link, plan: Plan, reference: PlanMeasured, exchanges: Mapping[str, Mapping[str, Any]],
    timed: Mapping[Plan, PlanMeasured],
) -> list[ExchangeForecast]:  # fmt: skip
    assert reference.step_time_s is not None
    waited_s = reference.parts_s.get("communication", 0.0)
    computes_s = reference.step_time_s - waited_s
    usual_s = _agreement_s(link, exchanges[USUAL], plan.replicas) if USUAL in exchanges else 0.0
    # Part of what is sent during the backward pass hides behind it; a shared link may also be slower.
    seen = waited_s / usual_s if usual_s > 0.0 else 1.0
    found: list[ExchangeForecast] = []
    for name, traffic in exchanges.items():
        own = _with_exchange(plan, name)
        exact = timed.get(own)
        sends_s = _agreement_s(link, traffic, plan.replicas) * (seen if traffic["is_overlapped"] else 1.0)
        steps = float(traffic["period"])
        value = computes_s + (sends_s + float(traffic["compute_s"])) / steps
        estimate = Estimate(value, value / link.width, value * link.width)
        if exact is not None and exact.step_time_s is not None:
            spread_s = exact.step_time_spread_s or 0.0
            took_s = exact.step_time_s
            estimate = Estimate(took_s, max(0.0, took_s - spread_s), took_s + spread_s)
        found.append(
            ExchangeForecast(
                name, own, estimate, float(traffic["num_bytes"]) / steps, bool(traffic["is_exact"]),
                exact is not None,
            )
        )  # fmt: skip
    return sorted(found, key=lambda each: each.step_time_s.value)


def _agreement_s(link: Link, traffic: Mapping[str, Any], num_replicas: int) -> float:
    return link.seconds(
        traffic["way"], float(traffic["num_bytes"]), num_replicas,
        num_rounds=int(traffic["num_rounds"]), num_servers=min(num_replicas, int(traffic["num_servers"])),
    )  # fmt: skip


def _with_exchange(plan: Plan, name: str) -> Plan:
    partial = PartialPlan.of_plan(plan).without("exchange", *EXCHANGE_OPTIONS) | PartialPlan.of(exchange=name)
    found = with_options(partial).complete()
    assert found is not None
    return found
