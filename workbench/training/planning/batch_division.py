"""Other divisions of the same global batch.

Fewer samples at once, or other workers, with the same result.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pydantic import JsonValue

from workbench.experiment import Experiment
from workbench.experiment.plan import PartialPlan, Plan


def smaller_micro_batch(plan: Plan | PartialPlan, divisor: int = 2) -> PartialPlan | None:
    """Return the change to a plan that needs less memory and trains the same.

    Args:
        plan: The plan that did not fit.
        divisor: By how much the micro batch is divided at least, at least 2.

    Returns:
        Micro batch and accumulation: the largest micro batch of at most the size over `divisor`,
        but at least 1, that divides a worker's part of the global batch; None where the size is 1
        already.
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
        plan: The plan as it is.
        num_workers: The number of workers that it should have.
        fixed: What must stay as it is: micro_batch, accumulation, both or neither.

    Returns:
        Workers, micro batch and accumulation for the same global batch, and the axes along which
        workers share a replica, as they are: with more workers less accumulation first, and a
        smaller micro batch only where that is not enough; None where there is no such division.
    """
    global_batch, micro_batch, accumulation = plan.global_batch, plan.micro_batch, plan.accumulation
    replicas, rest = divmod(num_workers, plan.workers_per_replica)
    if global_batch is None or micro_batch is None or rest or global_batch % replicas:
        return None
    if replicas % (plan.shard or 1):
        return None
    part = global_batch // replicas
    # Where it is left open, a strategy would divide the model among all workers.
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
    """Return which of micro_batch and accumulation the experiment or the search decides for a
    trial.

    Args:
        experiment: The experiment.
        params: The configuration of the trial.
    """
    written = experiment.plan.decided
    return frozenset(
        name for name in ("micro_batch", "accumulation") if name in params or name in written
    )
