"""Measure before the first trial of a sweep, and decide what its plans leave open.

Trials keep their global batch and learning rate. The measured steps decide how a step is divided,
on how many workers, and whether more workers per trial or more concurrent trials are faster.
Everything is stored as events of the run, so a driver that takes over knows it. The study proposes
the configurations.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import JsonValue

from workbench.advisor.advice_from_findings import Findings, conclude
from workbench.advisor.open_settings import Choices, choices_of, drawn_params, is_open
from workbench.advisor.plan_measurement import MeasurementContext, PlanMeasurer
from workbench.advisor.plans import Knowledge, enumerate_plans
from workbench.advisor.recommend import bench_for, measurement_context_of
from workbench.advisor.retiming import time_closest_again
from workbench.advisor.speed_history import hardware_of
from workbench.advisor.stored_advice import Estimate
from workbench.cluster.workers.admission import Placement
from workbench.experiment import Experiment
from workbench.experiment.plan import NAMES as PLAN_DIMENSIONS
from workbench.experiment.plan import PartialPlan, Plan
from workbench.experiment.trainings import is_private
from workbench.foundation.errors import WorkbenchError
from workbench.foundation.events import AdviceGiven, Noted, PlanMeasured
from workbench.foundation.formatting import format_count
from workbench.store.database import Store
from workbench.sweeps.forecast import forecast_of, num_epochs_of
from workbench.sweeps.ledger import Ledger
from workbench.training.planning.settings import fitted_of, resolve

LONG_RUN_S = 600.0
"""`resources.advice: auto` measures from this budget on: below, measuring does not pay off."""
_MAX_MEASURING_S = 60.0
_PART = 0.05
_SAME = 0.03
# If steps take longer by this factor in trials than alone, a note says so.
_EXPECTED = 1.3


class AdvisedPlans:
    """The plans of a sweep's trials, from what was measured before the first of them."""

    def __init__(
        self,
        experiment: Experiment,
        choices: Choices,
        knowledge: Knowledge,
        num_train_samples: int,
        workers: int,
    ) -> None:
        """Decide from measurements.

        Args:
            experiment: The experiment of the sweep.
            choices: What may be chosen.
            knowledge: The measurements.
            num_train_samples: Number of training samples.
            workers: Number of workers per trial.
        """
        self._experiment, self._choices, self._knowledge = experiment, choices, knowledge
        self._num_train_samples = num_train_samples
        self.workers = workers

    @property
    def placement(self) -> Placement:
        """Whether the workers of a trial are packed on few nodes or spread over many."""
        return self._knowledge.placement

    def power_w(self, plan: Plan) -> float | None:
        """Return the power of all workers of a plan, or None if no measurement was metered."""
        return self._knowledge.power_w(plan)

    def learn(self, measured: PlanMeasured) -> str | None:
        """Use the measured speed of a trial for the plans of later ones.

        Returns:
            What changes, as a sentence, or None if nothing does.
        """
        if all(earlier.setting != measured.setting for earlier in self._knowledge.measured):
            return None
        before, slower_before = self.fastest(self._choices.params), self._knowledge.slowdown
        self._knowledge = self._knowledge.with_more(measured)
        after, slower = self.fastest(self._choices.params), self._knowledge.slowdown
        if before is None or after is None:
            return None
        if after[0] != before[0]:
            now, until_now = after[0].batch_text, before[0].batch_text
            return (
                f"the next trials train as {now} instead of {until_now}, which is faster as"
                " measured in trials"
            )
        if slower is not None and not 1 / _EXPECTED < slower / (slower_before or 1.0) < _EXPECTED:
            return (
                f"steps take {slower:.2f} times as long in trials as alone, so the run may take"
                " longer"
            )
        return None

    def plan_for(self, params: Mapping[str, JsonValue]) -> PartialPlan:
        """Return the part of a trial's plan that the experiment and its search leave open.

        Args:
            params: The configuration of the trial.
        """
        decided = PartialPlan.of(workers=1)
        if fitted_of(self._experiment, params) is None and (fastest := self.fastest(params)):
            decided = PartialPlan.of_plan(fastest[0])
        return decided.only(
            [name for name in PLAN_DIMENSIONS if _is_open(self._experiment, params, name)]
        )

    def fastest(self, params: Mapping[str, JsonValue]) -> tuple[Plan, Estimate] | None:
        """Return the fastest plan for a configuration's global batch, and its step time."""
        workers = self.workers if _is_open(self._experiment, params, "workers") else None
        try:
            batch = _global_batch(self._experiment, params, self._num_train_samples, workers)
        except WorkbenchError:  # the trial will fail with this error and report it
            return None
        plans = _plans_of(self._choices, self._knowledge, batch, workers)
        timed = list(zip(plans, self._knowledge.step_times(plans), strict=True))
        return min(timed, key=lambda plan: (plan[1].value, plan[0].accumulation), default=None)


