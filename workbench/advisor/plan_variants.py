"""Variants of a plan: all settings except for the factors of the global batch.

Plans of one variant share a model of step times. A data-parallel plan on one worker uses a cheaper
strategy with another name. It still belongs to the same variant.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from workbench.experiment.plan import (
    EXCHANGE_OPTIONS,
    SIZES,
    VARIANT,
    AdvisedFor,
    PartialPlan,
    Plan,
    PlanValue,
)
from workbench.training.exchanges import EXCHANGES
from workbench.training.exchanges.capabilities import USUAL, with_options
from workbench.training.exchanges.capabilities import capabilities_of as capabilities_of_exchange
from workbench.training.strategies import STRATEGIES
from workbench.training.strategies.capabilities import (
    BY_AXIS,
    capabilities_of,
    conflict_in,
    strategy_for_many,
    strategy_on,
)

Variant = PartialPlan
"""A value for every dimension of a plan that is not a factor of the global batch."""
_DEFAULTS = PartialPlan.of(strategy="ddp")
"""Functions and programs store only the sizes of their plans, so the strategy is missing.

On one worker, ddp is the same as single.
"""


@lru_cache(maxsize=10_000)  # searches compare the same plans many times
def variant_of(plan: Plan) -> Variant:
    """Return the variant that a plan belongs to."""
    work = with_options(PartialPlan.of_plan(plan).without(*SIZES))
    return work | PartialPlan.of(strategy=strategy_for_many(plan.strategy))


def plan_with(variant: Variant, workers: int, micro_batch: int, accumulation: int = 1) -> Plan:
    """Return the plan of a variant with these factors of the global batch."""
    sizes = PartialPlan.of(workers=workers, micro_batch=micro_batch, accumulation=accumulation)
    plan = (variant | sizes).complete()
    assert plan is not None
    return _usual_form(plan)


def read_plan(stored: Mapping[str, Any]) -> Plan | None:
    """Return a stored plan in the form of `plan_with`, or None if a size is missing."""
    plan = (_DEFAULTS | PartialPlan.from_json(stored)).complete()
    return None if plan is None else _usual_form(plan)


def plan_of(stored: Mapping[str, Any]) -> Plan:
    """Return a stored plan that is known to be complete, in the form of `plan_with`.

    Raises:
        ValueError: If workers, micro batch or accumulation are missing.
    """
    return _usual_form(Plan.from_json({**_DEFAULTS.to_json(), **stored}))


def alternatives(
    base: Variant, options: Mapping[str, Sequence[PlanValue]], advised_for: AdvisedFor
) -> Iterator[Variant]:
    """Yield the variants that differ from `base` in one dimension and its options.

    Args:
        base: The variant to differ from.
        options: The allowed values of each dimension.
        advised_for: The purpose for which the advisor changes dimensions. Others are not changed.
    """
    seen = {base}
    for dimension in VARIANT:
        if dimension.advised_for != advised_for:
            continue
        if dimension.name == "pipeline_schedule" and base.stages == 1:
            continue  # without stages there is no order
        belonging = [other for other in VARIANT if other.option_of == dimension.name]
        names = [changed.name for changed in (dimension, *belonging)]
        for values in itertools.product(*(options[name] for name in names)):
            variant = with_options(
                base | PartialPlan.of(**dict(zip(names, values, strict=True))), options
            )
            if variant not in seen and conflict_in(variant) is None:
                seen.add(variant)
                yield variant


def combinations(
    base: Variant, options: Mapping[str, Sequence[PlanValue]], advised_for: AdvisedFor
) -> Iterator[Variant]:
    """Yield `base` with all combinations of values of the dimensions to change.

    Arguments as in `alternatives`.
    """
    names = [dimension.name for dimension in VARIANT if dimension.advised_for == advised_for]
    for values in itertools.product(*(options[name] for name in names)):
        variant = with_options(
            base | PartialPlan.of(**dict(zip(names, values, strict=True))), options
        )
        if conflict_in(variant) is None:
            yield variant


def is_possible_on(variant: Variant, workers: int) -> bool:
    """Return whether plans of a variant are possible on a number of workers."""
    strategy = strategy_on(str(variant.get("strategy")), workers)
    return conflict_in(variant | PartialPlan.of(workers=workers, strategy=strategy)) is None


def exchange_options(
    options: Mapping[str, tuple[PlanValue, ...]],
) -> dict[str, tuple[PlanValue, ...]]:
    """Return the allowed values of the exchanges' options, the usual ones first."""
    values_of: dict[str, list[PlanValue]] = {name: [] for name in EXCHANGE_OPTIONS}
    for exchange in options["exchange"]:
        plan = with_options(PartialPlan.of(exchange=exchange), options)
        usual = capabilities_of_exchange(str(exchange)).options if exchange in EXCHANGES else {}
        for name, values in values_of.items():
            values.append(plan.get(name) or 0)
            if name in usual:
                values.extend(value for value in options[name] if value or not usual[name])
    return {name: tuple(dict.fromkeys(values)) for name, values in values_of.items()}


def divided(base: Variant, options: Mapping[str, Sequence[PlanValue]]) -> Iterator[Variant]:
    """Yield the variants in which workers divide the model. Arguments as in `alternatives`."""
    # Their replicas only support the usual exchange.
    plain = with_options(
        base.without(*EXCHANGE_OPTIONS) | PartialPlan.of(exchange=USUAL, bucket="default")
    )
    if any(plain.get(name) not in options[name] for name in ("exchange", "bucket")):
        return
    for name in options["strategy"]:
        axis = capabilities_of(str(name)).axis if name in STRATEGIES else None
        if axis is None:
            continue
        schedules = (
            options["pipeline_schedule"] if axis == "stages" else (base.get("pipeline_schedule"),)
        )
        for size, schedule in itertools.product(options[axis], schedules):
            if size != 1:
                axes = dict.fromkeys(BY_AXIS, 1) | {axis: size}
                variant = plain | PartialPlan.of(strategy=name, pipeline_schedule=schedule, **axes)
                if conflict_in(variant) is None:
                    yield variant


def _usual_form(plan: Plan) -> Plan:
    return dataclasses.replace(plan, strategy=strategy_on(plan.strategy, plan.workers))
