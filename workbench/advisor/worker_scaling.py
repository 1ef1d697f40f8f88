"""How many workers and parameter servers still pay, from the measured steps of a run.

Nothing is run here. Every worker computes the same micro batch, so N workers would be N times as
fast if they did not wait for each other. A second curve divides one global batch among the workers,
which leaves the training unchanged. Missing step times are predicted by the models of the advice.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workbench.advisor.plan_variants import Variant, plan_with, read_plan, variant_of
from workbench.advisor.plans import Knowledge
from workbench.experiment.plan import Plan
from workbench.foundation.errors import RunError
from workbench.foundation.events import PlanMeasured
from workbench.foundation.formatting import format_count
from workbench.hardware.performance.topology import most_overhead, num_parameter_servers

# The curve bends where one more worker adds less than this part of the speed of one worker.
_WORTH_OF_ONE = 0.5
_MAX_FACTOR = 2
_FURTHEST = 4
"""How many times the largest measured number of workers may be predicted, even on request."""
_SUPERLINEAR = 1.02
"""The efficiency above which a time must be wrong: workers that wait for each other gain nothing.

Timers and rounding explain less than that.
"""


@dataclass(frozen=True)
class DividedBatch:
    """The speed of a number of workers that divide one global batch.

    Attributes:
        micro_batch: Samples that a worker computes at once, at most as many as were measured.
        accumulation: Micro steps per step.
        step_time_s: Seconds per step, measured or predicted.
        speedup: The speed relative to one worker with the same global batch.
        efficiency: The speedup divided by the number of workers.
        efficiency_low: The lower end of the efficiency's interval.
        efficiency_high: The upper end of the efficiency's interval.
        extrapolated: Whether the prediction is outside the range of the measurements.
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
    """The speed of a number of workers that each compute the same micro batch.

    Attributes:
        workers: The number of workers.
        step_time_s: Seconds per step, measured or predicted.
        speedup: The speed relative to one worker.
        efficiency: The speedup divided by the number of workers.
        efficiency_low: The lower end of the efficiency's interval.
        efficiency_high: The upper end of the efficiency's interval.
        is_measured: Whether this number of workers was timed.
        extrapolated: Whether the prediction is outside the range of the measurements.
        exchange_share: The part of a step in which workers wait for gradients, or None if it was
            not measured.
        is_doubtful: Whether the workers seem to be more efficient than one alone, so that a time
            must be wrong.
        servers: The fewest parameter servers that hide their traffic behind the computing, if the
            exchange takes only as long as workers waited for it. None if nobody waited.
        servers_used: The part of their network that these servers use, or None.
        servers_at_most: The number that is enough even if the exchange took the whole backward
            pass in addition, behind which it may be hidden. None if no exchange was timed.
        divided: The same workers on one global batch, or None if there is none or they cannot
            divide it evenly.
    """

    workers: int
    step_time_s: float
    speedup: float
    efficiency: float
    efficiency_low: float
    efficiency_high: float
    is_measured: bool
    extrapolated: bool = False
    is_doubtful: bool = False
    exchange_share: float | None = None
    servers: int | None = None
    servers_used: float | None = None
    servers_at_most: int | None = None
    divided: DividedBatch | None = None


