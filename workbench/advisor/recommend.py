"""From an experiment to an advice: measure plans, predict the others, try the best beside each other.

The order is that of cost: steps are measured in seconds and predicted for every plan; what will not fit is
dropped; only the few plans that the models believe in, and the rates that no model knows, are trained, under
a budget of time. What is said in the end, and how sure it is, is put together in `verdict`.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from workbench.advisor.advice import Advice, Goal
from workbench.advisor.bench import Bench, Report
from workbench.advisor.choices import Choices, base_params, check_advisable, choices_of
from workbench.advisor.measurements import (
    noise_scale_of,
    read_measurements,
    read_noise_scale,
    setting_of,
)
from workbench.advisor.plans import Knowledge, PlanChoice, Variant, enumerate_plans, spread, variant_of
from workbench.advisor.race import Race
from workbench.advisor.rivals import Proposer, Rival
from workbench.advisor.verdict import Findings, conclude
from workbench.errors import ExperimentError
from workbench.events import CandidateTried, PlanMeasured, RatesTested, Sink
from workbench.experiment import Experiment
from workbench.performance.goodput import efficiency
from workbench.performance.memory import MemoryLaw
from workbench.resources import cluster_inventory, inventory
from workbench.store import Store
from workbench.study.samplers import stable_seed
from workbench.training.learning_rate import default_lr
from workbench.training.settings import TrialSettings, resolve
from workbench.training.task import PlanProbe, RateTest
from workbench.workers.capacity import Capacity, capacity_of
from workbench.workers.origin import Origin

# Of the time for an advice, how much may go into steps that are timed, and into the rates.
_PROBE_PART, _RATE_PART = 0.2, 0.15
_SHORTEST_PROBE_S, _LONGEST_PROBE_S = 0.2, 5.0
# Micro batches that are measured on the fewest workers, and on each other number of them.
_BATCHES_FIRST, _BATCHES_MORE = 5, 3
_MOST_WORKER_COUNTS = 5
# Where nobody measured it, the noise scale is taken to be so many reference batches.
_NOISE_PRIOR = 4.0
_RATE_TEST_STEPS, _RATE_TEST_SEEDS = 60, 2
# Rates are looked for within this factor around the one that is believed in.
_RATES_AROUND = 30.0
_NUM_RACED_BATCHES = 5
# Plans whose predicted times differ by less are equal: then the one with fewer workers is taken.
_SAME = 0.03


def advisor_for(store: Store, run_id: str, *, objective: Goal, budget_s: float, sink: Sink) -> Advisor:
    """Prepare to advise on the experiment of a run, on the cluster that this process is attached to.

    Args:
        store: The store that holds the run, and earlier measurements.
        run_id: The run.
        objective: What the advice should be best for.
        budget_s: Seconds that it may take.
        sink: Stores what is found.

    Raises:
        ExperimentError: If the experiment trains no model.
    """
    experiment = store.experiment(run_id)
    check_advisable(experiment)
    cluster = cluster_inventory()
    capacity = capacity_of(experiment, cluster)
    setting = setting_of(experiment, base_params(experiment), capacity.shape, cluster)
    on_gpu = capacity.shape.gpus > 0
    here = inventory()
    limit_bytes = None
    if on_gpu and here.gpus:
        limit_bytes = min(gpu.memory_bytes for gpu in here.gpus) * min(capacity.shape.gpus, 1.0)
    elif not on_gpu and cluster.nodes:
        limit_bytes = min(
            node.memory_bytes / max(count, 1)
            for node, count in zip(cluster.nodes, capacity.workers_per_node, strict=True)
        )
    around = Surroundings(
        capacity, on_gpu, limit_bytes or None, setting,
        known=tuple(read_measurements(store, setting)), noise_scale=read_noise_scale(store, experiment),
    )  # fmt: skip
    bench = Bench(
        run_id, experiment, store.artifacts_of(run_id), shape=capacity.shape, origin=Origin.here(), sink=sink
    )
    return Advisor(experiment, bench, around, goal=objective, budget_s=budget_s, sink=sink)


@dataclass(frozen=True)
class Surroundings:
    """What an advice rests on besides the experiment.

    Attributes:
        capacity: Workers that there can be.
        on_gpu: Whether they compute on GPUs.
        limit_bytes: What one worker may hold; None where that is not known.
        setting: The key of measurements.
        known: Earlier measurements of that setting.
        noise_scale: As earlier trainings measured it, in samples.
        estimated: The memory as it was estimated before anything ran.
    """

    capacity: Capacity
    on_gpu: bool
    limit_bytes: float | None
    setting: str
    known: tuple[PlanMeasured, ...] = ()
    noise_scale: float | None = None
    estimated: MemoryLaw | None = None


class Advisor:
    """Finds the advice for one experiment."""

    def __init__(
        self, experiment: Experiment, bench: Bench, around: Surroundings, *, goal: Goal, budget_s: float,
        sink: Sink, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """Prepare to advise.

        Args:
            experiment: What is to be trained.
            bench: Where to measure.
            around: What else is known.
            goal: What the advice should be best for.
            budget_s: Seconds that finding it may take; what is under way when they end is finished.
            sink: Takes what the bench does not store itself.
            clock: Tells seconds.

        Raises:
            ExperimentError: If the goal cannot be measured here.
        """
        if goal == "energy":
            raise ExperimentError(
                "no worker here has a meter of the energy that it uses",
                field="--objective",
                allowed="time, money, throughput",
            )
        self._experiment, self._bench, self._around = experiment, bench, around
        self._goal: Goal = goal
        self._budget_s, self._sink, self._clock = budget_s, sink, clock
        self._began_s = clock()
        self._measured = list(around.known)
        self._num_measured_now = 0
        self._noise_scale = around.noise_scale
        self._num_trainings = itertools.count()

    def advise(self, *, with_race: bool = True) -> Advice:
        """Find the advice.

        Args:
            with_race: Whether to train candidates; without, the models alone decide.

        Raises:
            ExperimentError: If nothing that is allowed fits or can be trained.
        """
        reference = self._measure_reference()
        choices = self._choices(reference)
        self._measure_plans(choices, variant_of(reference.plan))
        knowledge = self._knowledge()
        plans = self._fastest_plans(choices, knowledge)
        rates = race = None
        if with_race and self._goal != "throughput":
            rates = self._test_rates(choices, reference)
            race = self._race(choices, plans, rates, reference)
        return conclude(
            Findings(
                experiment=self._experiment,
                goal=self._goal,
                choices=choices,
                knowledge=knowledge,
                reference=reference,
                plans=plans,
                rates=rates,
                race=race,
                noise_scale=self._noise_scale,
                num_known=len(self._around.known),
                num_measured=self._num_measured_now,
                cost_s=self._clock() - self._began_s,
            )
        )

    def _measure_reference(self) -> PlanMeasured:
        """Measure what the experiment does without advice, which also tells how much data there is."""
        params = base_params(self._experiment)
        workers = resolve(self._experiment, self._reference_params()).split.workers
        for each in self._measured:
            if each.plan["workers"] == workers and each.num_train_samples is not None and each.fits:
                settings = resolve(
                    self._experiment, self._reference_params(), num_train_samples=each.num_train_samples
                )
                if settings.plan()["global_batch"] == each.plan["global_batch"]:
                    return each
        found = self._probe(workers, [{}], {**params, **self._reference_params()})[0]
        if not found.fits:
            raise ExperimentError(
                f"the experiment as it stands does not fit: {found.message}",
                field="plan.micro_batch",
                next_step="Let plan.micro_batch and plan.accumulation be auto, or make them smaller.",
            )
        return found

    def _reference_params(self) -> dict[str, JsonValue]:
        """Return the configuration of a trial without advice: searched fields have the value of a draw."""
        return self._experiment.search.sample(random.Random(self._experiment.seed))

    def _choices(self, reference: PlanMeasured) -> Choices:
        return choices_of(
            self._experiment,
            num_train_samples=reference.num_train_samples or 0,
            most_workers=self._around.capacity.num_workers,
            on_gpu=self._around.on_gpu,
            has_bf16=reference.plan["precision"] == "bf16",
        )

    def _measure_plans(self, choices: Choices, usual: Variant) -> None:
        """Measure the variants that are worth it: the others only where the usual one does not fit."""
        variants = [
            Variant(precision, choices.strategies[0], choices.recomputes[0])
            for precision in dict.fromkeys((usual.precision, *choices.precisions))
            if precision in choices.precisions
        ]
        for variant in variants:
            self._measure_variant(choices, variant)
        knowledge = self._knowledge()
        if list(enumerate_plans(choices, variants, knowledge)):
            wanted = list(enumerate_plans(choices, variants))
            if all(knowledge.fits(plan) for plan in wanted if plan.accumulation == 1):
                return
        for strategy, recompute in itertools.product(choices.strategies, choices.recomputes):
            variant = dataclasses.replace(variants[0], strategy=strategy, recompute=recompute)
            if variant not in variants:
                self._measure_variant(choices, variant)

    def _measure_variant(self, choices: Choices, variant: Variant) -> None:
        allowed = list(enumerate_plans(choices, [variant], self._knowledge()))
        counts = spread(sorted({plan.workers for plan in allowed}), _MOST_WORKER_COUNTS) if allowed else []
        for index, workers in enumerate(counts):
            micro_batches = {plan.micro_batch for plan in allowed if plan.workers == workers}
            wanted = spread(sorted(micro_batches), _BATCHES_FIRST if index == 0 else _BATCHES_MORE)
            missing = [size for size in wanted if not self._is_known(variant, workers, size)]
            plans = [PlanChoice(workers, size, 1, variant).decided() for size in missing]
            if plans:
                self._probe(workers, plans, choices.params)

    def _is_known(self, variant: Variant, workers: int, micro_batch: int) -> bool:
        return any(
            variant_of(each.plan) == variant
            and (each.plan["workers"], each.plan["micro_batch"]) == (workers, micro_batch)
            for each in self._measured
        )

    def _probe(
        self, workers: int, plans: Sequence[dict[str, JsonValue]], params: dict[str, JsonValue]
    ) -> list[PlanMeasured]:
        share_s = _PROBE_PART * self._budget_s / (_BATCHES_FIRST + 2 * _BATCHES_MORE)
        limit = self._around.limit_bytes
        order = PlanProbe(
            plans=(),
            longest_s=min(max(share_s, _SHORTEST_PROBE_S), _LONGEST_PROBE_S),
            limit_bytes=None if limit is None else int(limit),
            setting=self._around.setting,
        )
        found = self._bench.probe(workers, plans, order, params)
        self._measured += found
        self._num_measured_now += len(found)
        return found

    def _knowledge(self) -> Knowledge:
        return Knowledge(
            self._measured, self._around.capacity.workers_per_node,
            limit_bytes=self._around.limit_bytes, estimated=self._around.estimated,
        )  # fmt: skip

    def _fastest_plans(self, choices: Choices, knowledge: Knowledge) -> list[PlanChoice]:
        """Return the best plan of each global batch, the batch that should reach the target first, first."""
        plans = list(enumerate_plans(choices, knowledge.variants, knowledge))
        if not plans:
            raise ExperimentError(
                "no plan that is allowed fits into the memory of a worker",
                field="plan",
                next_step="Let plan.micro_batch, plan.recompute and plan.strategy be auto.",
            )
        step_times_s = dict(zip(plans, (each.value for each in knowledge.step_times(plans)), strict=True))

        def cost(plan: PlanChoice) -> float:
            workers = plan.workers if self._goal == "money" else 1
            return step_times_s[plan] * workers / plan.global_batch

        best: dict[int, PlanChoice] = {}
        for plan in sorted(plans, key=lambda plan: (plan.workers, plan.accumulation)):
            other = best.get(plan.global_batch)
            if other is None or cost(plan) < (1.0 - _SAME) * cost(other):
                best[plan.global_batch] = plan
        if self._goal == "throughput":
            return sorted(best.values(), key=cost)
        base = self._experiment.training.reference_batch
        scale = self._noise_scale or _NOISE_PRIOR * base
        return sorted(
            best.values(),
            key=lambda plan: cost(plan) / float(efficiency(plan.global_batch, base, scale)),
        )

    def _test_rates(self, choices: Choices, reference: PlanMeasured) -> RatesTested | None:
        step_s = reference.step_time_s
        cost_s = _RATE_TEST_STEPS * _RATE_TEST_SEEDS * (step_s or 0.0)
        if not choices.is_rate_open or step_s is None or cost_s > _RATE_PART * self._budget_s:
            return None
        usual = default_lr(self._settings(choices).training.optimizer)
        order = RateTest(
            lowest=max(choices.rates[0], usual / 1e3),
            highest=min(choices.rates[1], usual * 1e3),
            num_steps=_RATE_TEST_STEPS,
            num_seeds=_RATE_TEST_SEEDS,
            setting=self._around.setting,
        )
        params = {**choices.params, "global_batch": reference.plan["global_batch"]}
        plan = {name: value for name, value in reference.plan.items() if name != "global_batch"}
        return self._bench.test_rates(plan, params, order) if order.lowest < order.highest else None

    def _settings(self, choices: Choices) -> TrialSettings:
        return resolve(self._experiment, choices.params)

    def _race(
        self,
        choices: Choices,
        plans: Sequence[PlanChoice],
        rates: RatesTested | None,
        reference: PlanMeasured,
    ) -> Race[Rival] | None:
        """Train candidates beside each other while there is time."""
        left_s = self._budget_s - (self._clock() - self._began_s)
        if left_s <= 0:
            return None
        objective = self._experiment.objectives[0]
        sign = 1.0 if objective.goal == "maximize" else -1.0
        race: Race[Rival] = Race(
            lambda rival, repeat, goes_on: self._train(
                rival, repeat, goes_on, objective.metric, sign, choices
            ),
            target=None if objective.target is None else sign * objective.target,
            budget_s=left_s, clock=self._clock,
        )  # fmt: skip
        raced = self._raced_plans(plans, reference)
        believed = choices.allowed_rate(self._believed_rate(choices, rates, reference))
        low = max(choices.rates[0], believed / _RATES_AROUND)
        high = min(choices.rates[1], believed * _RATES_AROUND)
        named = {str(index): plan for index, plan in enumerate(raced)}
        proposer = Proposer(
            self._experiment, choices, named, (low, high), _favourites(raced, believed, choices, (low, high))
        )
        while race.may_explore:
            proposed = proposer.ask()
            if proposed is None:
                break
            number, rival = proposed
            course = race.run(rival)
            proposer.tell(number, race.score(course))
            if not choices.is_rate_open and len({each.entrant for each in race.courses}) == len(raced):
                break
        race.confirm()
        return race

    def _raced_plans(self, plans: Sequence[PlanChoice], reference: PlanMeasured) -> list[PlanChoice]:
        """Return the plans to train: the best of the models, spread over the batches, and the reference's."""
        usual = reference.plan["global_batch"]
        return [
            plan
            for index, plan in enumerate(plans)
            if index < _NUM_RACED_BATCHES or plan.global_batch == usual
        ]

    def _believed_rate(self, choices: Choices, rates: RatesTested | None, reference: PlanMeasured) -> float:
        """Return the rate at the reference batch that is believed in before any training."""
        settings = self._settings(choices)
        if rates is not None and rates.suggested is not None:
            return rates.suggested / self._rate_factor(choices, rates.global_batch)
        return settings.training.lr if settings.training.lr != "auto" else default_lr(
            settings.training.optimizer
        )  # fmt: skip

    def _rate_factor(self, choices: Choices, global_batch: int) -> float:
        """Return the rate at a global batch over that at the reference batch."""
        params = {**choices.params, "lr": 1e-3, "global_batch": global_batch}
        return resolve(self._experiment, params, decided=_FREE).lr / 1e-3

    def _train(
        self, rival: Rival, repeat: int, goes_on: Callable[[float, float | None], bool],
        metric: str, sign: float, choices: Choices,
    ) -> bool:  # fmt: skip
        """Train one rival, as a trial of a sweep would be, and keep what it tells."""
        weight = rival.plan.workers if self._goal == "money" else 1.0
        last: Report | None = None

        def hear(report: Report) -> bool:
            nonlocal last
            last = report
            self._noise_scale = noise_scale_of(report.event) or self._noise_scale
            value = report.event.values.get(metric)
            return goes_on(weight * report.elapsed_s, None if value is None else sign * value)

        plan = rival.plan
        params = {**choices.params, "lr": rival.lr, "global_batch": plan.global_batch}
        is_whole = self._bench.train(
            next(self._num_trainings), plan.decided(), params,
            stable_seed("training", self._experiment.seed, repeat), hear,
        )  # fmt: skip
        if last is not None:
            target = self._experiment.objectives[0].target
            value = last.event.values.get(metric)
            self._sink(
                CandidateTried(
                    plan=plan.written(),
                    lr=rival.lr * self._rate_factor(choices, plan.global_batch),
                    elapsed_s=last.elapsed_s,
                    step=last.event.step,
                    epoch=last.event.epoch or 0.0,
                    values=last.event.values,
                    reached_target=target is not None and value is not None and sign * value >= sign * target,
                )
            )
        return is_whole


_FREE: dict[str, JsonValue] = {"workers": 1, "micro_batch": "auto", "accumulation": 1}


def _favourites(
    plans: Sequence[PlanChoice], believed: float, choices: Choices, bounds: tuple[float, float]
) -> Iterator[Rival]:
    """Yield what to try first: the best plans at the believed rate, then other rates around it."""
    seen: set[Rival] = set()
    for factor, count in ((1.0, len(plans)), (3.0, 2), (1 / 3.0, 2), (10.0, 2)):
        for plan in plans[:count]:
            lr = min(max(choices.allowed_rate(believed * factor), bounds[0]), bounds[1])
            rival = Rival(plan, lr)
            if rival not in seen and math.isfinite(lr):
                seen.add(rival)
                yield rival
