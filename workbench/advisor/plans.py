"""Enumerates the allowed plans, and predicts their step time and memory from measurements.

One model of step times is fitted to each variant (precision, strategy, recomputation). Its memory
is a straight line through the measured peaks, or the estimate from before anything ran. Nothing is
measured here.
"""

from __future__ import annotations

import copy
import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from workbench.advisor.advice import Goal, MemoryNeed
from workbench.advisor.open_settings import Choices
from workbench.advisor.plan_variants import (
    Variant,
    is_possible_on,
    plan_with,
    read_plan,
    variant_of,
)
from workbench.advisor.stored_advice import Estimate
from workbench.cluster.workers.admission import Placement
from workbench.experiment.plan import Plan
from workbench.foundation.events import PlanMeasured
from workbench.hardware.performance.goodput import efficiency
from workbench.hardware.performance.memory import MARGIN, MemoryLaw
from workbench.hardware.performance.step_time import Measurement, Point, StepTimeModel, fit
from workbench.hardware.performance.topology import Topology
from workbench.training.exchanges.capabilities import USUAL
from workbench.training.exchanges.capabilities import capabilities_of as exchange_capabilities
from workbench.training.strategies import STRATEGIES
from workbench.training.strategies.capabilities import BY_AXIS, capabilities_of
from workbench.training.strategies.pipeline_order import duration

# How many ways to divide a batch are compared. More micro steps than memory requires are rarely
# faster.
_MAX_DIVISIONS = 3
_MAX_ACCUMULATION = 4096
# An unmeasured noise scale is assumed to be this many reference batches.
_NOISE_PRIOR = 4.0
# Plans whose predicted times differ by less count as equal. The one with fewer workers is used.
SAME = 0.03


