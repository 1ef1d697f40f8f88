"""Predicts the step time of every exchange from one timed plan and one sweep of the links.

Nothing is run here. The time for computing is the step of `ddp` without the exchange, but with the
wait for slower workers. Part of an exchange is hidden behind the backward pass. How much follows
from the measured step of `ddp`, which the model must reproduce. A step that was measured with an
exchange replaces its prediction.

An approximate exchange may need more steps. These are counted in the race: a pair of trainings with
the same rate, the same seed and otherwise the same plan must have run, one of them with an exact
exchange. `advice_lines` writes the words.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.advisor.advice import ExchangeOffer, StepCost
from workbench.advisor.advice_lines import CLEARLY_FASTER
from workbench.advisor.plan_study import RatedPlan
from workbench.advisor.plan_variants import Variant, read_plan, variant_of
from workbench.advisor.race import Course, Race
from workbench.advisor.stored_advice import Estimate
from workbench.experiment.plan import EXCHANGE_OPTIONS, PartialPlan, Plan
from workbench.foundation.errors import RunError
from workbench.foundation.events import PlanMeasured
from workbench.hardware.performance.exchange_time import Link, seconds_by_nodes
from workbench.training.exchanges import EXCHANGES
from workbench.training.exchanges.capabilities import USUAL, capabilities_of, with_options

_SAME_LINK_S = 3600.0
"""The network may have changed between sweeps that are further apart."""
_MAX_TIMED = 3
"""How many approximate exchanges are timed."""
_CLEARLY_SLOWER = 1.5
"""An approximate exchange is not timed if its prediction is slower than the fastest by this."""
_WAITS_FOR_LINKS = 0.25
"""If the exchange takes a larger part of a step, plans that divide the model are also timed.

In measurements where all-reduce took 40 % of a step, tensor parts needed two thirds of the time.
"""
_ONE_PAIR, _SEVERAL_PAIRS = 1.35, 1.1
"""Factors that widen the range of the observed pairs, so that about 90 % of others are in it."""
Progress = Mapping[tuple[RatedPlan, int], Sequence[tuple[float, int]]]
"""Pairs of seconds and steps of a training, by its plan with rate and the number of its repeat."""


@dataclass(frozen=True)
class ExchangeForecast:
    """The predicted or measured speed of an exchange.

    Attributes:
        exchange: The name of the exchange.
        plan: The plan with this exchange.
        step_time_s: Seconds per step.
        sent_bytes: The mean bytes that a replica sends per step.
        is_exact: Whether a step equals the step of one worker, except for rounding.
        is_measured: Whether this plan was timed with this exchange.
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
    """Predict the seconds per step of every exchange on the links that were swept last.

    Args:
        measured: The measurements of one setting.
        micro_batch: The micro batch of the steps. The largest timed one is used if this is None or
            was not timed with `ddp`.

    Returns:
        The forecasts, the fastest first. `hierarchical` is only among them if there are several
        nodes and one of them has several workers.

    Raises:
        RunError: If no links were swept, or no plan of these workers was timed with `ddp`.
    """
    swept = _swept(measured)
    if not swept:
        raise RunError(
            "no links between workers were measured",
            field="plan.workers",
            next_step="Run `workbench advise FILE` with plan.workers set to auto, or to 2 or more.",
        )
    latest = swept[-1]
    together = [
        sweep
        for sweep in swept
        if sweep.workers_per_node == latest.workers_per_node
        and abs(latest.time_unix_s - sweep.time_unix_s) < _SAME_LINK_S
    ]
    links = _Links.fit(together, latest.workers_per_node)
    with_ddp = [
        (plan, event)
        for event in measured
        if event.step_time_s is not None
        and event.by_trial is None
        and event.workers_per_node == latest.workers_per_node
        and (plan := read_plan(event.plan)) is not None
        and plan.strategy == "ddp"
    ]
    usual = [
        (plan, event)
        for plan, event in with_ddp
        if plan.exchange == USUAL and plan.accumulation == 1
    ]
    if not usual:
        raise RunError(
            f"no step of ddp was timed on {_workers(latest)} workers",
            field="plan.exchange",
            next_step=(
                "Run `workbench advise FILE` with plan.strategy and plan.exchange set to auto."
            ),
        )
    plan, reference = max(
        usual, key=lambda item: (item[0].micro_batch == micro_batch, item[0].micro_batch)
    )
    return _forecast(links, plan, reference, latest.exchanges, dict(with_ddp))