@dataclass(frozen=True)
class Scale:
    """How a plan scales.

    Attributes:
        micro_batch: Samples per worker.
        parts_s: Seconds of the parts of a step on one worker.
        exchange_s: Seconds that workers wait for gradients, measured on `exchange_workers` of them,
            or None if unknown.
        exchange_workers: The number of workers on which `exchange_s` was measured.
        measured_up_to: The largest number of workers that was measured.
        overhead: Time that is not parallel, relative to computing, on that many workers. None if
            it does not determine the efficiency.
        overhead_allowed: The overhead at which that many workers reach the wanted efficiency, or
            None if any overhead does.
        pays_up_to: The largest number of workers up to which the whole curve reaches the wanted
            efficiency. None if a doubtful number of workers is among them.
        bends_at: The number of workers from which one more adds less than half the speed of one
            worker, at an efficiency below 1. None if the curve does not bend.
        curve: The points of the curve, from one worker on.
        by_trials: Whether the measurements are from trials, which may have shared the hardware.
        global_batch: The batch that `divided` divides, or None.
        num_train_samples: Samples of the training data, or None if unknown.
        is_of_choice: Whether it is about the plan that the advice chose. None without advice.
        limit: The most workers that can be predicted.
        why_limited: Why no more can be predicted, in a sentence. None if nobody asked for more.
    """

    micro_batch: int
    parts_s: dict[str, float]
    exchange_s: float | None
    exchange_workers: int | None
    measured_up_to: int
    overhead: float | None
    overhead_allowed: float | None
    pays_up_to: int | None
    bends_at: int | None
    curve: tuple[ScalePoint, ...]
    by_trials: bool = False
    global_batch: int | None = None
    num_train_samples: int | None = None
    is_of_choice: bool | None = None
    limit: int = 1
    why_limited: str | None = None


def scale_of(
    measured: Sequence[PlanMeasured],
    efficiency: float,
    up_to: int | None = None,
    global_batch: int | None = None,
    *,
    chosen: Plan | None = None,
    room: int | None = None,
) -> Scale:
    """Calculate how a plan scales from measured plans.

    Args:
        measured: The measured plans. Trials only count if probes are not sufficient.
        efficiency: The efficiency from which workers pay, between 0 and 1.
        up_to: Extrapolate to this number of workers, or None to end where the measurements do.
        global_batch: A global batch for which to calculate the second curve, or None.
        chosen: The plan that the advice chose, which is preferred, or None without advice.
        room: Workers for which the measured machines have room, or None if unknown. If they were
            all on one machine, the links between machines are unknown, so no more are predicted.

    Raises:
        RunError: If no plan was timed on several workers and also on one. On one worker, either
            the same micro batch, or a smaller and a larger one are needed.
    """
    steps = [event for event in measured if event.step_time_s is not None and event.fits]
    probes = [step for step in steps if step.by_trial is None]
    usable, used = _variants(probes), probes
    if not usable:
        usable, used = _variants(steps), steps
    variant, micro_batch, timed = _preferred(usable, chosen)
    # Each worker computes the same micro batch, so the fewest workers show the parts of one.
    least = timed[min(timed)]
    parts_s = {part: took_s for part, took_s in least.parts_s.items() if part != "communication"}
    used = [step for step in used if step.setting == least.setting]
    limit, why_limited = _limit(timed, up_to, room)
    counts = list(range(1, limit + 1))
    knowledge = Knowledge(used, nodes_of(used, counts[-1]), limit_bytes=None)
    step_times = knowledge.step_times(
        [plan_with(variant, workers, micro_batch) for workers in counts]
    )
    alone = step_times[0]
    alone_s = alone.value
    # A time of one worker that was not measured makes every efficiency uncertain.
    slowest_s = fastest_s = alone_s
    if 1 not in timed:
        slowest_s = alone.high
        fastest_s = alone.low
    exchange = _exchange(timed)
    computing_s = sum(parts_s.get(part, 0.0) for part in ("forward", "backward"))
    most = max(
        plan.micro_batch
        for step in used
        if (plan := read_plan(step.plan)) and variant_of(plan) == variant
    )
    divided = _divided(knowledge, variant, counts, global_batch or 0, most)
    curve: list[ScalePoint] = []
    for workers, step in zip(counts, step_times, strict=True):
        is_beyond = step.extrapolated and workers not in timed
        if is_beyond and workers > (up_to or 0):
            continue
        servers, servers_used = _servers(workers, exchange, computing_s)
        at_most = _servers_at_most(workers, timed, parts_s)
        own = alone_s / step.value
        low = high = 1.0  # of one worker, which is compared with itself
        if workers > 1:
            low = fastest_s / step.high
            high = slowest_s / step.low
        curve.append(
            ScalePoint(
                workers=workers,
                step_time_s=step.value,
                speedup=workers * own,
                efficiency=own,
                efficiency_low=low,
                efficiency_high=high,
                is_measured=workers in timed,
                extrapolated=is_beyond,
                is_doubtful=own > _SUPERLINEAR,
                exchange_share=_exchange_share(timed.get(workers)),
                servers=servers,
                servers_used=servers_used,
                servers_at_most=at_most,
                divided=divided.get(workers),
            )
        )
    largest = next(point for point in curve if point.workers == max(timed))
    paying = list(itertools.takewhile(lambda point: point.efficiency >= efficiency, curve))
    is_doubtful = any(point.is_doubtful for point in paying)
    is_of_choice = None
    if chosen is not None:
        is_of_choice = (variant_of(chosen), chosen.micro_batch) == (variant, micro_batch)
    exchange_s, exchange_workers = exchange or (None, None)
    return Scale(
        micro_batch=micro_batch,
        parts_s=parts_s,
        exchange_s=exchange_s,
        exchange_workers=exchange_workers,
        measured_up_to=largest.workers,
        overhead=_overhead(largest.workers, min(1.0, largest.efficiency)),
        overhead_allowed=_overhead(largest.workers, efficiency),
        pays_up_to=None if is_doubtful else max(point.workers for point in paying),
        bends_at=_bend(curve),
        curve=tuple(curve),
        by_trials=used[0].by_trial is not None,
        global_batch=global_batch,
        num_train_samples=least.num_train_samples,
        is_of_choice=is_of_choice,
        limit=limit,
        why_limited=why_limited,
    )


