"""From an experiment to advice: measure some plans, predict all others, and train the best ones.

Cheap steps come first. Steps of a few plans are timed within seconds and predicted for all other
plans (`plan_measurement`). Plans that do not fit are dropped. Only the most promising plans are
trained within a time budget, with learning rates that no model predicts (`confirmation`).
`advice_from_findings` composes the advice.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence

from workbench.advisor.advice import Advice, Goal, PowerAdvice, PowerStep
from workbench.advisor.advice_from_findings import Findings, conclude
from workbench.advisor.confirmation import Confirmation
from workbench.advisor.measuring import Bench
from workbench.advisor.memory import memory_limit_bytes
from workbench.advisor.open_settings import base_params, check_advisable, drawn_params
from workbench.advisor.plan_measurement import MeasurementContext, PlanMeasurer
from workbench.advisor.retiming import time_closest_again
from workbench.advisor.speed_history import read_measurements, read_noise_scale, setting_of
from workbench.cluster.remote.code_origin import Origin
from workbench.cluster.remote.kept_code import unpack_here
from workbench.cluster.workers.admission import capacity_of, free_cores_of
from workbench.experiment import Experiment
from workbench.experiment.plan import PartialPlan, Plan
from workbench.foundation.errors import ResourcesError, WorkbenchError
from workbench.foundation.events import PlanMeasured, Sink
from workbench.foundation.formatting import format_duration
from workbench.hardware.performance.memory import MemoryLaw, fit_law
from workbench.hardware.resources import cluster_inventory
from workbench.store.database import Store
from workbench.training.planning.own_code import in_words_of_plans, own_settings
from workbench.training.probes.measurements import PowerProbe
from workbench.training.probes.memory_estimate import estimate_memory

_ESTIMATED_BATCHES = (8, 16)
# The part of the time for advice that optional plan measurements may take. The rest is for
# trainings.
_SURVEY_PART = 0.25
# Trainings are cut short after this many times the budget, even if they have not reported.
_LATEST = 1.1
_TOLERATED_S = 1.0


def advisor_for(
    store: Store,
    run_id: str,
    *,
    objective: Goal,
    budget_s: float,
    sink: Sink,
    poll: Callable[[], None],
    max_slowdown: float | None = None,
) -> Advisor:
    """Prepare to advise on the experiment of a run, on the attached cluster.

    Args:
        store: The store that holds the run, and earlier measurements.
        run_id: The run.
        objective: What the advice should be best for.
        budget_s: Seconds that it may take.
        sink: Stores what is found.
        poll: Called every second or so while something is measured. What it raises ends that.
        max_slowdown: By what part a power limit may slow steps. None to measure no limits.

    Raises:
        ExperimentError: If the experiment trains no model.
        ResourcesError: If power limits are requested, and trials do not compute on whole GPUs.
    """
    experiment = store.experiment(run_id)
    check_advisable(experiment)
    context = measurement_context_of(store, experiment)
    if max_slowdown is not None:
        check_power_limits(experiment, context)
    bench = bench_for(store, run_id, experiment, context, sink=sink, poll=poll)
    return Advisor(
        experiment,
        bench,
        context,
        goal=objective,
        budget_s=budget_s,
        sink=sink,
        max_slowdown=max_slowdown,
        clock=bench.clock_s,
    )


def check_power_limits(experiment: Experiment, context: MeasurementContext) -> None:
    """Raise an error if a trial cannot compute under power limits of its own GPUs.

    Args:
        experiment: The experiment.
        context: Its workers.
    """
    problem = None
    if not experiment.trains_model:
        problem = "power limits are compared by steps, and this experiment runs its own code"
    elif context.capacity.shape.gpus < 1:
        problem = "power limits need an NVIDIA GPU for each worker that no other worker uses"
    if problem is not None:
        raise ResourcesError(problem, field="--max-slowdown", next_step="Omit --max-slowdown.")


def measurement_context_of(store: Store, experiment: Experiment) -> MeasurementContext:
    """Inspect the attached cluster, and read earlier measurements of it.

    Args:
        store: The store with earlier measurements.
        experiment: The experiment.
    """
    named = in_words_of_plans(experiment)
    cluster = cluster_inventory()
    capacity = capacity_of(experiment, cluster)
    setting = setting_of(experiment, base_params(named), capacity.shape, cluster)
    on_gpu = capacity.shape.gpus > 0
    return MeasurementContext(
        capacity,
        on_gpu,
        memory_limit_bytes(experiment, capacity, cluster),
        setting,
        known=tuple(read_measurements(store, setting)),
        noise_scale=read_noise_scale(store, experiment),
        estimated=_estimated(experiment) if on_gpu and experiment.trains_model else None,
        free_cores=free_cores_of(experiment, cluster),
        spare_cores=free_cores_of(experiment, cluster, is_alone=True),
    )


def _estimated(experiment: Experiment) -> MemoryLaw | None:
    """Estimate the memory of a worker from shapes, so that probes do not start with huge plans."""
    try:
        batches = _ESTIMATED_BATCHES
        plan = PartialPlan.of(workers=1)
        return fit_law(
            estimate_memory(experiment, base_params(experiment), batches, plan=plan).steps
        )
    except WorkbenchError:  # a model that depends on the values of tensors must be measured
        return None


def bench_for(
    store: Store,
    run_id: str,
    experiment: Experiment,
    context: MeasurementContext,
    *,
    sink: Sink,
    poll: Callable[[], None] = lambda: None,
) -> Bench:
    """Return the bench of an experiment. Arguments as in `measurement_context_of` and `Bench`."""
    return Bench(
        run_id,
        experiment,
        store.artifacts_of(run_id),
        capacity=context.capacity,
        origin=_origin_of(experiment),
        sink=sink,
        poll=poll,
    )


def _origin_of(experiment: Experiment) -> Origin:
    """Return the origin of this process, with the code if its trials have working folders."""
    folder = unpack_here(experiment) if experiment.links is not None else None
    return dataclasses.replace(Origin.here(), kept_sha256="" if folder is None else folder.name)


class Advisor:
    """Finds the advice for one experiment."""

    def __init__(
        self,
        experiment: Experiment,
        bench: Bench,
        context: MeasurementContext,
        *,
        goal: Goal,
        budget_s: float,
        sink: Sink,
        max_slowdown: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare to advise.

        Args:
            experiment: The experiment.
            bench: Executes measurements and trainings.
            context: The workers, and what is known before anything is measured.
            goal: The goal of the advice.
            budget_s: Seconds that finding the advice may take. A measurement that is running at
                the end is completed.
            sink: Receives the results that the bench does not store itself.
            max_slowdown: By what part a power limit may slow steps. None to measure no limits.
            clock: Returns seconds.
        """
        self._written, self._experiment = experiment, in_words_of_plans(experiment)
        self._bench, self._context = bench, context
        self._goal: Goal = goal
        self._budget_s, self._sink, self._clock = budget_s, sink, clock
        self._max_slowdown = max_slowdown
        self._began_s: float | None = None

    @property
    def is_late(self) -> bool:
        """Whether the time for the advice is up. Waiting for workers does not count."""
        return self._began_s is not None and self._clock() - self._began_s > self._budget_s

    def advise(self, *, with_race: bool = True) -> Advice:
        """Find the advice.

        Args:
            with_race: Whether to train candidates. Otherwise the models alone decide.

        Raises:
            ExperimentError: If no allowed plan fits or can be trained, or the goal cannot be
                measured.
        """
        began_s, context = self._clock(), self._context
        self._began_s = began_s
        measurer = PlanMeasurer(
            self._experiment,
            self._bench,
            context,
            self._budget_s,
            longest_s=_SURVEY_PART * self._budget_s,
            measures_power=self._goal == "energy",
            clock=self._clock,
        )
        if self._goal == "throughput":
            measurer.find_fastest_batches()
        measurer.measure_plans()
        time_closest_again(measurer, self._goal, context.noise_scale)
        plans = measurer.fastest_plans(self._goal, context.noise_scale)
        if measurer.compare_placements(plans):
            plans = measurer.fastest_plans(self._goal, context.noise_scale)
        contest = Confirmation(
            self._experiment,
            self._bench,
            measurer.choices,
            measurer.reference,
            measurer.knowledge,
            goal=self._goal,
            setting=context.setting,
            sink=self._sink,
            clock=self._clock,
            until_s=began_s + _LATEST * self._budget_s,
        )
        rates = race = None
        measured_s = rated_s = self._clock() - began_s
        if with_race and self._goal != "throughput" and measured_s < self._budget_s:
            rates = contest.test_rates(self._budget_s)
            rated_s = self._clock() - began_s
            race = contest.race(plans, rates, self._budget_s - rated_s)
        cost_s = self._clock() - began_s
        spent_s = {
            "measuring plans (a minimum set is always measured)": measured_s,
            "the test of learning rates": rated_s - measured_s,
            "trainings": cost_s - rated_s,
        }
        advice = conclude(
            Findings(
                experiment=self._experiment,
                goal=self._goal,
                choices=measurer.choices,
                knowledge=measurer.knowledge,
                reference=measurer.reference,
                plans=plans,
                rates=rates,
                race=race,
                noise_scale=contest.noise_scale or context.noise_scale,
                placement=measurer.placement,
                num_known=len(context.known),
                num_measured=measurer.num_measured,
                cost_s=cost_s,
                placements_s=measurer.placements_s,
                progress=contest.progress,
                spare_cores=context.spare_cores,
            )
        )
        advice = dataclasses.replace(advice, overrun=describe_overrun(spent_s, self._budget_s))
        if self._max_slowdown is not None:
            power = self._power_advice(advice.choice.plan, self._max_slowdown)
            advice = dataclasses.replace(advice, power=power)
        if self._written.advise is None:
            return advice
        return dataclasses.replace(advice, settings=own_settings(self._written, advice.settings))

    def _power_advice(self, plan: Plan, max_slowdown: float) -> PowerAdvice | None:
        """Measure the recommended plan under power limits."""
        order = PowerProbe(PartialPlan.of_plan(plan), setting=self._context.setting)
        params = drawn_params(self._experiment)
        return power_advice_of(self._bench.probe_power(plan.workers, order, params), max_slowdown)


def power_advice_of(measured: Sequence[PlanMeasured], max_slowdown: float) -> PowerAdvice | None:
    """Return the advised power limit, or None if nothing was measured under the present one.

    Args:
        measured: Measurements of one plan, of the present limit first.
        max_slowdown: By what part steps may take longer.
    """
    steps = [
        PowerStep(event.power_limit_w, event.step_time_s, event.power_w * event.step_time_s)
        for event in measured
        if event.power_limit_w and event.step_time_s and event.power_w
    ]
    return PowerAdvice.of(steps, max_slowdown) if steps else None


def describe_overrun(spent_s: Mapping[str, float], budget_s: float) -> str | None:
    """Return the time limit of advice and what took longest, or None if the limit was kept.

    Args:
        spent_s: Seconds, by activity.
        budget_s: The limit in seconds.
    """
    over_s = sum(spent_s.values()) - budget_s
    if over_s < _TOLERATED_S:
        return None
    longest = max(spent_s, key=lambda name: spent_s[name])
    return f"(limit {format_duration(budget_s)}), mostly for {longest}"