class Knowledge:
    """The measurements of one setting, and predictions for other plans."""

    def __init__(
        self,
        measured: Sequence[PlanMeasured],
        workers_per_node: Sequence[int],
        *,
        placement: Placement = "pack",
        limit_bytes: float | None,
        estimated: MemoryLaw | None = None,
    ) -> None:
        """Read measurements.

        Args:
            measured: The measurements of one setting.
            workers_per_node: How many workers fit on each node.
            placement: Whether workers are placed on as few or on as many nodes as possible.
            limit_bytes: The memory that one worker may use, or None if unknown.
            estimated: The estimated memory of plain plans (ddp without recomputation), from before
                anything ran.
        """
        self.measured = tuple(measured)
        plans = [read_plan(event.plan) for event in measured]
        self._by_plan = [
            (plan, event) for plan, event in zip(plans, measured, strict=True) if plan is not None
        ]
        self._room = sorted(workers_per_node, reverse=True)
        self.placement: Placement = placement
        self.limit_bytes = limit_bytes
        self._estimated = estimated

    def with_more(self, measured: PlanMeasured) -> Knowledge:
        """Return the knowledge with one more measurement."""
        return Knowledge(
            [*self.measured, measured],
            self._room,
            placement=self.placement,
            limit_bytes=self.limit_bytes,
            estimated=self._estimated,
        )

    def on_nodes(self, workers_per_node: Sequence[int], limit_bytes: float | None) -> Knowledge:
        """Return the same fitted models, applied to other nodes.

        Arguments as in the constructor.
        """
        _ = self._models  # fits them before the copy, so that all copies share them
        other = copy.copy(self)
        other._room, other.limit_bytes = sorted(workers_per_node, reverse=True), limit_bytes
        return other

    @cached_property
    def _models(self) -> dict[Variant, StepTimeModel]:
        """Fit a model to each variant.

        Trials that shared the machine are slower than plans that were measured alone. They only
        show how plans differ from each other, so their times are divided by the slowdown first.
        """
        models, alone = dict(self._alone), self._rows(is_alone=True)
        for variant, rows in self._rows(is_alone=False).items():
            if variant not in models:
                models[variant] = fit(rows)
            elif len(rows) > 1:
                factor = self._factors[variant]
                scaled = [replace(row, step_time_s=row.step_time_s / factor) for row in rows]
                models[variant] = fit([*alone[variant], *scaled])
        return models

    @cached_property
    def _alone(self) -> dict[Variant, StepTimeModel]:
        return {variant: fit(rows) for variant, rows in self._rows(is_alone=True).items()}

    @cached_property
    def _factors(self) -> dict[Variant, float]:
        """Return the median slowdown of trials against plans measured alone, by variant."""
        factors: dict[Variant, float] = {}
        for variant, rows in self._rows(is_alone=False).items():
            if variant in self._alone:
                points = [Point(row.topology, row.micro_batch, 1) for row in rows]
                predicted = self._alone[variant].predict(points)
                factors[variant] = statistics.median(
                    row.step_time_s / estimate[0]
                    for row, estimate in zip(rows, predicted, strict=True)
                )
        return factors

    def _rows(self, *, is_alone: bool) -> dict[Variant, list[Measurement]]:
        rows: dict[Variant, list[Measurement]] = {}
        for plan, event in self._by_plan:
            if event.step_time_s is None or plan.accumulation != 1:
                continue
            if (event.by_trial is None) != is_alone:
                continue
            topology = Topology(tuple(sorted(event.workers_per_node or [1])))
            waited_s = event.parts_s.get("communication")
            sync_s = waited_s if waited_s is not None and topology.num_gpus > 1 else None
            rows.setdefault(variant_of(plan), []).append(
                Measurement(topology, plan.micro_batch, event.step_time_s, sync_s)
            )
        return rows

    @property
    def slowdown(self) -> float | None:
        """The factor by which steps are slower in trials that share the machine, or None."""
        return statistics.median(self._factors.values()) if self._factors else None

    @property
    def variants(self) -> list[Variant]:
        """The variants with a measured step time."""
        return list(self._models)

    def topology(self, num_workers: int) -> Topology:
        """Return the nodes on which a number of workers would be placed."""
        if num_workers > sum(self._room):
            return Topology((num_workers,))
        chosen = [0] * len(self._room)
        for _ in range(num_workers):
            free = [node for node, room in enumerate(self._room) if chosen[node] < room]
            chosen[
                min(free, key=lambda node: chosen[node]) if self.placement == "spread" else free[0]
            ] += 1
        return Topology(tuple(sorted(count for count in chosen if count)))

    def step_times(self, plans: Sequence[Plan]) -> list[Estimate]:
        """Predict the step times of plans whose variants were measured, in order."""
        estimates: dict[int, Estimate] = {}
        for variant in {variant_of(plan) for plan in plans}:
            chosen = [index for index, plan in enumerate(plans) if variant_of(plan) == variant]
            points = [
                Point(
                    self.topology(plans[index].workers),
                    plans[index].micro_batch,
                    plans[index].accumulation if variant.stages == 1 else 1,
                )
                for index in chosen
            ]
            for index, predicted in zip(chosen, self._models[variant].predict(points), strict=True):
                estimate = Estimate(*predicted).times(_flow(plans[index]))
                estimates[index] = self._compared_with_measured(plans[index], estimate)
        return [estimates[index] for index in range(len(plans))]

    def _compared_with_measured(self, plan: Plan, predicted: Estimate) -> Estimate:
        """Correct a prediction by measurements of this plan and of plans like it.

        The measured time of the same plan replaces the prediction, which smooths it over. Without
        one, two bounds apply. A step takes at least as long as with fewer workers on one node and
        the same work per worker. Two nodes give no such bound, because rings of three or more are
        often faster. And k micro steps take at most as long as k steps with one.
        """
        measured_s = self._measured_step_s(plan)
        if measured_s is not None:
            low_s, high_s = min(predicted.low, measured_s), max(predicted.high, measured_s)
            return Estimate(measured_s, low_s, high_s)
        micro_step_s = self._measured_step_s(replace(plan, accumulation=1))
        if micro_step_s is not None and plan.stages == 1:
            predicted = predicted.at_most(plan.accumulation * micro_step_s)
        smaller = [
            plan_with(variant_of(plan), workers, plan.micro_batch, plan.accumulation)
            for workers in {other.workers for other in self._within_s}
            if workers < plan.workers
        ]
        return predicted.at_least(
            max((self._within_s.get(other, 0.0) for other in smaller), default=0.0)
        )

    def _measured_step_s(self, plan: Plan) -> float | None:
        """Return the measured step time of this plan as if nothing else had run, or None."""
        timed = self._timed_here(plan)
        if timed and timed[-1].by_trial is not None:
            return (timed[-1].step_time_s or 0.0) / self._factors.get(variant_of(plan), 1.0)
        return statistics.median(self.timings_s(plan)) if timed else None

    @cached_property
    def _within_s(self) -> dict[Plan, float]:
        """Return the step times measured on one node, except for strategies that divide state.

        With such a strategy, more workers have less work each, so fewer workers give no bound.
        """
        return {
            plan: self._measured_step_s(plan) or 0.0
            for plan in self._timed
            if all(len(timed.workers_per_node) <= 1 for timed in self._timed_here(plan))
            and not (plan.strategy in STRATEGIES and capabilities_of(plan.strategy).divides_state)
        }

    def timings_s(self, plan: Plan) -> list[float]:
        """Return the step times that probes measured for this plan, the earliest first."""
        return [
            timed.step_time_s or 0.0 for timed in self._timed_here(plan) if timed.by_trial is None
        ]

    def _timed_here(self, plan: Plan) -> list[PlanMeasured]:
        """Return the timings of this plan, if possible with the placement that it would have."""
        timed, placed = self._timed.get(plan, []), self.topology(plan.workers).gpus_per_node
        return [
            event for event in timed if tuple(sorted(event.workers_per_node)) == placed
        ] or timed

    @cached_property
    def _timed(self) -> dict[Plan, list[PlanMeasured]]:
        timed: dict[Plan, list[PlanMeasured]] = {}
        for plan, event in self._by_plan:
            if event.step_time_s is not None:
                timed.setdefault(plan, []).append(event)
        return timed

    def power_w(self, plan: Plan) -> float | None:
        """Return the power of the nearest metered plan, or None if no plan was metered.

        The nearest plan has the most similar number of workers, then the most similar micro batch.
        """
        metered = [
            (measured_plan, event.power_w)
            for measured_plan, event in self._by_plan
            if event.power_w is not None
        ]
        if not metered:
            return None

        def distance(other: Plan) -> tuple[float, float]:
            micro = abs(math.log(other.micro_batch / plan.micro_batch))
            return abs(math.log(other.workers / plan.workers)), micro

        return min(metered, key=lambda item: distance(item[0]))[1]

    def price(self, plan: Plan, goal: Goal) -> float:
        """Return the price of a second of a plan: its workers for money, its watts for energy.

        For the other goals, a second costs 1.
        """
        if goal == "money":
            return plan.workers
        return self.power_w(plan) or 1.0 if goal == "energy" else 1.0

    def price_over(self, plan: Plan, usual: Plan, goal: Goal) -> float:
        """Return the price of a second of a plan, relative to a second of the plan `usual`."""
        return self.price(plan, goal) / self.price(usual, goal)

    def memory(self, plan: Plan) -> MemoryNeed | None:
        """Return the memory of one worker of a plan, or None if it is unknown."""
        law, measured = self._memory_law(plan)
        if law is None:
            return None
        return MemoryNeed(law.peak_bytes(plan.micro_batch), self.limit_bytes, measured)

    def fits(self, plan: Plan) -> bool:
        """Return whether a plan fits. A plan about which nothing is known counts as fitting."""
        for measured_plan, event in self._like(plan):
            if not event.fits and (
                plan.micro_batch >= measured_plan.micro_batch or not event.is_possible
            ):
                return False
        need = self.memory(plan)
        return need is None or need.limit is None or need.value <= (1.0 - MARGIN) * need.limit

    def is_possible(self, plan: Plan) -> bool:
        """Return whether a plan is possible, as far as is known and apart from its memory."""
        return all(event.is_possible for _, event in self._like(plan))

    def _like(self, plan: Plan) -> list[tuple[Plan, PlanMeasured]]:
        """Return the measurements of a plan's variant.

        One worker needs no buffers for an exchange, so a plan on one worker is only compared with
        plans on one worker, and a plan on several with plans on several.
        """
        return [
            (measured_plan, event)
            for measured_plan, event in self._by_plan
            if variant_of(measured_plan) == variant_of(plan)
            and (measured_plan.workers == 1) == (plan.workers == 1)
        ]

    def _memory_law(self, plan: Plan) -> tuple[MemoryLaw | None, bool]:
        peaks: dict[int, int] = {}
        is_exact = False
        for measured_plan, event in self._like(plan):
            if event.peak_bytes is not None and event.fits:
                peaks[measured_plan.micro_batch] = max(
                    event.peak_bytes, peaks.get(measured_plan.micro_batch, 0)
                )
                is_exact |= (measured_plan.workers, measured_plan.micro_batch) == (
                    plan.workers,
                    plan.micro_batch,
                )
        if len(peaks) < 2:
            return self._estimated_law(plan), False
        least, most = min(peaks), max(peaks)
        per_sample = max(0.0, (peaks[most] - peaks[least]) / (most - least))
        # Caches of libraries may let a smaller batch use more memory. Then the peak is constant.
        floor = float(max(peaks.values())) if per_sample == 0.0 else 0.0
        return MemoryLaw(per_sample, peaks[most] - per_sample * most, floor), is_exact

    def _estimated_law(self, plan: Plan) -> MemoryLaw | None:
        if self._estimated is None or plan.strategy not in STRATEGIES:
            return None
        able = capabilities_of(plan.strategy)
        if plan.recompute != "none" or plan.exchange != USUAL or not able.holds_whole_model:
            return None
        if able.divides_state:
            return self._estimated.with_divided_state(plan.workers)
        return self._estimated


