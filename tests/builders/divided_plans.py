"""Steps and peaks of divided plans on imagined devices, made differently from the laws under
test.
"""

from __future__ import annotations

import math

from workbench.hardware.performance.parallel_plans import ParallelPlan


def true_step_s(plan: ParallelPlan) -> float:
    """Return the seconds of a step, where small kernels reach little of a device's speed."""
    shape = plan.shape
    layers, hidden = shape.layers or 1, shape.hidden or 1
    tokens = plan.micro_batch * 1024
    operations = 72.0 * tokens * hidden**2 / plan.tensor
    layer_s = operations / 1.5e14 * (1.0 + 3e9 / operations) + 4e-4
    layer_s += (
        170.0 * tokens * hidden / plan.tensor / 1.5e12
    )  # attention's scores never reach memory
    if plan.tensor > 1:
        layer_s += 4.0 * (3e-5 * math.log2(plan.tensor) + tokens * hidden * 2.0 / 1e11)
    head_s = 6.0 * tokens * hidden * 51_200 / plan.tensor / 1.5e14
    slowest_s = layers / plan.stages * layer_s + head_s
    weights = (12.0 * layers * hidden**2 / plan.stages + 51_200.0 * hidden) / plan.tensor
    ring_s = 2.0 * (plan.replicas - 1) / plan.replicas * 2.0 * weights / 1e11
    whole_s = layers * layer_s + head_s
    return (plan.accumulation - 1) * slowest_s + whole_s + ring_s + weights * 2e-11


def true_peak_gb(plan: ParallelPlan) -> float:
    """Return the peak of the fullest stage, counted stage by stage."""
    shape = plan.shape
    layers, hidden, wide = shape.layers or 1, shape.hidden or 1, shape.feed_forward or 1
    words, tokens = shape.vocabulary or 1, plan.micro_batch * (shape.sequence or 1)
    held = layers / plan.stages
    table = words * hidden
    per_parameter = 8.0 + (12.0 / plan.replicas if plan.zero else 12.0)
    kept = tokens * held * (20.0 * hidden + 8.0 * wide) / plan.tensor
    logits = 10.0 * tokens * words / plan.tensor
    block = 4.0 * hidden**2 + 3.0 * hidden * wide
    peaks = []
    for stage in range(plan.stages):
        ends = (stage == 0) + (stage == plan.stages - 1)
        state = (held * block + ends * table) / plan.tensor * per_parameter
        in_flight = min(plan.accumulation, plan.stages - stage)
        peaks.append(state + kept * in_flight + logits * (stage == plan.stages - 1))
    return max(peaks) / 1e9 + 0.6