def has_swept_links(measured: Sequence[PlanMeasured]) -> bool:
    """Return whether the links between workers were measured."""
    return bool(_swept(measured))


def _swept(measured: Sequence[PlanMeasured]) -> list[PlanMeasured]:
    return [event for event in measured if event.all_reduce_s and event.exchanges]


def worth_timing(measured: Sequence[PlanMeasured], names: Iterable[str]) -> set[str]:
    """Return the exchanges to time: exact ones, unknown ones, and those that may be the fastest.

    Args:
        measured: The measurements of one setting. If they allow no prediction, all exchanges are
            returned.
        names: The exchanges to consider.
    """
    wanted = set(names)
    try:
        forecasts = [
            forecast for forecast in forecast_exchanges(measured) if forecast.exchange in wanted
        ]
    except RunError:
        return wanted
    exact, others = (
        [forecast for forecast in forecasts if forecast.is_exact is kind] for kind in (True, False)
    )
    longest_s = 0.0
    if forecasts:
        longest_s = _CLEARLY_SLOWER * forecasts[0].step_time_s.value
    if exact:
        # An approximate exchange needs more steps, so its steps must be clearly faster.
        longest_s = min(longest_s, CLEARLY_FASTER * exact[0].step_time_s.value)
    slow = {forecast.exchange for forecast in others if forecast.step_time_s.low > longest_s}
    return wanted - slow - {forecast.exchange for forecast in others[_MAX_TIMED:]}


def waits_for_links(measured: Sequence[PlanMeasured], variant: Variant) -> bool:
    """Return whether replicas wait long for each other, so that dividing the model may be faster.

    Args:
        measured: The measurements of one setting.
        variant: The variant whose steps on several workers count.
    """
    shares = [
        event.parts_s["communication"] / event.step_time_s
        for event in measured
        if event.step_time_s
        and event.by_trial is None
        and sum(event.workers_per_node) > 1
        and "communication" in event.parts_s
        and (plan := read_plan(event.plan)) is not None
        and variant_of(plan) == variant
    ]
    return min(shares, default=0.0) >= _WAITS_FOR_LINKS


@dataclass(frozen=True)
class _Links:
    """The links between all workers, between the workers of a node, and between nodes.

    `inside` and `between` are None unless there were several nodes in the sweep, and one of them
    had several workers.
    """

    whole: Link
    inside: Link | None
    between: Link | None
    workers_per_node: Sequence[int]

    @classmethod
    def fit(cls, swept: Sequence[PlanMeasured], workers_per_node: Sequence[int]) -> _Links:
        inside_s = _shortest_s([sweep.inside_nodes_s for sweep in swept])
        between_s = _shortest_s([sweep.between_nodes_s for sweep in swept])
        return cls(
            Link.fit(_shortest_s([sweep.all_reduce_s for sweep in swept]), sum(workers_per_node)),
            Link.fit(inside_s, max(workers_per_node)) if inside_s else None,
            Link.fit(between_s, len(workers_per_node)) if between_s else None,
            workers_per_node,
        )

    def agreement_s(
        self, traffic: Mapping[str, Any], num_replicas: int
    ) -> tuple[float, float] | None:
        """Return the seconds of an exchange and the factor by which they may be wrong.

        Returns None if such links were not swept.
        """
        num_bytes = float(traffic["num_bytes"])
        if traffic["way"] == "nodes":
            if self.inside is None or self.between is None:
                return None
            took_s = seconds_by_nodes(
                self.inside,
                self.between,
                num_bytes,
                most_on_a_node=max(self.workers_per_node),
                num_nodes=len(self.workers_per_node),
            )
            return took_s, max(self.inside.width, self.between.width)
        took_s = self.whole.seconds(
            traffic["way"],
            num_bytes,
            num_replicas,
            num_rounds=int(traffic["num_rounds"]),
            num_servers=min(num_replicas, int(traffic["num_servers"])),
        )
        return took_s, self.whole.width


