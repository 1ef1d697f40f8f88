"""Times the steps of a few plans, from which all other plans are predicted.

The experiment without advice comes first. Micro batches from small to large follow on each number
of workers, in every variant that may be faster. Changes that each made steps faster are then
measured together. Plans with stored measurements are not measured again.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from workbench.advisor.advice import Goal
from workbench.advisor.advice_from_findings import loader_numbers
from workbench.advisor.batch_finder import find_fastest
from workbench.advisor.exchange_forecast import waits_for_links, worth_timing
from workbench.advisor.measuring import Bench
from workbench.advisor.open_settings import (
    Choices,
    choices_of,
    drawn_params,
    is_open,
    with_divided_models,
)
from workbench.advisor.plan_variants import (
    Variant,
    alternatives,
    combinations,
    divided,
    plan_of,
    plan_with,
    read_plan,
    variant_of,
)
from workbench.advisor.plans import (
    SAME,
    Knowledge,
    best_plans,
    enumerate_plans,
)
from workbench.cluster.workers.admission import PLACEMENTS, Capacity, Placement
from workbench.experiment import Experiment
from workbench.experiment.plan import VARIANT, Hardware, PartialPlan, Plan
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import PlanMeasured
from workbench.foundation.events.trials import loaders_to_hide
from workbench.hardware.performance.memory import MemoryLaw
from workbench.training.exchanges.capabilities import capabilities_of as exchange_capabilities
from workbench.training.planning.equivalent_plans import changeable_ways, smaller_micro_batch
from workbench.training.planning.settings import resolve
from workbench.training.probes.measurements import PlanProbe
from workbench.training.strategies.capabilities import conflict_in

# The part of the time for advice that is spent on timed steps.
_PROBE_PART = 0.1
_SHORTEST_PROBE_S, _LONGEST_PROBE_S = 0.05, 5.0
# Micro batches that are measured on the smallest number of workers, and on each other number.
_BATCHES_FIRST, _BATCHES_MORE = 5, 3
_MAX_WORKER_COUNTS = 5
# The part of the remaining memory that kept activations may take. Their gradients need some of the
# rest.
_PART_KEPT = 0.85
# Earlier measurements are discarded if the reference's step time differs by more than this factor.
_AGREES = 1.5
# If time is short, fewer plans are measured, but at least this many on each number of workers: a
# line needs two points.
_MIN_BATCHES = 2


@dataclass(frozen=True)
class MeasurementContext:
    """The workers, and what is known about them before anything is measured.

    Attributes:
        capacity: The available workers.
        on_gpu: Whether they compute on GPUs.
        limit_bytes: The memory that one worker may use, or None if unknown.
        setting: The key under which measurements are stored.
        known: Earlier measurements with this key.
        noise_scale: The gradient noise scale that earlier trainings measured, in samples.
        estimated: The memory estimate from before anything ran.
        free_cores: CPU cores that each worker may use in addition to its own.
        spare_cores: The same if only one trial ran at a time.
    """

    capacity: Capacity
    on_gpu: bool
    limit_bytes: float | None
    setting: str
    known: tuple[PlanMeasured, ...] = ()
    noise_scale: float | None = None
    estimated: MemoryLaw | None = None
    free_cores: int = 0
    spare_cores: int = 0


class PlanMeasurer:
    """Measures plans of one experiment, and collects the measurements."""

    def __init__(
        self,
        experiment: Experiment,
        bench: Bench,
        context: MeasurementContext,
        budget_s: float,
        *,
        longest_s: float = math.inf,
        measures_power: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start with the earlier measurements.

        Args:
            experiment: The experiment.
            bench: Executes the measurements.
            context: The workers and what is known about them.
            budget_s: Seconds that the whole advice may take.
            longest_s: Seconds after which only necessary measurements are made.
            measures_power: Whether to measure the power of the devices. Plans that were measured
                without it are measured again.
            clock: Returns seconds.

        Raises:
            ExperimentError: If the experiment without advice does not fit into memory, or its power
                cannot be measured.
        """
        self._experiment, self._bench, self._context = experiment, bench, context
        self.budget_s, self.spent_s = budget_s, 0.0
        self._longest_s, self._clock = longest_s, clock
        self._measures_power = measures_power
        self._latest: Knowledge | None = None
        self._measured = [
            measured for measured in context.known if measured.power_w or not measures_power
        ]
        self.num_measured = 0
        self.placement: Placement = context.capacity.placement
        self.placements_s: dict[Placement, float] = {}
        """Step times of one plan, if both placements were tried."""
        self.reference = self._measure_reference()
        self.choices = self._choices(self.reference)

    @property
    def knowledge(self) -> Knowledge:
        """The measurements so far and the models fitted to them, which are cached."""
        measured = tuple(self._measured)
        latest = self._latest
        if latest is None or (latest.placement, latest.measured) != (self.placement, measured):
            latest = self._latest = self._knowledge(self.placement)
        return latest

    def _knowledge(self, placement: Placement) -> Knowledge:
        return Knowledge(
            self._measured,
            self._context.capacity.workers_per_node,
            placement=placement,
            limit_bytes=self._context.limit_bytes,
            estimated=self._context.estimated,
        )

    def _measure_reference(self) -> PlanMeasured:
        """Measure the experiment without advice. This also shows how much data there is."""
        params = drawn_params(self._experiment)
        workers = resolve(self._experiment, params).plan.workers
        decided = PartialPlan()
        measured = self._probe(workers, [decided], params)[0]
        is_divisible = all(
            is_open(self._experiment, name) for name in ("micro_batch", "accumulation")
        )
        while (
            not measured.fits
            and is_divisible
            and measured.divides_batch is not False
            and self._has_time
        ):
            # A trial would divide its batch in the same way.
            smaller = smaller_micro_batch(PartialPlan.from_json(measured.plan))
            if smaller is None:
                break
            measured = self._probe(workers, [decided := smaller], params)[0]
        if measured.fits and not self._agrees(measured):
            # The machine may have been busy now or during the earlier measurement. A second
            # measurement shows which.
            measured = self._probe(workers, [decided], params)[0]
            if measured.fits and not self._agrees(measured):
                self._measured = [measured]
        if (
            measured.fits
            and is_open(self._experiment, "loaders")
            and loaders_to_hide(measured.parts_s)
        ):
            # The first measurement may have read the data from a disk. A training does that only
            # in its first epoch, and reads from the cache afterwards. So measure again.
            self._measured.remove(measured)
            measured = self._probe(workers, [decided], params)[0]
        if not measured.fits:
            raise ExperimentError(
                f"your current settings do not fit: {str(measured.message).rstrip('.')}",
                field="plan.micro_batch",
                next_step=(
                    "Make the model smaller, or set plan.micro_batch and plan.accumulation to auto."
                ),
            )
        if self._measures_power and measured.power_w is None:
            raise ExperimentError(
                "the devices of this machine do not report their energy",
                field="--objective",
                allowed=(
                    "time, money or throughput. energy needs an NVIDIA GPU (Volta or newer) or"
                    " readable counters in /sys/class/powercap"
                ),
            )
        return measured

    def _agrees(self, measured: PlanMeasured) -> bool:
        """Return whether earlier measurements of the same plan agree with a new one."""
        assert measured.step_time_s is not None
        for earlier in self._context.known:
            if (
                earlier.plan == measured.plan
                and earlier.step_time_s is not None
                and earlier.by_trial is None
            ):
                return 1.0 / _AGREES < earlier.step_time_s / measured.step_time_s < _AGREES
        return True

    def _choices(self, reference: PlanMeasured) -> Choices:
        choices = choices_of(
            self._experiment,
            num_train_samples=reference.num_train_samples,
            max_workers=self._context.capacity.num_workers,
            hardware=Hardware(
                self._context.on_gpu,
                has_bf16=plan_of(reference.plan).precision == "bf16",
                has_full_nodes=self._context.capacity.has_full_nodes,
            ),
        )
        options = dict(choices.options)
        if is_open(self._experiment, "loaders"):
            options["loaders"] = loader_numbers(reference, self._context.free_cores)
        if is_open(self._experiment, "recompute"):
            options["recompute"] = (*options["recompute"], *self._kept_sizes())
        choices = dataclasses.replace(choices, options=options)
        if reference.divides_batch is not False:
            return choices
        # The loss of this batch is not the mean of the losses of its parts, so a step cannot be
        # divided into micro batches or among workers.
        alone = tuple(number for number in choices.workers if number == 1)
        return dataclasses.replace(choices, accumulations=(1,), workers=alone or choices.workers)

    def _kept_sizes(self) -> Iterator[str]:
        """Yield the number of bytes that fit for activations with partial recomputation."""
        law, limit_bytes = self._context.estimated, self._context.limit_bytes
        if law is not None and limit_bytes is not None:
            left_bytes = _PART_KEPT * law.left_for_samples(limit_bytes)
            if left_bytes >= 1e6:
                yield f"{int(left_bytes / 1e6)}MB"

    def measure_plans(self) -> None:
        """Measure variants that may be faster. If plans do not fit, also those that save memory.

        If replicas wait long for each other, variants that divide the model are also measured. They
        do not exchange gradients, which may be faster on slow links.
        """
        choices = self.choices
        base = self._base_variant()
        self._measure_variant(choices, base)
        exchanges = worth_timing(self._measured, map(str, choices.options["exchange"]))
        others = alternatives(base, choices.options, "speed")
        variants = [base, *(variant for variant in others if variant.get("exchange") in exchanges)]
        for variant in variants[1:]:
            if self._has_time:
                self._measure_variant(choices, variant)
        combined = combined_variant(self._measured, base, variants[1:])
        if combined is not None and self._has_time:
            self._measure_variant(choices, combined)
            variants.append(combined)
        if self._waits_for_links(base):
            self.choices = choices = with_divided_models(choices, self._experiment)
        for variant in divided(base, choices.options):
            if variant not in variants and self._has_time:
                self._measure_variant(choices, variant)
                variants.append(variant)
        if not self._all_fit(choices, variants):
            for variant in combinations(base, choices.options, "memory"):
                if variant not in variants:
                    self._measure_variant(choices, variant)

    def _base_variant(self) -> Variant:
        """Return the usual variant, with the settings for speed that the experiment already has."""
        base = self.choices.usual_variant
        reference = variant_of(plan_of(self.reference.plan))
        for dimension in VARIANT:
            value = reference.get(dimension.name)
            if dimension.advised_for == "speed" and value in self.choices.options[dimension.name]:
                base = base | PartialPlan.of(**{dimension.name: value})
        return base

    def _all_fit(self, choices: Choices, variants: Sequence[Variant]) -> bool:
        """Return whether every plan fits, so that no memory has to be saved."""
        knowledge = self.knowledge
        if not list(enumerate_plans(choices, variants, knowledge)):
            return False
        return all(
            knowledge.fits(plan)
            for plan in enumerate_plans(choices, variants)
            if plan.accumulation == 1 and knowledge.is_possible(plan)
        )

    @property
    def _has_time(self) -> bool:
        """Whether there is time for optional measurements."""
        return self.spent_s < self.budget_s

    def _waits_for_links(self, variant: Variant) -> bool:
        """Return whether replicas wait long for each other, and the model may be divided."""
        params, training = self.choices.params, self._experiment.training
        # adascale needs the gradient noise, which is only measured if each worker has all gradients
        rule = params.get("lr_rule", training.lr_rule)
        if "strategy" not in changeable_ways(self._experiment, params) or rule == "adascale":
            return False
        return waits_for_links(self._measured, variant)

    def compare_placements(self, plans: Sequence[Plan]) -> bool:
        """Measure the best plan of several workers on few and on many nodes. Keep the faster.

        Args:
            plans: The best plans on few nodes, the best first.

        Returns:
            Whether anything was measured. Another plan may then be the best.
        """
        plan = next((plan for plan in plans if plan.workers > 1), None)
        if plan is None or "resources.placement" not in self.choices.open_fields:
            return False
        packed, spread_out = self.knowledge, self._knowledge("spread")
        if packed.topology(plan.workers) == spread_out.topology(plan.workers):
            return False
        params = {**self.choices.params, "global_batch": "auto"}
        for placement in PLACEMENTS:
            self._bench.put(placement)
            measured = self._probe(
                plan.workers, [PartialPlan.of_plan(plan)], params, surveys_links=True
            )[0]
            self.placements_s[placement] = measured.step_time_s or math.inf
        if self.placements_s["spread"] < (1.0 - SAME) * self.placements_s["pack"]:
            self.placement = "spread"
        self._bench.put(self.placement)
        return True

    def find_fastest_batches(self) -> None:
        """Look for the fastest micro batch on each number of workers.

        Nothing is done unless the global batch may follow from the micro batch.
        """
        choices = self.choices
        if (
            choices.micro_batches
            or choices.accumulations
            or "training.global_batch" not in choices.open_fields
        ):
            return
        if "global_batch" in self._experiment.search.root:
            return
        samples, batches = self.reference.num_train_samples or 1, set(choices.global_batches)
        variant = choices.usual_variant
        for workers in choices.workers:

            def measure(sizes: Sequence[int], workers: int = workers) -> list[PlanMeasured]:
                plans = [PartialPlan.of_plan(plan_with(variant, workers, size)) for size in sizes]
                return self._probe(workers, plans, {**choices.params, "global_batch": "auto"})

            fastest = find_fastest(measure, largest=max(1, samples // workers)).micro_batch
            batches |= {workers * fastest} if fastest else set()
        self.choices = dataclasses.replace(choices, global_batches=tuple(sorted(batches)))

    def _measure_variant(self, choices: Choices, variant: Variant) -> None:
        allowed = list(enumerate_plans(choices, [variant], self.knowledge))
        if not allowed:
            return
        counts = spread_evenly([plan.workers for plan in allowed], _MAX_WORKER_COUNTS)
        for index, workers in enumerate(counts):
            micro_batches = {plan.micro_batch for plan in allowed if plan.workers == workers}
            most = _BATCHES_FIRST if index == 0 else _BATCHES_MORE
            wanted = spread_evenly(
                sorted(micro_batches), self._affordable(most, len(counts) - index)
            )
            missing = [size for size in wanted if not self._is_known(variant, workers, size)]
            plans = [PartialPlan.of_plan(plan_with(variant, workers, size)) for size in missing]
            if plans:
                # The plan determines the global batch, not the experiment.
                self._probe(workers, plans, {**choices.params, "global_batch": "auto"})

    def _affordable(self, most: int, num_counts: int) -> int:
        """Return how many plans to measure on each of the remaining numbers of workers."""
        if self.num_measured == 0:
            return most
        left_s = (self._longest_s - self.spent_s) / num_counts
        return num_affordable(most, left_s, self.spent_s / self.num_measured)

    def _is_known(self, variant: Variant, workers: int, micro_batch: int) -> bool:
        return any(
            variant_of(plan) == variant
            and measured.by_trial is None
            and (plan.workers, plan.micro_batch, plan.accumulation) == (workers, micro_batch, 1)
            for measured in self._measured
            if (plan := read_plan(measured.plan)) is not None
        )

    def _probe(
        self,
        workers: int,
        plans: Sequence[PartialPlan],
        params: dict[str, JsonValue],
        *,
        surveys_links: bool = False,
    ) -> list[PlanMeasured]:
        """Measure plans. Also sweep the links if that was not done for this number of workers."""
        share_s = _PROBE_PART * self.budget_s / (_BATCHES_FIRST + 2 * _BATCHES_MORE)
        limit = self._context.limit_bytes
        order = PlanProbe(
            plans=(),
            longest_s=min(max(share_s, _SHORTEST_PROBE_S), _LONGEST_PROBE_S),
            limit_bytes=None if limit is None else int(limit),
            setting=self._context.setting,
            measures_power=self._measures_power,
            surveys_links=surveys_links
            or not any(
                measured.all_reduce_s and sum(measured.workers_per_node) == workers
                for measured in self._measured
            ),
        )
        began_s = self._clock()
        measured = self._bench.probe(workers, plans, order, params)
        # Never 0, because others divide by it.
        self.spent_s += max(self._clock() - began_s, 1e-6)
        self._measured += measured
        self.num_measured += len(measured)
        return measured

    def measure_again(self, plans: Iterable[Plan]) -> None:
        """Time plans again in this order, even if they were measured before."""
        for workers, some in itertools.groupby(plans, key=lambda plan: plan.workers):
            decided = [PartialPlan.of_plan(plan) for plan in some]
            self._probe(workers, decided, {**self.choices.params, "global_batch": "auto"})

    def plans_that_fit(self) -> list[Plan]:
        """Return all allowed plans that may fit and whose steps can be predicted."""
        choices, knowledge = self.choices, self.knowledge
        allowed = [variant for variant in knowledge.variants if choices.allows(variant)]
        return list(enumerate_plans(choices, allowed, knowledge))

    def fastest_plans(self, goal: Goal, noise_scale: float | None) -> list[Plan]:
        """Return the best plan of each global batch, the most promising batch first.

        Args:
            goal: The goal of the advice.
            noise_scale: The gradient noise scale in samples, or None if it was not measured.

        Raises:
            ExperimentError: If no allowed plan fits.
        """
        plans = self.plans_that_fit()
        if not plans:
            raise ExperimentError(
                "no allowed plan fits into the memory of a worker",
                field="plan",
                next_step="Set plan.micro_batch, plan.recompute and plan.strategy to auto.",
            )
        return best_plans(
            plans,
            self.knowledge,
            goal,
            base_batch=self._experiment.training.reference_batch,
            noise_scale=noise_scale,
        )


def combined_variant(
    measured: Sequence[PlanMeasured], base: Variant, changed: Sequence[Variant]
) -> Variant | None:
    """Return the base with all changes that made its steps clearly faster.

    If changes exclude each other, the one with the largest gain is used. Approximate exchanges are
    skipped, because faster steps are not their only effect.

    Args:
        measured: The measurements of one setting.
        base: The variant from which the others differ.
        changed: Variants that differ from the base in one dimension and its options.

    Returns:
        The combined variant, or None if fewer than two changes can be combined.
    """
    times_s: dict[Variant, dict[tuple[int, int], float]] = {}
    for measurement in measured:
        plan = read_plan(measurement.plan)
        if (
            plan is not None
            and measurement.step_time_s is not None
            and plan.accumulation == 1
            and not measurement.by_trial
        ):
            times_s.setdefault(variant_of(plan), {})[plan.workers, plan.micro_batch] = (
                measurement.step_time_s
            )
    gains: list[tuple[float, PartialPlan]] = []
    before_s = times_s.get(base, {})
    for variant in changed:
        after_s = times_s.get(variant, {})
        ratios = [before_s[size] / after_s[size] for size in before_s.keys() & after_s.keys()]
        if ratios and exchange_capabilities(str(variant.get("exchange"))).is_exact:
            change = PartialPlan(tuple(item for item in variant.values if item not in base.values))
            gains.append((statistics.median(ratios), change))
    combined, num_changes = base, 0
    for gain, change in sorted(gains, key=lambda item: item[0], reverse=True):
        is_new = all(base.get(name) == combined.get(name) for name, _ in change.values)
        if gain >= 1.0 + SAME and is_new and conflict_in(combined | change) is None:
            combined, num_changes = combined | change, num_changes + 1
    return combined if num_changes > 1 else None


def spread_evenly(values: Sequence[int], count: int) -> list[int]:
    """Return at most `count` values that are spread evenly on a logarithmic scale.

    The lowest and the highest are among them.

    Args:
        values: Positive whole numbers.
        count: The largest number of values, at least 2.
    """
    ordered = sorted(set(values))
    if len(ordered) <= count:
        return ordered
    low, high = math.log(ordered[0]), math.log(ordered[-1])
    wanted = [low + (high - low) * index / (count - 1) for index in range(count)]
    return sorted({min(ordered, key=lambda value: abs(math.log(value) - at)) for at in wanted})


def num_affordable(most: int, left_s: float, plan_s: float) -> int:
    """Return how many plans to measure in the time that is left, but at least two.

    Args:
        most: How many plans to measure if time does not matter, at least 2.
        left_s: Seconds that are left. Below 0 if more than the budget was spent.
        plan_s: Seconds that it takes to measure one plan, > 0.
    """
    return int(min(most, max(_MIN_BATCHES, left_s / plan_s)))
