"""All allowed plans, and what follows from measurements: step time, memory, whether one fits.

Step times of one variant (precision, strategy, recomputation) follow one fitted model. Its memory
follows the line through what was measured, or what was estimated before anything ran. Nothing is
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
from workbench.advisor.choices import Choices
from workbench.advisor.stored_advice import Estimate
from workbench.advisor.variants import Variant, is_possible_on, plan_with, read_plan, variant_of
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

# More micro steps than memory requires are rarely faster: this many ways to divide a batch are
# compared.
_MAX_DIVISIONS = 3
_MAX_ACCUMULATION = 4096
# Where it was not measured, the noise scale is taken to be this many reference batches.
_NOISE_PRIOR = 4.0
# Plans whose predicted times differ by less are equal: then the one with fewer workers is taken.
SAME = 0.03


class Knowledge:
    """What was measured of one setting, and what follows for other plans."""

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
            measured: Of one setting.
            workers_per_node: How many workers each node holds.
            placement: Whether a gang is put on as few nodes as there can be, or on as many.
            limit_bytes: What one worker may hold, or None if that is not known.
            estimated: The memory of plain plans (ddp, nothing computed again) as it was estimated
                before anything ran.
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
        """Return what is known with one more measurement."""
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
        _ = self._models  # fitted once for all
        other = copy.copy(self)
        other._room, other.limit_bytes = sorted(workers_per_node, reverse=True), limit_bytes
        return other

    @cached_property
    def _models(self) -> dict[Variant, StepTimeModel]:
        """Fit what was measured alone.

        Trials beside others only show how plans differ from each other.
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
        """Return how many times as long as alone the steps of trials took, in the middle."""
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
        """How many times as long steps take in trials, beside others, as alone.

        None if not known.
        """
        return statistics.median(self._factors.values()) if self._factors else None

    @property
    def variants(self) -> list[Variant]:
        """The variants of which a step time was measured."""
        return list(self._models)

    def topology(self, num_workers: int) -> Topology:
        """Return where a number of workers would be placed."""
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
        """Return what was measured of exactly this plan, where it was. A model smooths it over.

        Where it was not, a step takes at least as long as that of fewer workers on one node with
        the same work. What was measured on two nodes says nothing: rings of three and more are
        often faster. A step of several micro batches takes at most as long as that many steps of
        one.
        """
        found_s = self._found_s(plan)
        if found_s is not None:
            return Estimate(found_s, min(predicted.low, found_s), max(predicted.high, found_s))
        one_s = self._found_s(replace(plan, accumulation=1))
        if one_s is not None and plan.stages == 1:
            predicted = predicted.at_most(plan.accumulation * one_s)
        alike = [
            plan_with(variant_of(plan), workers, plan.micro_batch, plan.accumulation)
            for workers in {known.workers for known in self._within_s}
            if workers < plan.workers
        ]
        return predicted.at_least(
            max((self._within_s.get(known, 0.0) for known in alike), default=0.0)
        )

    def _found_s(self, plan: Plan) -> float | None:
        """Return the step time that was measured of exactly this plan, as if it had been alone."""
        timed = self._timed_here(plan)
        if timed and timed[-1].by_trial is not None:
            return (timed[-1].step_time_s or 0.0) / self._factors.get(variant_of(plan), 1.0)
        return statistics.median(self.timings_s(plan)) if timed else None

    @cached_property
    def _within_s(self) -> dict[Plan, float]:
        """Return the measured step times on one node of plans whose workers all do a whole step."""
        return {
            plan: self._found_s(plan) or 0.0
            for plan in self._timed
            if all(len(timed.workers_per_node) <= 1 for timed in self._timed_here(plan))
            and not (plan.strategy in STRATEGIES and capabilities_of(plan.strategy).divides_state)
        }

    def timings_s(self, plan: Plan) -> list[float]:
        """Return the step times that probes measured of exactly this plan, the earliest first."""
        return [
            timed.step_time_s or 0.0 for timed in self._timed_here(plan) if timed.by_trial is None
        ]

    def _timed_here(self, plan: Plan) -> list[PlanMeasured]:
        """Return what was timed of exactly this plan.

        Where its workers would be placed, if it was timed there.
        """
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
        """Return what all devices of a plan use.

        That of the nearest plan that was metered, None without any.

        Of these, plans on as many workers are nearest, then those with a like micro batch.
        """
        metered = [
            (known, event.power_w) for known, event in self._by_plan if event.power_w is not None
        ]
        if not metered:
            return None

        def distance(other: Plan) -> tuple[float, float]:
            micro = abs(math.log(other.micro_batch / plan.micro_batch))
            return abs(math.log(other.workers / plan.workers)), micro

        return min(metered, key=lambda item: distance(item[0]))[1]

    def price(self, plan: Plan, goal: Goal) -> float:
        """Return what a second of a plan costs in terms of a goal.

        Workers, watts, or nothing but itself.
        """
        if goal == "money":
            return plan.workers
        return self.power_w(plan) or 1.0 if goal == "energy" else 1.0

    def price_over(self, plan: Plan, usual: Plan, goal: Goal) -> float:
        """Return the price of a second of a plan, as budgets count it.

        One of `usual` costs 1.
        """
        return self.price(plan, goal) / self.price(usual, goal)

    def memory(self, plan: Plan) -> MemoryNeed | None:
        """Return what one worker of a plan holds, or None if it is not known."""
        law, measured = self._memory_law(plan)
        if law is None:
            return None
        return MemoryNeed(law.peak_bytes(plan.micro_batch), self.limit_bytes, measured)

    def fits(self, plan: Plan) -> bool:
        """Return whether a plan fits. One of which nothing is known is taken to fit."""
        for known, event in self._like(plan):
            if not event.fits and (plan.micro_batch >= known.micro_batch or not event.is_possible):
                return False
        need = self.memory(plan)
        return need is None or need.limit is None or need.value <= (1.0 - MARGIN) * need.limit

    def is_possible(self, plan: Plan) -> bool:
        """Return whether nothing but memory is known to prevent a plan."""
        return all(event.is_possible for _, event in self._like(plan))

    def _like(self, plan: Plan) -> list[tuple[Plan, PlanMeasured]]:
        """Return what was measured of the variant of a plan.

        On one worker or on several, as the plan has.
        """
        return [
            (known, event)
            for known, event in self._by_plan
            if variant_of(known) == variant_of(plan) and (known.workers == 1) == (plan.workers == 1)
        ]

    def _memory_law(self, plan: Plan) -> tuple[MemoryLaw | None, bool]:
        peaks: dict[int, int] = {}
        is_exact = False
        for known, event in self._like(plan):
            if event.peak_bytes is not None and event.fits:
                peaks[known.micro_batch] = max(event.peak_bytes, peaks.get(known.micro_batch, 0))
                is_exact |= (known.workers, known.micro_batch) == (plan.workers, plan.micro_batch)
        if len(peaks) < 2:
            return self._estimated_law(plan), False
        least, most = min(peaks), max(peaks)
        per_sample = max(0.0, (peaks[most] - peaks[least]) / (most - least))
        # Caches of libraries may make a smaller batch hold more: then the peak is flat.
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
    """Return how many times as long as one micro batch all of them take through the stages."""
    if plan.stages == 1:
        return 1.0
    lasts, alone = (
        duration(plan.pipeline_schedule, plan.stages, count) for count in (plan.accumulation, 1)
    )
    return lasts / alone