def _shortest_s(sweeps: Iterable[Mapping[str, float]]) -> dict[int, float]:
    """Return the shortest time of an all-reduce for each size. Longer ones were disturbed."""
    shortest_s: dict[int, float] = {}
    for sweep in sweeps:
        for size, took_s in sweep.items():
            shortest_s[int(size)] = min(took_s, shortest_s.get(int(size), took_s))
    return shortest_s


def _workers(measured: PlanMeasured) -> int:
    return sum(measured.workers_per_node)


def _forecast(
    links: _Links,
    plan: Plan,
    reference: PlanMeasured,
    exchanges: Mapping[str, Mapping[str, Any]],
    timed: Mapping[Plan, PlanMeasured],
) -> list[ExchangeForecast]:
    assert reference.step_time_s is not None
    waited_s = reference.parts_s.get("communication", 0.0)
    # All replicas wait for the slowest one, even if they send nothing.
    straggling_s = min(reference.straggling_s or 0.0, waited_s)
    computes_s = reference.step_time_s - waited_s + straggling_s
    # A prediction is no more certain than the measured step that it is based on.
    reference_spread_s = reference.step_time_spread_s or 0.0
    usual = None
    if USUAL in exchanges:
        usual = links.agreement_s(exchanges[USUAL], plan.replicas)
    # The part of an exchange that is visible in the step time. It is below 1 if the exchange
    # overlaps with the backward pass, and above 1 if the link was busier than during the sweep.
    visible = 1.0
    if usual is not None and usual[0] > 0.0:
        visible = (waited_s - straggling_s) / usual[0]
    forecasts: list[ExchangeForecast] = []
    for name, traffic in exchanges.items():
        agreement = links.agreement_s(traffic, plan.replicas)
        if agreement is None:
            continue
        own = _with_exchange(plan, name)
        exact = timed.get(own)
        sends_s, width = agreement
        if traffic["is_overlapped"]:
            sends_s *= visible
        steps = float(traffic["period"])
        # Older runs have no such key. They sent everything before the next step.
        overlaps_next_step = traffic.get("is_beside_next_step", False)
        value, low, high = (
            (
                max(computes_s, sends_s * factor)
                if overlaps_next_step
                else computes_s + sends_s * factor / steps
            )
            + float(traffic["compute_s"]) / steps
            for factor in (1.0, 1.0 / width, width)
        )
        estimate = Estimate(value, low, high).widened(reference_spread_s)
        if exact is not None and exact.step_time_s is not None:
            took_s = exact.step_time_s
            estimate = Estimate(took_s, took_s, took_s).widened(exact.step_time_spread_s or 0.0)
        forecasts.append(
            ExchangeForecast(
                exchange=name,
                plan=own,
                step_time_s=estimate,
                sent_bytes=float(traffic["num_bytes"]) / steps,
                is_exact=bool(traffic["is_exact"]),
                is_measured=exact is not None,
            )
        )
    return sorted(forecasts, key=lambda forecast: forecast.step_time_s.value)


def _with_exchange(plan: Plan, name: str) -> Plan:
    partial = PartialPlan.of_plan(plan).without("exchange", *EXCHANGE_OPTIONS) | PartialPlan.of(
        exchange=name
    )
    complete = with_options(partial).complete()
    assert complete is not None
    return complete


