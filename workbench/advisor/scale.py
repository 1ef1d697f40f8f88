"""How many workers and parameter servers still pay, from the steps that a run measured.

Nothing is run.

Every worker takes the same micro batch, so N workers would be N times as fast if they did not wait
for each other. If one global batch is divided over the workers instead, the training stays the
same. Step times that were not measured are predicted by the models that advice uses.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from workbench.advisor.plans import Knowledge
from workbench.advisor.variants import Variant, plan_with, read_plan, variant_of
from workbench.foundation.errors import RunError
from workbench.foundation.events import PlanMeasured
from workbench.hardware.performance.scaling import most_overhead, num_parameter_servers

# Where one more worker brings less than this part of a worker, the curve bends.
_WORTH_OF_ONE = 0.5
_MAX_FACTOR = 2


@dataclass(frozen=True)
class DividedBatch:
    """What a number of workers brings where the global batch stays the same.

    Attributes:
        micro_batch: Samples that a worker takes at once, at most as many as were measured.
        accumulation: How often it does so in a step.
        step_time_s: Seconds per step, measured or predicted.
        speedup: How many times as fast as one worker with the same global batch.
        efficiency: The part of the workers that is not lost, with the ends of its interval.
        extrapolated: Whether it lies beyond what the measurements reach.
    """

    micro_batch: int
    accumulation: int
    step_time_s: float
    speedup: float
    efficiency: float
    efficiency_low: float
    efficiency_high: float
    extrapolated: bool


@dataclass(frozen=True)
class ScalePoint:
    """What a number of workers brings.

    Attributes:
        workers: How many.
        step_time_s: Seconds per step, measured or predicted.
        speedup: How many times as fast as one worker.
        efficiency: The part of the workers that is not lost, with the ends of its interval.
        is_measured: Whether exactly this was timed.
        extrapolated: Whether it lies beyond what the measurements reach.
        exchange_share: The part of a step in which workers wait for gradients, or None if not
            measured.
        servers: Parameter servers that hide their traffic, with the part of their network that is
            used, or None if the exchange is not known.
        divided: The same workers on one global batch, or None if there is none, or they cannot
            divide it.
    """

    workers: int
    step_time_s: float
    speedup: float
    efficiency: float
    efficiency_low: float
    efficiency_high: float
    is_measured: bool
    extrapolated: bool = False
    exchange_share: float | None = None
    servers: int | None = None
    servers_used: float | None = None
    divided: DividedBatch | None = None


@dataclass(frozen=True)
class Scale:
    """How a plan scales.

    Attributes:
        micro_batch: Samples per worker.
        parts_s: Seconds of the parts of a step on one worker.
        exchange_s: Seconds that workers wait for gradients, on `exchange_workers` of them, or None
            if not known.
        exchange_workers: How many workers that was measured on.
        measured_up_to: The most workers that were measured.
        overhead: Time that is not parallel, relative to computing, on that many workers, or None if
            any would explain the efficiency.
        overhead_allowed: How much of it the wanted efficiency allows there, or None for any.
        pays_up_to: The most workers of which every number of the curve up to it reaches the
            efficiency.
        bends_at: The workers to which one more adds less than half a worker at an efficiency below
            1, or None if not reached.
        curve: From one worker on.
        by_trials: Whether trials showed it, which may have shared the hardware with others, not
            probes.
        global_batch: What `divided` of the curve divides, or None for nothing.
        num_train_samples: Samples of the training data, or None if that is not known.
    """

    micro_batch: int
    parts_s: dict[str, float]
    exchange_s: float | None
    exchange_workers: int | None
    measured_up_to: int
    overhead: float | None
    overhead_allowed: float | None
    pays_up_to: int
    bends_at: int | None
    curve: tuple[ScalePoint, ...]
    by_trials: bool = False
    global_batch: int | None = None
    num_train_samples: int | None = None


def scale_of(
    measured: Sequence[PlanMeasured],
    efficiency: float,
    up_to: int | None = None,
    global_batch: int | None = None,
) -> Scale:
    """Work out how a plan scales from measured plans.

    Args:
        measured: What was timed by probes counts. Trials do where probes do not suffice.
        efficiency: What workers must reach to pay, between 0 and 1.
        up_to: Extrapolate to this number of workers, or None to end where the measurements do.
        global_batch: Samples of a step that are divided over the workers, too, or None for none.

    Raises:
        RunError: If no plan was timed on several workers and, with the same micro batch or with
            smaller and larger ones, on one.
    """
    steps = [event for event in measured if event.step_time_s is not None and event.fits]
    probes = [step for step in steps if step.by_trial is None]
    usable, used = _variants(probes), probes
    if not usable:
        usable, used = _variants(steps), steps
    variant, micro_batch, timed = _widest(usable)
    least = timed[min(timed)]  # computes what one worker computes
    parts_s = {part: took_s for part, took_s in least.parts_s.items() if part != "communication"}
    used = [step for step in used if step.setting == least.setting]
    counts = list(range(1, max(_MAX_FACTOR * max(timed), up_to or 1) + 1))
    known = Knowledge(used, nodes_of(used, counts[-1]), limit_bytes=None)
    step_times = known.step_times([plan_with(variant, workers, micro_batch) for workers in counts])
    alone_s = step_times[0].value
    exchange = _exchange(timed)
    computing_s = sum(parts_s.get(part, 0.0) for part in ("forward", "backward"))
    most = max(
        plan.micro_batch
        for step in used
        if (plan := read_plan(step.plan)) and variant_of(plan) == variant
    )
    divided = _divided(known, variant, counts, global_batch or 0, most)
    curve: list[ScalePoint] = []
    for workers, step in zip(counts, step_times, strict=True):
        is_beyond = step.extrapolated and workers not in timed
        if is_beyond and workers > (up_to or 0):
            continue
        servers, servers_used = _servers(workers, exchange, computing_s)
        curve.append(
            ScalePoint(
                workers,
                step.value,
                workers * alone_s / step.value,
                alone_s / step.value,
                *((alone_s / step.high, alone_s / step.low) if workers > 1 else (1.0, 1.0)),
                workers in timed,
                is_beyond,
                _exchange_share(timed.get(workers)),
                servers,
                servers_used,
                divided.get(workers),
            )
        )
    largest = next(point for point in curve if point.workers == max(timed))
    paying = itertools.takewhile(lambda point: point.efficiency >= efficiency, curve)
    return Scale(
        micro_batch,
        parts_s,
        *(exchange or (None, None)),
        largest.workers,
        _overhead(largest.workers, min(1.0, largest.efficiency)),
        _overhead(largest.workers, efficiency),
        max(point.workers for point in paying),
        _bend(curve),
        tuple(curve),
        used[0].by_trial is not None,
        global_batch,
        least.num_train_samples,
    )


def has_several_workers(measured: Sequence[PlanMeasured]) -> bool:
    """Return whether a plan was timed on several workers and on one, as `scale_of` needs."""
    return bool(
        _variants([event for event in measured if event.step_time_s is not None and event.fits])
    )


def _divided(
    known: Knowledge, variant: Variant, counts: Sequence[int], global_batch: int, most: int
) -> dict[int, DividedBatch]:
    """Return what dividing a global batch brings, by the number of workers.

    Numbers that cannot divide it are absent.

    No worker takes more samples at once than were measured: whether these fit is not known here.
    """
    shares = {workers: global_batch // workers for workers in counts if global_batch % workers == 0}
    plans = {
        workers: plan_with(variant, workers, share // times, times)
        for workers, share in shares.items()
        if share and (times := _times(share, most))
    }
    steps = known.step_times(list(plans.values())) if plans else []
    alone_s = steps[0].value if steps else math.nan  # one worker divides any batch
    return {
        workers: DividedBatch(
            plan.micro_batch,
            plan.accumulation,
            step.value,
            alone_s / step.value,
            alone_s / step.value / workers,
            *(
                (alone_s / step.high / workers, alone_s / step.low / workers)
                if workers > 1
                else (1.0, 1.0)
            ),
            step.extrapolated,
        )
        for (workers, plan), step in zip(plans.items(), steps, strict=True)
    }


def _times(share: int, most: int) -> int:
    """Return the fewest equal parts of some samples of which none is larger than `most`."""
    small = [part for part in range(1, math.isqrt(share) + 1) if share % part == 0]
    return min(times for part in small for times in (part, share // part) if share // times <= most)


Timed = dict[int, PlanMeasured]
"""What was measured of one plan, by the number of workers."""
Variants = dict[tuple[str, Variant, int], Timed]
"""The same of several, by setting, variant and micro batch."""


def _widest(usable: Variants) -> tuple[Variant, int, Timed]:
    """Return the plan that was timed on the most numbers of workers, and these measurements."""
    if not usable:
        raise RunError(
            "no plan of the run was timed on one worker and on several with the same micro batch",
            field="plan.workers",
            next_step=(
                "On a machine with several workers, run `workbench advise FILE` with"
                " plan.workers: auto, plan.accumulation: auto and a number as plan.micro_batch. Or"
                " search plan.workers in a sweep with a fixed plan.micro_batch and"
                " plan.accumulation 1."
            ),
        )
    (_, variant, micro_batch), timed = max(
        usable.items(), key=lambda item: (len(item[1]), item[0][2])
    )
    return variant, micro_batch, timed


def _variants(steps: Sequence[PlanMeasured]) -> Variants:
    """Return what was timed on several workers, and on one, or between what was timed on one."""
    variants: Variants = {}
    alone: dict[tuple[str, Variant], list[int]] = {}
    for step in steps:
        plan = read_plan(step.plan)
        if plan is not None and plan.accumulation == 1:
            variant = variant_of(plan)
            variants.setdefault((step.setting, variant, plan.micro_batch), {})[plan.workers] = step
            if plan.workers == 1:
                alone.setdefault((step.setting, variant), []).append(plan.micro_batch)
    several = {key: timed for key, timed in variants.items() if max(timed) > 1}
    exact = {key: timed for key, timed in several.items() if 1 in timed}
    between = {
        (setting, variant, size): timed
        for (setting, variant, size), timed in several.items()
        if min(alone.get((setting, variant), [size + 1]))
        <= size
        <= max(alone.get((setting, variant), [0]))
    }
    return exact or between


def _exchange_share(measured: PlanMeasured | None) -> float | None:
    if measured is None or measured.step_time_s is None or "communication" not in measured.parts_s:
        return None
    return measured.parts_s["communication"] / measured.step_time_s


def nodes_of(measured: Sequence[PlanMeasured], most: int) -> list[int]:
    """Return how many workers nodes hold, with room for `most` of them.

    Nodes are as large as measurements show.
    """
    seen = [event.workers_per_node for event in measured if event.workers_per_node]
    if all(len(placed) == 1 for placed in seen):
        return [most]
    largest = max(max(placed) for placed in seen)
    return [largest] * (most // largest + 1)


def _exchange(timed: dict[int, PlanMeasured]) -> tuple[float, int] | None:
    """Return the exchange on the most workers where one was measured, and their number."""
    several = [
        (workers, event.parts_s["communication"])
        for workers, event in timed.items()
        if workers > 1 and event.parts_s.get("communication", 0.0) > 0.0
    ]
    if not several:
        return None
    workers, exchange_s = max(several)
    return exchange_s, workers


def _servers(
    workers: int, exchange: tuple[float, int] | None, computing_s: float
) -> tuple[int | None, float | None]:
    if exchange is None or computing_s <= 0.0:
        return None, None
    exchange_s, exchange_workers = exchange
    # A ring moves 2 (W-1)/W of the parameters over each link: this is how long they take once.
    once_s = exchange_s * exchange_workers / (2.0 * (exchange_workers - 1.0))
    # Bytes and bytes per second are not known apart, and only their quotient counts.
    num_servers = num_parameter_servers(once_s, workers, 1.0, computing_s)
    return num_servers, 2.0 * once_s * workers / (num_servers * computing_s)


def _overhead(workers: int, efficiency: float) -> float | None:
    overhead = most_overhead(workers, efficiency) if workers > 1 else math.inf
    return overhead if math.isfinite(overhead) else None


def _bend(curve: Sequence[ScalePoint]) -> int | None:
    for here, beyond in itertools.pairwise(curve):
        # Where all workers together are faster than as many alone, what one more adds says nothing.
        is_super = beyond.efficiency >= 1.0
        gained, added = beyond.speedup - here.speedup, beyond.workers - here.workers
        if not is_super and gained < _WORTH_OF_ONE * added:
            return here.workers
    return None