def enumerate_plans(
    choices: Choices, variants: Sequence[Variant], fits: Knowledge | None = None
) -> Iterator[Plan]:
    """Yield the plans that are allowed, and fit as far as is known.

    Args:
        choices: What may be chosen.
        variants: The variants to consider.
        fits: What is known of memory, or None to leave nothing out for it.
    """
    for variant in variants:
        able = [workers for workers in choices.workers if is_possible_on(variant, workers)]
        for workers, batch in itertools.product(able, choices.global_batches):
            yield from _divisions(choices, variant, workers, batch, fits)


def _divisions(
    choices: Choices, variant: Variant, workers: int, batch: int, known: Knowledge | None
) -> Iterator[Plan]:
    """Yield the divisions of a batch with the least accumulation that fits, and some with more."""
    replicas, rest = divmod(workers, variant.workers_per_replica)
    able = capabilities_of(str(variant.get("strategy")))
    if replicas == 1 and able.needs_replicas and _has_simpler(choices):
        return
    rest = rest or replicas % (variant.shard or 1) or (variant.shard and not able.takes_shard)
    if rest or any(((variant.get(axis) or 1) != 1) != (axis == able.axis) for axis in BY_AXIS):
        return
    num_found = 0
    accumulations = choices.accumulations or tuple(
        2**power for power in range(_MAX_ACCUMULATION.bit_length())
    )
    if choices.micro_batches is not None and choices.accumulations is None:
        accumulations = tuple(
            sorted({batch // (replicas * micro) for micro in choices.micro_batches} - {0})
        )
    for accumulation in accumulations:
        micro_batch, rest = divmod(batch, replicas * accumulation)
        if micro_batch == 0 or num_found >= _MAX_DIVISIONS:
            return
        plan = plan_with(variant, workers, micro_batch, accumulation)
        allowed = choices.micro_batches is None or micro_batch in choices.micro_batches
        if rest == 0 and allowed and (known is None or known.fits(plan)):
            num_found += 1
            yield plan


def _has_simpler(choices: Choices) -> bool:
    """Return whether a single replica may be computed without dividing among replicas."""
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

    An approximate exchange needs more steps than any model knows. So it never replaces an exact
    one: where one is allowed and makes faster steps, its best plan follows that of the same batch,
    to be raced.

    Args:
        plans: What to choose among. Step times of their variants were measured.
        knowledge: What was measured.
        goal: What the plans should be best for.
        base_batch: The batch whose samples count as 1.
        noise_scale: The gradient noise scale in samples, where it was measured.
    """
    step_times_s = dict(
        zip(plans, (step_time.value for step_time in knowledge.step_times(plans)), strict=True)
    )

    def cost(plan: Plan) -> float:
        return step_times_s[plan] * knowledge.price(plan, goal) / plan.global_batch

    exact: dict[int, Plan] = {}
    inexact: dict[int, Plan] = {}
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