def measure_before_trials(
    store: Store, ledger: Ledger, poll: Callable[[], None]
) -> AdvisedPlans | None:
    """Measure plans before the first trial of a run, if that is requested and pays off.

    Args:
        store: The store that holds the run, and earlier measurements.
        ledger: The events of the run, to which the measurements are added.
        poll: Called about once a second while something is measured. Its errors end the
            measurement.

    Returns:
        The plans, or None if defaults are used.
    """
    experiment = ledger.experiment
    if not is_wanted(experiment):
        return None
    if ledger.history.trials:
        return read_advised_plans(store, ledger)
    question, budget_s = _question(experiment), experiment.budget.time
    measuring_s = _MAX_MEASURING_S
    if budget_s is not None:
        measuring_s = min(_MAX_MEASURING_S, _PART * budget_s)
    around = measurement_context_of(store, question)
    num_places = around.capacity.num_workers
    bench = bench_for(store, ledger.run_id, question, around, sink=ledger.record, poll=poll)
    began_s = bench.clock_s()
    try:
        measurer = PlanMeasurer(question, bench, around, measuring_s, clock=bench.clock_s)
        measurer.measure_plans()
        time_closest_again(measurer, "time", around.noise_scale)
        usual = measurer.fastest_plans("time", around.noise_scale)
    except WorkbenchError as error:
        ledger.record(
            Noted(level="warning", message=f"measuring failed, so defaults are used: {error}")
        )
        return None
    choices, knowledge = measurer.choices, measurer.knowledge
    samples = measurer.reference.num_train_samples or 0
    workers, compared = split_workers(experiment, choices, knowledge, samples, num_places)
    plans = AdvisedPlans(experiment, choices, knowledge, samples, workers)
    fastest = plans.fastest(choices.params)
    if (
        fastest is not None
        and not fills(experiment, fastest[0].workers, num_places)
        and measurer.compare_placements([fastest[0]])
    ):
        plans = AdvisedPlans(experiment, choices, measurer.knowledge, samples, workers)
        fastest = plans.fastest(choices.params)
    advice = conclude(
        Findings(
            experiment=question,
            goal="time",
            choices=choices,
            knowledge=measurer.knowledge,
            reference=measurer.reference,
            plans=usual if fastest is None else [fastest[0]],
            rates=None,
            race=None,
            noise_scale=around.noise_scale,
            placement=measurer.placement,
            num_known=len(around.known),
            num_measured=measurer.num_measured,
            cost_s=bench.clock_s() - began_s,
            placements_s=measurer.placements_s,
            spare_cores=around.spare_cores,
        )
    )
    decided = plans.plan_for({})
    advice = dataclasses.replace(
        advice,
        measured=(*advice.measured, *compared),
        settings={f"plan.{name}": value for name, value in decided.applicable().values}
        | ({"resources.placement": measurer.placement} if measurer.placements_s else {}),
    )
    forecast = _describe_forecast(
        experiment, plans, samples, around, measurer.reference.state_bytes
    )
    ledger.record(AdviceGiven(advice=advice.to_json()), Noted(level="info", message=forecast))
    return plans


def read_advised_plans(store: Store, ledger: Ledger) -> AdvisedPlans | None:
    """Return the plans that an earlier driver of the run has measured, or None."""
    given = [item.event for item in store.events(ledger.run_id, types=["advice_given"])]
    advice = next(
        (event.advice for event in reversed(given) if isinstance(event, AdviceGiven)), None
    )
    question = _question(ledger.experiment)
    around = measurement_context_of(store, question)
    measured = around.known
    if advice is None or not measured:
        return None
    samples = next((plan.num_train_samples for plan in measured if plan.num_train_samples), 0)
    choices = choices_of(
        question,
        num_train_samples=samples,
        max_workers=around.capacity.num_workers,
        hardware=dataclasses.replace(
            hardware_of(measured, has_gpu=around.on_gpu),
            has_full_nodes=around.capacity.has_full_nodes,
        ),
    )
    settings: Any = advice["settings"]
    if settings.get("plan.loaders"):
        options = {**choices.options, "loaders": (0, settings["plan.loaders"])}
        choices = dataclasses.replace(choices, options=options)
    knowledge = Knowledge(
        measured,
        around.capacity.workers_per_node,
        placement=settings.get("resources.placement", "pack"),
        limit_bytes=around.limit_bytes,
    )
    workers = settings.get("plan.workers", 1)
    return AdvisedPlans(ledger.experiment, choices, knowledge, samples, workers)