def _flow(plan: Plan) -> float:
    """Return the time for all micro batches through the stages, relative to a single one."""
    if plan.stages == 1:
        return 1.0
    lasts, alone = (
        duration(plan.pipeline_schedule, plan.stages, count) for count in (plan.accumulation, 1)
    )
    return lasts / alone


def enumerate_plans(
    choices: Choices, variants: Sequence[Variant], fits: Knowledge | None = None
) -> Iterator[Plan]:
    """Yield the plans that are allowed and, as far as is known, fit.

    Args:
        choices: The allowed settings.
        variants: The variants to consider.
        fits: The knowledge of memory, or None to include plans that do not fit.
    """
    for variant in variants:
        able = [workers for workers in choices.workers if is_possible_on(variant, workers)]
        for workers, batch in itertools.product(able, choices.global_batches):
            yield from _divisions(choices, variant, workers, batch, fits)


def _divisions(
    choices: Choices, variant: Variant, workers: int, batch: int, knowledge: Knowledge | None
) -> Iterator[Plan]:
    """Yield the divisions of a batch with the fewest micro steps that fit, and a few with more."""
    replicas, rest = divmod(workers, variant.workers_per_replica)
    able = capabilities_of(str(variant.get("strategy")))
    if replicas == 1 and able.needs_replicas and _has_simpler(choices):
        return
    # Replicas must be divisible into groups that share parameters, and a model may only be divided
    # along the axis of its strategy.
    rest = rest or replicas % (variant.shard or 1) or (variant.shard and not able.takes_shard)
    if rest or any(((variant.get(axis) or 1) != 1) != (axis == able.axis) for axis in BY_AXIS):
        return
    num_divisions = 0
    accumulations = choices.accumulations or tuple(
        2**power for power in range(_MAX_ACCUMULATION.bit_length())
    )
    if choices.micro_batches is not None and choices.accumulations is None:
        accumulations = tuple(
            sorted({batch // (replicas * micro) for micro in choices.micro_batches} - {0})
        )
    for accumulation in accumulations:
        micro_batch, rest = divmod(batch, replicas * accumulation)
        if micro_batch == 0 or num_divisions >= _MAX_DIVISIONS:
            return
        plan = plan_with(variant, workers, micro_batch, accumulation)
        allowed = choices.micro_batches is None or micro_batch in choices.micro_batches
        if rest == 0 and allowed and (knowledge is None or knowledge.fits(plan)):
            num_divisions += 1
            yield plan


def _has_simpler(choices: Choices) -> bool:
    """Return whether a strategy is allowed that runs a single replica without dividing anything."""
    able = (capabilities_of(str(name)) for name in choices.options["strategy"])
    return any(
        capabilities.axis is None and not capabilities.needs_replicas for capabilities in able
    )


def best_plans(
    plans: Sequence[Plan],
    knowledge: Knowledge,
    goal: Goal,
    *,
    base_batch: int,
    noise_scale: float | None,
) -> list[Plan]:
    """Return the best plan of each global batch, the most promising batch first.

    An approximate exchange needs more steps, and no model predicts how many. So it never replaces
    an exact one. If its steps are faster, its best plan follows the exact plan of the same batch,
    so that both can be raced.

    Args:
        plans: The plans to choose from. Step times of their variants were measured.
        knowledge: The measurements.
        goal: The goal of the advice.
        base_batch: The batch at which a sample has the value 1.
        noise_scale: The gradient noise scale in samples, or None if it was not measured.
    """
    step_times_s = dict(
        zip(plans, (step_time.value for step_time in knowledge.step_times(plans)), strict=True)
    )

    def cost(plan: Plan) -> float:
        return step_times_s[plan] * knowledge.price(plan, goal) / plan.global_batch

    exact: dict[int, Plan] = {}
    inexact: dict[int, Plan] = {}
    # Simple plans come first, and another replaces them only if it is clearly cheaper.
    for plan in sorted(plans, key=lambda plan: (plan.workers, plan.accumulation)):
        best = exact if exchange_capabilities(plan.exchange).is_exact else inexact
        other = best.get(plan.global_batch)
        if other is None or cost(plan) < (1.0 - SAME) * cost(other):
            best[plan.global_batch] = plan
    scale = noise_scale or _NOISE_PRIOR * base_batch

    def expected(plan: Plan) -> float:
        if goal == "throughput":
            return cost(plan)
        return cost(plan) / float(efficiency(plan.global_batch, base_batch, scale))

    ordered: list[Plan] = []
    for plan in sorted((inexact | exact).values(), key=expected):
        ordered.append(plan)
        faster = inexact.get(plan.global_batch, plan)
        if faster != plan and cost(faster) < (1.0 - SAME) * cost(plan):
            ordered.append(faster)
    return ordered
