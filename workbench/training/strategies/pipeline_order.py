"""The order in which a stage of a pipeline computes, its memory, and the time of a step.

A backward pass may be two tasks. The previous stage waits for the gradients of the stage's inputs.
Nobody waits for the gradients of its weights. Needs no torch.

Sources: Huang et al. 2019, "GPipe"; Narayanan et al. 2021, "Efficient Large-Scale Language Model
Training on GPU Clusters Using Megatron-LM", section 2.2, for 1F1B; Qi et al. 2024, "Zero Bubble
Pipeline Parallelism", section 2.2 (ZB-H1).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from workbench.experiment.plan import PartialPlan

Task = Literal["forward", "backward", "weights"]


def can_compute(plan: PartialPlan) -> bool:
    """Return whether the stages of a plan can compute in the order of its pipeline schedule.

    Example:
        >>> can_compute(PartialPlan.of(stages=2, pipeline_schedule="zero_bubble", shard=2))
        False
    """
    if plan.get("pipeline_schedule") != "zero_bubble" or plan.stages == 1:
        return True
    # Deferred gradients keep activations, which recomputing is meant to drop. And shards are
    # exchanged in the backward pass, before deferred gradients exist.
    return not plan.shard and plan.get("recompute") in (None, "none")


def order(
    schedule: str, stage: int, num_stages: int, num_micro_batches: int
) -> Iterator[tuple[Task, int]]:
    """Yield the tasks of a stage in a step, with their micro batches.

    Args:
        schedule: gpipe: all forward, then all backward. 1f1b: in turns, as soon as a gradient can
            arrive. zero_bubble: like 1f1b, but gradients of weights are computed later, when the
            stage would otherwise wait.
        stage: From 0 to num_stages - 1.
        num_stages: Stages of the model.
        num_micro_batches: Micro batches of the step.

    Example:
        >>> [(task[0], number) for task, number in order("1f1b", 1, 3, 3)]
        [('f', 0), ('f', 1), ('b', 0), ('f', 2), ('b', 1), ('b', 2)]
        >>> [(task[0], number) for task, number in order("zero_bubble", 1, 2, 2)]
        [('f', 0), ('b', 0), ('f', 1), ('b', 1), ('w', 0), ('w', 1)]
    """
    # In 1f1b, a stage is ahead by as many forward passes as there are stages behind it. That is how
    # long the first gradient takes to arrive.
    ahead = num_micro_batches
    if _is_bounded(schedule):
        ahead = min(num_stages - 1 - stage, num_micro_batches)
    for number in range(ahead):
        yield "forward", number
    for number in range(num_micro_batches):
        if number + ahead < num_micro_batches:
            yield "forward", number + ahead
        yield "backward", number
        # Stage s defers the weights of s micro batches. That fills the gap at the end of its step,
        # which is longer the later the stage is.
        if schedule == "zero_bubble" and number >= stage:
            yield "weights", number - stage
    if schedule == "zero_bubble":
        for number in range(max(0, num_micro_batches - stage), num_micro_batches):
            yield "weights", number


def most_under_way(schedule: str, stage: int, num_stages: int, num_micro_batches: int) -> int:
    """Return for how many micro batches a stage keeps activations at once.

    See `order` for the arguments.

    Example:
        >>> [most_under_way("1f1b", stage, 4, 8) for stage in range(4)]
        [4, 3, 2, 1]
        >>> [most_under_way("zero_bubble", stage, 4, 8) for stage in range(4)]
        [4, 4, 4, 4]
    """
    if not _is_bounded(schedule):
        return num_micro_batches
    if schedule == "zero_bubble":  # deferred weights keep as many as the first stage keeps
        stage = 0
    return min(num_stages - stage, num_micro_batches)


def duration(schedule: str, num_stages: int, num_micro_batches: int) -> float:
    """Return how long a step takes, in units of a stage's time for one micro batch.

    Gradients of weights take a third of it, because a layer's forward pass, gradients of inputs and
    gradients of weights are three matrix products of the same size.

    Args:
        schedule: As in `order`.
        num_stages: Stages of the model, which take equally long.
        num_micro_batches: Micro batches of the step.

    Example:
        >>> duration("1f1b", 4, 4), duration("zero_bubble", 4, 4)
        (7.0, 5.0)
    """
    both = num_stages + num_micro_batches - 1
    if schedule != "zero_bubble":
        return float(both)
    # Forward passes and gradients of inputs flow through all stages. Only the stage's own gradients
    # of weights add time. With few micro batches, all of them fit into the gaps.
    return max(num_stages + 3 * num_micro_batches - 1, 2 * both + 1) / 3


def _is_bounded(schedule: str) -> bool:
    return schedule != "gpipe"