def _limit(timed: Timed, up_to: int | None, room: int | None) -> tuple[int, str | None]:
    """Return the most workers that measurements can speak about, and why not more were possible."""
    largest = max(timed)
    limit, why = _FURTHEST * largest, None
    is_one_machine = all(len(event.workers_per_node or [1]) == 1 for event in timed.values())
    if room is not None and is_one_machine and max(room, largest) < limit:
        limit = max(room, largest)
        why = (
            f"more than {format_count(limit, 'worker')} need another machine, and no step across"
            " machines was measured"
        )
    wanted = max(_MAX_FACTOR * largest, up_to or 1)
    if (up_to or 0) <= limit:
        return min(wanted, limit), None
    why = why or f"at most {format_count(largest, 'worker')} were measured"
    return limit, why


def has_several_workers(measured: Sequence[PlanMeasured]) -> bool:
    """Return whether a plan was timed on several workers and on one, as `scale_of` needs."""
    return bool(
        _variants([event for event in measured if event.step_time_s is not None and event.fits])
    )


def _divided(
    knowledge: Knowledge, variant: Variant, counts: Sequence[int], global_batch: int, most: int
) -> dict[int, DividedBatch]:
    """Return the speed of numbers of workers that can divide a global batch evenly.

    No micro batch is larger than the largest measured one, because a larger one may not fit.
    """
    shares = {workers: global_batch // workers for workers in counts if global_batch % workers == 0}
    plans = {
        workers: plan_with(variant, workers, share // times, times)
        for workers, share in shares.items()
        if share and (times := _times(share, most))
    }
    steps = knowledge.step_times(list(plans.values())) if plans else []
    alone_s = steps[0].value if steps else math.nan  # one worker divides any batch
    divided: dict[int, DividedBatch] = {}
    for (workers, plan), step in zip(plans.items(), steps, strict=True):
        low = high = 1.0  # of one worker, which is compared with itself
        if workers > 1:
            low = alone_s / step.high / workers
            high = alone_s / step.low / workers
        divided[workers] = DividedBatch(
            micro_batch=plan.micro_batch,
            accumulation=plan.accumulation,
            step_time_s=step.value,
            speedup=alone_s / step.value,
            efficiency=alone_s / step.value / workers,
            efficiency_low=low,
            efficiency_high=high,
            extrapolated=step.extrapolated,
        )
    return divided


def _times(share: int, most: int) -> int:
    """Return the fewest equal parts of `share` samples that have at most `most` samples each."""
    small = [factor for factor in range(1, math.isqrt(share) + 1) if share % factor == 0]
    return min(
        times for factor in small for times in (factor, share // factor) if share // times <= most
    )


Timed = dict[int, PlanMeasured]
"""The measurements of one plan by number of workers."""
Variants = dict[tuple[str, Variant, int], Timed]
"""The measurements of several plans, by setting, variant and micro batch."""


def _preferred(usable: Variants, chosen: Plan | None) -> tuple[Variant, int, Timed]:
    """Return the chosen plan, if it was timed with several numbers of workers.

    Otherwise return the plan that was timed with the most numbers, of the same variant if possible.
    """
    if not usable:
        raise RunError(
            "no plan of the run was timed on one worker and on several with the same micro batch",
            field="plan.workers",
            next_step=(
                "On a machine with several workers, run `workbench advise FILE` with a number as"
                " plan.micro_batch, and plan.workers and plan.accumulation set to auto. Or run a"
                " sweep that searches plan.workers with a fixed plan.micro_batch and"
                " plan.accumulation set to 1."
            ),
        )

    def preference(item: tuple[tuple[str, Variant, int], Timed]) -> tuple[bool, bool, int, int]:
        (_, variant, micro_batch), timed = item
        is_same = chosen is not None and variant == variant_of(chosen)
        has_batch = chosen is not None and micro_batch == chosen.micro_batch
        return is_same and has_batch, is_same, len(timed), micro_batch

    (_, variant, micro_batch), timed = max(usable.items(), key=preference)
    return variant, micro_batch, timed


def _variants(steps: Sequence[PlanMeasured]) -> Variants:
    """Return the plans that were timed on several workers and also on one.

    If there are none, plans count whose micro batch is between two that were timed on one worker.
    """
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
    """Return the workers per node of a cluster with room for `most` workers.

    Its nodes have the largest size in the measurements. If all workers were always on one node, it
    is a single node.
    """
    placements = [event.workers_per_node for event in measured if event.workers_per_node]
    if all(len(placed) == 1 for placed in placements):
        return [most]
    largest = max(max(placed) for placed in placements)
    return [largest] * (most // largest + 1)


def _exchange(timed: dict[int, PlanMeasured]) -> tuple[float, int] | None:
    """Return the seconds of the exchange on the most workers, and their number."""
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
    # A ring of W workers sends 2 (W-1)/W of the parameters over each link, so this is the time to
    # send all parameters once.
    once_s = exchange_s * exchange_workers / (2.0 * (exchange_workers - 1.0))
    # Only the quotient of bytes and bytes per second counts, which is `once_s`.
    num_servers = num_parameter_servers(once_s, workers, 1.0, computing_s)
    return num_servers, 2.0 * once_s * workers / (num_servers * computing_s)


def _servers_at_most(workers: int, timed: Timed, parts_s: Mapping[str, float]) -> int | None:
    """Return how many servers are enough if all of the backward pass hid an exchange."""
    computing_s = parts_s.get("forward", 0.0) + parts_s.get("backward", 0.0)
    waits = {
        count: event.parts_s["communication"]
        for count, event in timed.items()
        if count > 1 and "communication" in event.parts_s
    }
    if not waits or computing_s <= 0.0:
        return None
    most = max(waits)
    hidden_s = parts_s.get("backward", 0.0)
    return _servers(workers, (waits[most] + hidden_s, most), computing_s)[0]


def _overhead(workers: int, efficiency: float) -> float | None:
    overhead = most_overhead(workers, efficiency) if workers > 1 else math.inf
    return overhead if math.isfinite(overhead) else None


def _bend(curve: Sequence[ScalePoint]) -> int | None:
    for here, beyond in itertools.pairwise(curve):
        # At an efficiency above 1, for example because the data of each worker fits into a cache,
        # the speed that one more worker adds shows no bend.
        is_super = beyond.efficiency >= 1.0
        gained, added = beyond.speedup - here.speedup, beyond.workers - here.workers
        if not is_super and gained < _WORTH_OF_ONE * added:
            return here.workers
    return None
