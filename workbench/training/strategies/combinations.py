"""Values of a plan that exclude each other: each may be right, but not together."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.experiment.plan import PartialPlan, Plan
from workbench.training.exchanges.capabilities import USUAL
from workbench.training.strategies import STRATEGIES
from workbench.training.strategies.capabilities import Capabilities, capabilities_of, strategy_on
from workbench.training.strategies.pipeline_order import can_compute


@dataclass(frozen=True)
class Conflict:
    """What a plan cannot be.

    Attributes:
        dimension: The dimension whose value the others exclude.
        problem: Why, in words.
        allowed: What it may be instead.
        next_step: How to change the others.
    """

    dimension: str
    problem: str
    allowed: str
    next_step: str


def conflict_in(plan: PartialPlan) -> Conflict | None:
    """Return the first value that the others exclude.

    None where a plan is possible as far as it is decided.

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
    # Blocks that are computed again restore the states of generators, which a recording cannot
    # hold.
    recomputes = plan.get("recompute") not in (None, "none")
    able = _able(plan)
    if not recomputes and (plan.workers or 1) == 1 and (able is None or able.records_kernels):
        return None
    return Conflict(
        "compile",
        "CUDA graphs record what one worker computes alone, and nothing that is computed again",
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
        "images lie with their channels last only where each worker holds the whole model and"
        " replicas average its gradients",
        "auto, contiguous",
        f"Set it to contiguous, or plan.strategy to single or ddp and plan.exchange to {USUAL}.",
    )


def _able(plan: PartialPlan) -> Capabilities | None:
    """Return what the strategy can do.

    That for one worker where the workers are open, None where it is.
    """
    strategy = plan.get("strategy")
    if not isinstance(strategy, str) or strategy not in STRATEGIES:
        return None
    return capabilities_of(strategy if plan.workers else strategy_on(strategy, 1))
