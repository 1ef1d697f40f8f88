"""Other plans that train the same, with less memory or on another number of workers.

A trial that ran out of memory first tries half the micro batch. Then it tries to recompute
activations, strategies that divide whole copies among the same workers, and replicas that divide
their stages or parts. Finally it tries smaller and smaller micro batches. The trained model stays
the same. Measuring how much memory each change saves is left to the callers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pydantic import JsonValue

from workbench.experiment import Experiment
from workbench.experiment.plan import PartialPlan, Plan
from workbench.experiment.trainings import is_private
from workbench.training.exchanges.capabilities import USUAL
from workbench.training.planning.settings import fitted_of
from workbench.training.strategies import STRATEGIES
from workbench.training.strategies.capabilities import (
    Capabilities,
    capabilities_of,
    conflict_in,
    strategies_that,
)
from workbench.training.strategies.pipeline_order import can_compute

WAYS = ("recompute", "strategy", "shard")
"""The dimensions of a plan that may change, in addition to the division of its batch."""
_LATER_DIVISOR = 4
"""If half a micro batch did not fit, it is divided by this. Larger steps save failed starts."""
_WHOLE_PARAMETERS = frozenset({"adafactor", "muon", "sparseadam"})
"""Optimizers of torch whose update of a value depends on other values of the same parameter. If
parameters are cut, a worker may not hold those.
"""


def smaller_micro_batch(plan: Plan | PartialPlan, divisor: int = 2) -> PartialPlan | None:
    """Return the change to a plan that needs less memory and trains the same.

    Args:
        plan: The plan that did not fit.
        divisor: The micro batch is divided by at least this number, at least 2.

    Returns:
        Micro batch and accumulation. The micro batch is the largest one that is at most the current
        size divided by `divisor`, and that divides a worker's part of the global batch. None if the
        size is 1 already.
    """
    micro_batch, accumulation = plan.micro_batch, plan.accumulation
    if micro_batch is None or accumulation is None or micro_batch < 2:
        return None
    part = micro_batch * accumulation
    smaller = next(
        size for size in range(max(micro_batch // divisor, 1), 0, -1) if part % size == 0
    )
    return PartialPlan.of(micro_batch=smaller, accumulation=part // smaller)


def with_workers(
    plan: Plan | PartialPlan, num_workers: int, *, fixed: Collection[str] = ()
) -> PartialPlan | None:
    """Return the change to a plan that trains the same on another number of workers.

    Args:
        plan: The current plan.
        num_workers: The new number of workers.
        fixed: Dimensions that must not change: micro_batch, accumulation, both or neither.

    Returns:
        Workers, micro batch and accumulation for the same global batch, and the unchanged axes
        along which workers share a replica. More workers first reduce the accumulation, and then
        the micro batch. None if there is no such division.
    """
    global_batch, micro_batch, accumulation = plan.global_batch, plan.micro_batch, plan.accumulation
    replicas, rest = divmod(num_workers, plan.workers_per_replica)
    if global_batch is None or micro_batch is None or rest or global_batch % replicas:
        return None
    if replicas % (plan.shard or 1):
        return None
    part = global_batch // replicas
    # Axes are decided here even if they are 1. If they were open, the strategy would divide the
    # model among all workers.
    axes = {
        axis: size for axis, size in (("stages", plan.stages), ("tensor", plan.tensor)) if size > 1
    }
    for size in range(min(micro_batch, part), 0, -1):
        is_kept = "micro_batch" not in fixed or size == micro_batch
        if (
            part % size == 0
            and is_kept
            and ("accumulation" not in fixed or part // size == accumulation)
        ):
            return PartialPlan.of(
                workers=num_workers, micro_batch=size, accumulation=part // size, **axes
            )
    return None


def fixed_of(experiment: Experiment, params: Mapping[str, JsonValue]) -> frozenset[str]:
    """Return which of micro_batch and accumulation the experiment or the search has decided.

    Args:
        experiment: The experiment.
        params: The configuration of the trial.
    """
    written = experiment.plan.decided
    return frozenset(
        name for name in ("micro_batch", "accumulation") if name in params or name in written
    )


def next_way(
    plan: PartialPlan,
    *,
    changeable: Collection[str],
    has_blocks: bool,
    tried: Collection[PartialPlan] = (),
    divides_batch: bool = True,
) -> PartialPlan | None:
    """Return the next change to a plan that did not fit, or None if nothing is left to try.

    Args:
        plan: The plan that did not fit.
        changeable: Which of `WAYS` may change.
        has_blocks: Whether the model has blocks that could be recomputed.
        tried: The changes that were tried before.
        divides_batch: Whether the loss of a batch equals the loss of its micro batches together.

    Example:
        >>> plan = PartialPlan.of(workers=2, micro_batch=1, accumulation=4, strategy="ddp")
        >>> plan |= PartialPlan.of(recompute="none")
        >>> next_way(plan, changeable=WAYS, has_blocks=False).to_json()
        {'strategy': 'zero1'}
    """
    for way in _ways(plan, has_blocks, is_divided=any("micro_batch" in before for before in tried)):
        names = dict(way.values)
        is_tried = any(set(way.values) <= set(before.values) for before in tried)
        may_change = all(name in changeable for name in names if name in WAYS)
        if "micro_batch" in names and not divides_batch:
            continue
        if may_change and not is_tried and conflict_in(plan | way) is None:
            return way
    return None


def changeable_ways(experiment: Experiment, params: Mapping[str, Any]) -> frozenset[str]:
    """Return which of `WAYS` a trial may change: those that are neither written nor searched.

    The strategy also stays if cutting parameters could change the result. That may happen with your
    own optimizer or hook, and with optimizers that look at whole parameters.

    Args:
        experiment: The experiment.
        params: The configuration of the trial.
    """
    makes_steps = (
        experiment.trains_model and experiment.federated is None and not experiment.makes_own_steps
    )
    if not makes_steps or is_private(experiment) or fitted_of(experiment, params) is not None:
        return frozenset()
    is_open = {name for name in WAYS if name not in experiment.plan.decided and name not in params}
    optimizer = str(params.get("optimizer", experiment.training.optimizer)).lower()
    needs_whole = ":" in optimizer or optimizer in _WHOLE_PARAMETERS
    has_hook = params.get("gradient_hook", experiment.training.gradient_hook) is not None
    if needs_whole or has_hook:
        is_open -= {"strategy", "shard"}
    return frozenset(is_open)


def _ways(plan: PartialPlan, has_blocks: bool, *, is_divided: bool) -> Iterator[PartialPlan]:
    half = smaller_micro_batch(plan)
    if half is not None and not is_divided:
        yield half
    if has_blocks and plan.get("recompute") == "none":
        yield _in_usual_order(plan, PartialPlan.of(recompute="blocks"))
    for name in _saving_strategies(plan):
        yield PartialPlan.of(strategy=name)
    name, replicas = plan.get("strategy"), plan.replicas or 1
    if isinstance(name, str) and name in STRATEGIES and plan.shard == 0 and replicas > 1:
        able = capabilities_of(name)
        if able.takes_shard and able.axis is not None:
            yield _in_usual_order(plan, PartialPlan.of(shard=replicas))
    smaller = smaller_micro_batch(plan, _LATER_DIVISOR)
    if smaller is not None:
        yield smaller


def _in_usual_order(plan: PartialPlan, way: PartialPlan) -> PartialPlan:
    """Return a change to a plan, with the usual pipeline schedule if the chosen one cannot stay."""
    if can_compute(plan | way):
        return way
    return way | PartialPlan.of(pipeline_schedule=Plan.pipeline_schedule)


def _saving_strategies(plan: PartialPlan) -> list[str]:
    """Return the exact strategies in which a worker holds less for the same step.

    The strategy that saves the least comes first.
    """
    now = plan.get("strategy")
    if not isinstance(now, str) or (plan.replicas or 1) == 1 or now not in STRATEGIES:
        return []
    held = capabilities_of(now)
    saving: list[tuple[tuple[bool, bool], str]] = []
    for name in strategies_that(lambda can: can.is_exact):
        able = capabilities_of(name)
        divides_replicas = able.axis is None and able.max_workers is None and held.axis is None
        agrees = able.takes_exchange or plan.get("exchange") in (None, USUAL)
        if divides_replicas and agrees and _saved(able) > _saved(held):
            saving.append((_saved(able), name))
    return [name for _, name in sorted(saving)]


def _saved(able: Capabilities) -> tuple[bool, bool]:
    return not able.holds_whole_model, able.divides_state
