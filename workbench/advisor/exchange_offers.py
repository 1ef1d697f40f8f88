"""What other exchanges would bring to a recommended plan, and what they cost.

More steps to the same result.

The steps that an approximate exchange needs more are counted where it was raced beside an exact
one: with the same plan otherwise, the same rate and the same seed. Seconds per step are left to
`exchange_forecast`, wording to `advice_lines`.
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
"""Factors that widen the range of the pairs, so that nine of ten others should be in it."""

Progress = Mapping[tuple[RatedPlan, int], Sequence[tuple[float, int]]]
"""When a training had made how many steps, by its plan and rate and by which of its trainings it
is.
"""


def exchange_offers(
    measured: Sequence[PlanMeasured],
    plan: Plan,
    race: Race[RatedPlan] | None = None,
    progress: Progress | None = None,
) -> tuple[ExchangeOffer, ...]:
    """Return what each exchange would bring, the fastest step first.

    Nothing where no links were measured.

    Args:
        measured: The measurements of the setting.
        plan: What is recommended: steps of its micro batch are predicted where they were measured.
        race: Trainings beside each other.
        progress: Their steps.
    """
    try:
        forecasts = forecast_exchanges(measured, micro_batch=plan.micro_batch)
    except RunError:  # one worker, or another strategy: nothing was swept
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
    """Return what approximate exchanges cost, by their names.

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
    """Return whether replicas make the step of one worker with this exchange."""
    return exchange not in EXCHANGES or capabilities_of(exchange).is_exact


def without_exchange(plan: Plan) -> PartialPlan:
    """Return all of a plan but how its replicas agree."""
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
    """Return how many times the steps of the exact one it took.

    They count up to the best value that both reached.
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
    """Return after how many steps a training had reached a value.

    Between its evaluations lies a line.
    """
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
