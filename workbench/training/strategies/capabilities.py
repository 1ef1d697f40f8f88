"""The capabilities of strategies, and conflicts between values of a plan. Needs no torch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from workbench.experiment.plan import PartialPlan, Plan
from workbench.foundation.errors import ExperimentError
from workbench.training.exchanges.capabilities import USUAL
from workbench.training.strategies import STRATEGIES
from workbench.training.strategies.pipeline_order import can_compute


@dataclass(frozen=True)
class Capabilities:
    """The capabilities of a strategy.

    Attributes:
        max_workers: Maximum number of workers that can share a step, or None for any number.
        holds_whole_model: Whether each worker holds all parameters, so that it can compute alone.
        on_one_worker: Name of the strategy that makes the same step on a single worker with less
            overhead, or None if that is this one.
        takes_exchange: Whether replicas can agree in other ways than by averaging each gradient.
        divides_state: Whether each worker holds only its share of the optimizer's state.
        axis: The dimension of the plan by which the workers of a replica divide the model, or None
            if each worker is a replica.
        takes_shard: Whether `plan.shard` replicas may divide parameters among themselves.
        is_exact: Whether N workers make the step of one worker, up to rounding.
        records_kernels: Whether CUDA graphs can record its passes. They must not wait for another
            worker.
    """

    max_workers: int | None = None
    holds_whole_model: bool = True
    on_one_worker: str | None = None
    takes_exchange: bool = False
    divides_state: bool = False
    axis: str | None = None
    takes_shard: bool = False
    is_exact: bool = True
    records_kernels: bool = False

    @property
    def has_whole_step(self) -> bool:
        """Whether each worker holds all that a step needs: the model and the optimizer's state."""
        return self.holds_whole_model and not self.divides_state

    @property
    def needs_replicas(self) -> bool:
        """Whether it only divides among replicas, so that it is of no use to a single one."""
        return self.divides_state and self.axis is None


BUILT_IN = {
    "single": Capabilities(max_workers=1, records_kernels=True),
    "ddp": Capabilities(on_one_worker="single", takes_exchange=True),
    "zero1": Capabilities(divides_state=True),
    "fsdp": Capabilities(divides_state=True, holds_whole_model=False, takes_shard=True),
    "tensor": Capabilities(holds_whole_model=False, axis="tensor", takes_shard=True),
    "pipeline": Capabilities(
        divides_state=True, holds_whole_model=False, axis="stages", takes_shard=True
    ),
}
BY_AXIS = {able.axis: name for name, able in BUILT_IN.items() if able.axis is not None}
"""The strategy that divides a model along a dimension of the plan."""


def capabilities_of(name: str, *, field: str | None = "plan.strategy") -> Capabilities:
    """Return the capabilities of a strategy. A strategy of another package is imported.

    Args:
        name: A registered name.
        field: The dotted field for the error, if the name is unknown.

    Raises:
        UnknownNameError: If no package registers the name.
    """
    return BUILT_IN.get(name) or STRATEGIES.load(name, field=field).capabilities


def strategies_that(can: Callable[[Capabilities], bool]) -> list[str]:
    """Return the strategies with a capability. Strategies that cannot be imported are skipped.

    Args:
        can: Receives the capabilities of a strategy, and returns whether to include it.
    """
    able: list[str] = []
    for name in STRATEGIES.names():
        with contextlib.suppress(ExperimentError):
            if can(capabilities_of(name)):
                able.append(name)
    return able


def strategy_on(name: str, num_workers: int) -> str:
    """Return the strategy to use for a number of workers in place of `name`."""
    if num_workers == 1 and name in STRATEGIES:
        return capabilities_of(name).on_one_worker or name
    return name


def strategy_for_many(name: str) -> str:
    """Return the strategy that `name` replaces on a single worker, or `name` itself."""
    return next((many for many, able in BUILT_IN.items() if able.on_one_worker == name), name)


@dataclass(frozen=True)
class Conflict:
    """A combination of values that a plan cannot have.

    Attributes:
        dimension: The dimension whose value conflicts with the others.
        problem: The reason, in words.
        allowed: The allowed values.
        next_step: How to resolve the conflict.
    """

    dimension: str
    problem: str
    allowed: str
    next_step: str


def conflict_in(plan: PartialPlan) -> Conflict | None:
    """Return the first value that conflicts with the others, or None if a plan is possible so far.

    Example:
        >>> conflict_in(PartialPlan.of(workers=2, compile="cuda_graphs")).dimension
        'compile'
        >>> conflict_in(PartialPlan.of(workers=1, compile="cuda_graphs"))
    """
    return _of_schedule(plan) or _of_recording(plan) or _of_memory_format(plan)


def _of_schedule(plan: PartialPlan) -> Conflict | None:
    if can_compute(plan):
        return None
    reason = "shard" if plan.get("recompute") in (None, "none") else "recompute"
    schedule = plan.get("pipeline_schedule")
    return Conflict(
        "pipeline_schedule",
        f"stages cannot compute in the order {schedule} with plan.{reason}",
        f"auto, {Plan.pipeline_schedule}; {schedule} without plan.{reason}",
        f"Set it to {Plan.pipeline_schedule}, or remove plan.{reason}.",
    )


def _of_recording(plan: PartialPlan) -> Conflict | None:
    if plan.get("compile") != "cuda_graphs":
        return None
    # Recomputed blocks restore the state of random generators, which a recording cannot do.
    recomputes = plan.get("recompute") not in (None, "none")
    able = _able(plan)
    if not recomputes and (plan.workers or 1) == 1 and (able is None or able.records_kernels):
        return None
    return Conflict(
        "compile",
        "CUDA graphs can only record a single worker, and no recomputed blocks",
        "auto, none, default",
        "Set it to none, or plan.workers to 1, plan.strategy to single and plan.recompute to none.",
    )


def _of_memory_format(plan: PartialPlan) -> Conflict | None:
    if plan.get("memory_format") != "channels_last":
        return None
    able = _able(plan)
    if (able is None or able.has_whole_step) and plan.get("exchange") in (None, USUAL):
        return None
    return Conflict(
        "memory_format",
        "channels_last needs the whole model on each worker, and replicas that average gradients",
        "auto, contiguous",
        f"Set it to contiguous, or plan.strategy to single or ddp and plan.exchange to {USUAL}.",
    )


def _able(plan: PartialPlan) -> Capabilities | None:
    """Return the capabilities of the plan's strategy, or None if it is undecided.

    If the number of workers is undecided, one worker is assumed.
    """
    strategy = plan.get("strategy")
    if not isinstance(strategy, str) or strategy not in STRATEGIES:
        return None
    if not plan.workers:
        strategy = strategy_on(strategy, 1)
    return capabilities_of(strategy)
