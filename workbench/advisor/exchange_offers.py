"""Other exchanges for a recommended plan: how fast their steps are, and how many more they need.

The additional steps of an approximate exchange are counted in the race. A pair of trainings with
the same rate, the same seed and otherwise the same plan must have run, one of them with an exact
exchange. `exchange_forecast` predicts the seconds per step, and `advice_lines` writes the words.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence

from workbench.advisor.advice import ExchangeOffer, StepCost
from workbench.advisor.exchange_forecast import forecast_exchanges
from workbench.advisor.proposals import RatedPlan
from workbench.advisor.race import Course, Race
from workbench.advisor.stored_advice import Estimate
from workbench.experiment.plan import EXCHANGE_OPTIONS, PartialPlan, Plan
from workbench.foundation.errors import RunError
from workbench.foundation.events import PlanMeasured
from workbench.training.exchanges import EXCHANGES
from workbench.training.exchanges.capabilities import capabilities_of

_ONE_PAIR, _SEVERAL_PAIRS = 1.35, 1.1
"""Factors that widen the range of the observed pairs, so that about 90 % of others are in it."""

Progress = Mapping[tuple[RatedPlan, int], Sequence[tuple[float, int]]]
"""Pairs of seconds and steps of a training, by its plan with rate and the number of its repeat."""


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
            forecast.exchange,
            forecast.plan.batch_text,
            forecast.plan.global_batch,
            forecast.step_time_s,
            forecast.sent_bytes,
            forecast.is_exact,
            forecast.is_measured,
            costs.get(forecast.exchange),
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