def is_wanted(experiment: Experiment) -> bool:
    """Return whether the plans of an experiment should be measured before its first trial."""
    wish, resources = experiment.resources.advice, experiment.resources
    if wish == "never" or not experiment.trains_model or resources.elastic or resources.autoscaling:
        return False
    if is_private(experiment) or experiment.federated is not None:
        return False
    if fitted_of(experiment, drawn_params(experiment)) is not None:
        return False
    is_open = any(_is_open(experiment, {}, name) for name in PLAN_DIMENSIONS)
    return is_open and (wish == "always" or is_long(experiment))


def is_long(experiment: Experiment) -> bool:
    """Return whether measuring takes little of an experiment's time budget."""
    return experiment.budget.time is not None and experiment.budget.time >= LONG_RUN_S


def _is_open(experiment: Experiment, params: Mapping[str, JsonValue], name: str) -> bool:
    return name not in params and is_open(experiment, name)


def _question(experiment: Experiment) -> Experiment:
    """Return the experiment with an explicit global batch, because a sweep keeps the usual one."""
    if experiment.training.global_batch != "auto" or "global_batch" in experiment.search.root:
        return experiment
    if experiment.plan.decided.micro_batch is not None or "micro_batch" in experiment.search.root:
        return experiment
    return experiment.replace(training={"global_batch": experiment.training.reference_batch})


def _global_batch(
    experiment: Experiment,
    params: Mapping[str, JsonValue],
    num_train_samples: int,
    workers: int | None,
) -> int:
    decided = PartialPlan.of(workers=workers)
    return resolve(
        experiment, params, num_train_samples=num_train_samples, decided=decided
    ).plan.global_batch


def _plans_of(
    choices: Choices, knowledge: Knowledge, batch: int, workers: int | None
) -> list[Plan]:
    allowed = [variant for variant in knowledge.variants if choices.allows(variant)]
    narrowed = dataclasses.replace(
        choices, global_batches=(batch,), workers=choices.workers if workers is None else (workers,)
    )
    return list(enumerate_plans(narrowed, allowed, knowledge))


def split_workers(
    experiment: Experiment,
    choices: Choices,
    knowledge: Knowledge,
    num_train_samples: int,
    num_places: int,
) -> tuple[int, list[str]]:
    """Decide between more workers per trial and more trials at once, by how long the run takes.

    Returns:
        Number of workers per trial, and the compared options as text.
    """
    if not _is_open(experiment, {}, "workers"):
        return 1, []
    trials = experiment.max_configurations()
    most = experiment.resources.concurrency
    finish_s: dict[int, float] = {}
    for workers in choices.workers:
        plans = AdvisedPlans(experiment, choices, knowledge, num_train_samples, workers)
        fastest = plans.fastest(choices.params)
        at_once = num_places // workers if most == "auto" else min(most, num_places // workers)
        if fastest is None or at_once == 0:
            continue
        rounds = (
            1.0 / at_once if trials is None else math.ceil(trials * experiment.repeats / at_once)
        )
        plan, step_s = fastest
        finish_s[workers] = rounds * step_s.value / plan.global_batch
    if not finish_s:
        return 1, []
    best = min(
        sorted(finish_s), key=lambda workers: finish_s[workers] * (1.0 + _SAME * (workers > 1))
    )
    compared = [
        f"{format_count(workers, 'worker')} per trial: {time_s / finish_s[best]:.2f} times the time"
        for workers, time_s in sorted(finish_s.items())
    ]
    return best, compared


def fills(experiment: Experiment, workers: int, num_places: int) -> bool:
    """Return whether trials leave no worker idle: spreading one takes workers from others.

    Args:
        experiment: The experiment.
        workers: Number of workers per trial.
        num_places: Number of workers that the cluster can hold.
    """
    at_once, trials = experiment.resources.concurrency, experiment.max_configurations()
    most = num_places if at_once == "auto" else at_once
    if trials is not None:
        most = min(most, trials * experiment.repeats)
    return workers == 1 or most * workers >= num_places


def _describe_forecast(
    experiment: Experiment,
    plans: AdvisedPlans,
    num_train_samples: int,
    around: MeasurementContext,
    state_bytes: int | None,
) -> str:
    """Describe how long the run should take, what it uses, and which limit ends it."""
    fastest = plans.fastest(drawn_params(experiment))
    if fastest is None:
        return "no plan for the usual global batch fits into memory, so trials use defaults"
    plan, step_s = fastest
    forecast = forecast_of(
        experiment,
        plan,
        step_s,
        num_epochs=num_epochs_of(experiment),
        num_train_samples=num_train_samples,
        num_places=around.capacity.num_workers,
        on_gpu=around.on_gpu,
        state_bytes=state_bytes,
        power_w=plans.power_w(plan),
    )
    return str(forecast)