def exchange_offers(
    measured: Sequence[PlanMeasured],
    plan: Plan,
    race: Race[RatedPlan] | None = None,
    progress: Progress | None = None,
) -> tuple[ExchangeOffer, ...]:
    """Return an offer for each exchange, the fastest step first. Empty if no links were measured.

    Args:
        measured: The measurements of the setting.
        plan: The recommended plan. If possible, steps with its micro batch are predicted.
        race: The race of candidates, or None if there was none.
        progress: The steps of its trainings.
    """
    try:
        forecasts = forecast_exchanges(measured, micro_batch=plan.micro_batch)
    except RunError:  # with one worker or another strategy, no links are swept
        return ()
    costs: Mapping[str, StepCost] = {}
    if race is not None:
        costs = step_costs(race.courses, progress or {})
    return tuple(
        ExchangeOffer(
            exchange=forecast.exchange,
            batch_text=forecast.plan.batch_text,
            global_batch=forecast.plan.global_batch,
            step_time_s=forecast.step_time_s,
            sent_bytes=forecast.sent_bytes,
            is_exact=forecast.is_exact,
            is_measured=forecast.is_measured,
            cost=costs.get(forecast.exchange),
        )
        for forecast in forecasts
    )


def step_costs(courses: Sequence[Course[RatedPlan]], progress: Progress) -> dict[str, StepCost]:
    """Return the cost of approximate exchanges by name.

    Args:
        courses: All trainings of a race.
        progress: Their steps.
    """
    logs: dict[str, list[float]] = {}
    for course in courses:
        name = course.entrant.plan.exchange
        if is_exact(name):
            continue
        for other in courses:
            factor = _factor(course, other, progress) if _is_pair(course, other) else None
            if factor is not None:
                logs.setdefault(name, []).append(math.log(factor))
    return {name: _cost(of_pairs) for name, of_pairs in logs.items()}


def is_exact(exchange: str) -> bool:
    """Return whether a step with this exchange equals the step of one worker."""
    return exchange not in EXCHANGES or capabilities_of(exchange).is_exact


def without_exchange(plan: Plan) -> PartialPlan:
    """Return a plan without its exchange and the exchange's options."""
    return PartialPlan.of_plan(plan).without("exchange", *EXCHANGE_OPTIONS)


def _is_pair(course: Course[RatedPlan], other: Course[RatedPlan]) -> bool:
    ours, theirs = course.entrant, other.entrant
    return (
        is_exact(theirs.plan.exchange)
        and (ours.lr, course.repeat) == (theirs.lr, other.repeat)
        and without_exchange(ours.plan) == without_exchange(theirs.plan)
    )


def _factor(
    course: Course[RatedPlan], exact: Course[RatedPlan], progress: Progress
) -> float | None:
    """Return the steps of a training divided by those of its exact counterpart.

    Both count up to the best value that both trainings reached.
    """
    if not course.best_values or not exact.best_values:
        return None
    value = min(course.best_values[-1], exact.best_values[-1])
    steps = [
        _steps_to(value, either, progress.get((either.entrant, either.repeat), ()))
        for either in (course, exact)
    ]
    if steps[0] is None or steps[1] is None:
        return None
    return steps[0] / steps[1]


def _steps_to(
    value: float, course: Course[RatedPlan], steps: Sequence[tuple[float, int]]
) -> float | None:
    """Return the steps after which a training reached a value, interpolated between evaluations."""
    index = bisect.bisect_left(course.best_values, value)
    at = _steps_at(course.elapsed_s[index], steps)
    before = 0.0
    if index:
        before = _steps_at(course.elapsed_s[index - 1], steps)
    if at is None or before is None or at <= 0.0:
        return None
    if index == 0:
        return at
    low, high = course.best_values[index - 1], course.best_values[index]
    return before + (at - before) * (value - low) / (high - low)


def _steps_at(elapsed_s: float, steps: Sequence[tuple[float, int]]) -> float | None:
    index = bisect.bisect_right([at_s for at_s, _ in steps], elapsed_s)
    if not index:
        return None
    return float(steps[index - 1][1])


def _cost(logs: Sequence[float]) -> StepCost:
    mean = math.exp(math.fsum(logs) / len(logs))
    width = _SEVERAL_PAIRS
    if len(logs) == 1:
        width = _ONE_PAIR
    factor = Estimate(mean, math.exp(min(logs)) / width, math.exp(max(logs)) * width)
    return StepCost(factor, len(logs))
