"""Times plans that are about equally fast again, in turns, until one is clearly the fastest.

Two timings of one plan often differ by more than two plans do, because of other programs on the
machine and the placement of processes. So a difference between plans only counts if it is larger
than the differences between timings of the same plan.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from workbench.advisor.advice import Goal
from workbench.advisor.plan_measurement import PlanMeasurer
from workbench.advisor.plan_variants import Variant, variant_of
from workbench.advisor.plans import Knowledge
from workbench.experiment.plan import Plan
from workbench.training.exchanges.capabilities import capabilities_of

_Way = TypeVar("_Way")
_PART = 0.1
"""The part of the time for measuring plans that may be spent on timing close ones again."""
_MAX_CLOSE = 3
_MAX_TURNS = 6
_USUAL_DEVIATION = 0.15
"""The prior standard deviation of the logarithm of a timing."""
_USUAL_COUNTS = 2.0
"""The weight of that prior, in degrees of freedom."""
_SURE = 1.645
"""Standard errors by which a plan must be slower to be dropped. One in twenty is dropped wrongly,
the one-sided 95 % quantile of the normal distribution.
"""


def may_be_fastest(timed_s: Mapping[_Way, Sequence[float]]) -> list[_Way]:
    """Return the ways that may be the fastest by their timings, the fastest so far first.

    Args:
        timed_s: The timings of each way in seconds, > 0, at least one per way.

    Returns:
        At most three ways. Only one if it is clearly the fastest, and none if there are none.
    """
    if not timed_s:
        return []
    logs = {
        variant: [math.log(time_s) for time_s in times_s] for variant, times_s in timed_s.items()
    }
    middles = {variant: statistics.median(own_logs) for variant, own_logs in logs.items()}
    offsets = [log - statistics.fmean(own_logs) for own_logs in logs.values() for log in own_logs]
    # The prior deviation and the deviation of the timings, weighted by their degrees of freedom.
    squares = _USUAL_COUNTS * _USUAL_DEVIATION**2 + math.fsum(offset**2 for offset in offsets)
    deviation = math.sqrt(squares / (_USUAL_COUNTS + len(offsets) - len(logs)))
    ordered = sorted(logs, key=middles.__getitem__)

    def is_close(variant: _Way) -> bool:
        error = deviation * math.sqrt(1.0 / len(logs[variant]) + 1.0 / len(logs[ordered[0]]))
        return middles[variant] - middles[ordered[0]] < _SURE * error

    return ordered[:1] + [variant for variant in ordered[1:_MAX_CLOSE] if is_close(variant)]


def time_in_turns(
    timings_s: Callable[[], Mapping[_Way, Sequence[float]]],
    time_again: Callable[[list[_Way]], None],
    has_time: Callable[[], bool],
) -> None:
    """Time the ways that may be the fastest in turns until one of them clearly is.

    Turns spread a temporary load of the machine over all of them.

    Args:
        timings_s: Returns the timings of each way, as in `may_be_fastest`.
        time_again: Times some ways again. `timings_s` then also returns the new timings.
        has_time: Returns whether there is time for another turn.
    """
    for _ in range(_MAX_TURNS):
        close = may_be_fastest(timings_s()) if has_time() else []
        if len(close) < 2:
            return
        time_again(close)


def time_closest_again(measurer: PlanMeasurer, goal: Goal, noise_scale: float | None) -> None:
    """Time the close plans of the most promising batch until one of them is clearly the best.

    Args:
        measurer: A measurer that has measured the plans. A tenth of its time may be used.
        goal: The goal of the advice.
        noise_scale: The gradient noise scale in samples, or None if it was not measured.

    Raises:
        ExperimentError: If no allowed plan fits.
    """
    until_s = min(measurer.spent_s + _PART * measurer.budget_s, measurer.budget_s)
    if measurer.spent_s >= until_s:
        return
    batch = measurer.fastest_plans(goal, noise_scale)[0].global_batch
    knowledge = measurer.knowledge
    plans = [plan for plan in measurer.plans_that_fit() if plan.global_batch == batch]
    # An approximate exchange also needs more steps, so it cannot be compared with an exact one by
    # the time of a step.
    for is_exact in (True, False):
        same_kind = [plan for plan in plans if capabilities_of(plan.exchange).is_exact is is_exact]
        time_in_turns(
            partial(_costs, _contenders(same_kind, knowledge, goal), measurer, goal),
            measurer.measure_again,
            lambda: measurer.spent_s < until_s,
        )


def _contenders(plans: Sequence[Plan], knowledge: Knowledge, goal: Goal) -> dict[Plan, float]:
    """Return the best plan of each variant and number of workers, with its cost."""
    best: dict[tuple[Variant, int], tuple[Plan, float]] = {}
    for plan, step in zip(plans, knowledge.step_times(plans), strict=True):
        kind, cost = (variant_of(plan), plan.workers), step.value * knowledge.price(plan, goal)
        if kind not in best or cost < best[kind][1]:
            best[kind] = plan, cost
    return dict(best.values())


def _costs(
    predicted: Mapping[Plan, float], measurer: PlanMeasurer, goal: Goal
) -> dict[Plan, list[float]]:
    """Return the cost of each timing of plans, or the predicted cost of a plan without timings."""
    knowledge = measurer.knowledge
    return {
        plan: (
            [step_s * knowledge.price(plan, goal) for step_s in knowledge.timings_s(plan)] or [cost]
        )
        for plan, cost in predicted.items()
    }
