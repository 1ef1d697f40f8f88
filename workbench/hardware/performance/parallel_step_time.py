"""Seconds per step of plans over replicas, stages and tensor parts, from measured ones.

What a law of a step leaves over is alike for plans of the same tensor parts and micro batch, of the
same stages, and so on: so plans in two and three dimensions are predicted from plans in one. For a
model that was not measured the law is fitted to plain times, because a law that leaves everything
odd to the correction carries less far.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workbench.hardware.performance.corrected_law import CorrectedLaw, Part, order_of
from workbench.hardware.performance.parallel_plans import (
    ModelShape,
    ParallelPlan,
    Range,
    put_in_columns,
)
from workbench.hardware.performance.parallel_step_law import ParallelStepLaw
from workbench.hardware.performance.step_time import Prediction

MAX_ROWS = 2000
_MODEL = {"log_hidden": 1.0, "log_layers": 3.0, "log_sequence": 1.0}
_KERNELS = {"log_tensor": 0.35, "log_micro_batch": 0.5}
_SAME_PLAN = {"log_replicas": 0.3, "log_stages": 0.3, "log_tensor": 0.3}
_PARTS = (
    Part(0.12, _MODEL),
    # Which kernels run, and how well, depends on the micro batch and on how small a part of a layer
    # is.
    Part(0.08, {**_MODEL, **_KERNELS}),
    Part(0.05, _KERNELS),
    Part(0.03, {"log_stages": 0.7, "log_micro_batch": 1.5}),
    Part(0.02, {"log_replicas": 1.0}),
    Part(0.02, {"log_micro_batch": 1.0, "log_accumulation": 1.0}),
    Part(0.02, {"log_stages": 0.5, "log_tensor": 0.5}),
    Part(0.01, {"log_replicas": 0.5, "log_stages": 0.5, "log_tensor": 0.5}),
    # Between nodes a plan meets links and neighbours of its own.
    Part(0.06, {**_SAME_PLAN, "log_micro_batch": 0.5}, "several_nodes"),
)
_NOISE = 0.02
# Fewer rows of a model, on one node or across nodes, do not show what a law leaves over.
_ENOUGH = 8
_DEVIATION_PER_DOUBLING = {
    "hidden": 0.15,
    "layers": 0.05,
    "sequence": 0.15,
    "tensor": 0.15,
    "stages": 0.1,
    "replicas": 0.03,
    "micro_batch": 0.16,
    "accumulation": 0.02,
    "nodes": 0.1,
}


@dataclass(frozen=True)
class MeasuredStep:
    """A plan and the seconds of its step, > 0."""

    plan: ParallelPlan
    step_time_s: float


def predict_steps(
    measured: Sequence[MeasuredStep], plans: Sequence[ParallelPlan]
) -> list[Prediction]:
    """Predict the steps of plans; the order of the measurements does not matter.

    Args:
        measured: One or more; of more than 2,000 rows, as many are used.
        plans: What to predict.

    Returns:
        A prediction a plan.

    Raises:
        ValueError: If there is no measurement.
    """
    if not measured:
        raise ValueError("step times are predicted from one measurement or more")
    counts = Counter(_work_of(each.plan) for each in measured)
    wanted: dict[tuple[bool, bool], list[int]] = {}
    for index, plan in enumerate(plans):
        is_measured = counts[_work_of(plan)] >= _ENOUGH
        wanted.setdefault((is_measured, plan.nodes > 1), []).append(index)
    found: dict[int, Prediction] = {}
    for (is_measured, is_across), indices in wanted.items():
        shapes = {plans[index].shape for index in indices}
        # Of steps across nodes another model says more across nodes than on one node, and the
        # reverse.
        alike = [
            each
            for each in measured
            if (each.plan.nodes > 1) is is_across or each.plan.shape in shapes
        ]
        used = alike if not is_measured and len(alike) >= _ENOUGH else measured
        predictions = _predict(used, [plans[index] for index in indices], is_measured=is_measured)
        found.update(zip(indices, predictions, strict=True))
    return [found[index] for index in range(len(plans))]


def _work_of(plan: ParallelPlan) -> tuple[ModelShape, bool]:
    return plan.shape, plan.nodes > 1


def _predict(
    measured: Sequence[MeasuredStep], plans: Sequence[ParallelPlan], *, is_measured: bool
) -> list[Prediction]:
    known = [each.plan for each in measured]
    columns, log_times = put_in_columns(known), np.log([each.step_time_s for each in measured])
    order = order_of(columns, log_times, MAX_ROWS)
    columns, log_times = {name: values[order] for name, values in columns.items()}, log_times[order]
    law = ParallelStepLaw(columns)
    groups = [
        (known[at].shape, known[at].replicas, known[at].stages, known[at].tensor) for at in order
    ]
    fitted = CorrectedLaw(
        law.log_step,
        law.believe(columns, log_times),
        _PARTS,
        _NOISE,
        columns,
        log_times,
        groups,
        settles=is_measured,
    )
    wanted = put_in_columns(plans, known)
    logs, deviations = fitted.predict(wanted)
    measured_range = Range.of(columns, _DEVIATION_PER_DOUBLING)
    return [Prediction(*each) for each in measured_range.intervals(logs, deviations, wanted)]
