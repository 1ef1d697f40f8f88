"""From an experiment to an advice: measure plans, predict the others, try the best beside each other.

The order is that of cost: steps are measured in seconds and predicted for every plan (`survey`); what will
not fit is dropped; only the few plans that the models believe in, and the rates that no model knows, are
trained, under a budget of time (`contest`). What is said in the end is put together in `verdict`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from workbench.advisor.advice import Advice, Goal
from workbench.advisor.bench import Bench
from workbench.advisor.choices import base_params, check_advisable
from workbench.advisor.contest import Contest
from workbench.advisor.measurements import read_measurements, read_noise_scale, setting_of
from workbench.advisor.survey import Surroundings, Survey
from workbench.advisor.verdict import Findings, conclude
from workbench.errors import WorkbenchError
from workbench.events import Sink
from workbench.experiment import Experiment
from workbench.performance.memory import MemoryLaw, fit_law
from workbench.resources import cluster_inventory, inventory
from workbench.store import Store
from workbench.training.memory_estimate import estimate_memory
from workbench.workers.capacity import capacity_of
from workbench.workers.origin import Origin

_ESTIMATED_BATCHES = (8, 16)
# Of the time for an advice, how much may go into measuring more plans than have to be, so that there is
# time left for trainings.
_SURVEY_PART = 0.25


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
    around = surroundings_of(store, run_id, experiment)
    bench = bench_for(store, run_id, experiment, around, sink)
    return Advisor(experiment, bench, around, goal=objective, budget_s=budget_s, sink=sink)


def surroundings_of(store: Store, run_id: str, experiment: Experiment) -> Surroundings:
    """Look at the cluster that this process is attached to, and at what was measured on it before.

    Args:
        store: The store with earlier measurements.
        run_id: The run that asks; its own trainings say nothing of the noise yet.
        experiment: What is to be trained.
    """
    cluster = cluster_inventory()
    capacity = capacity_of(experiment, cluster)
    setting = setting_of(experiment, base_params(experiment), capacity.shape, cluster)
    on_gpu = capacity.shape.gpus > 0
    gpus = inventory().gpus if on_gpu else ()
    limits_bytes = [gpu.memory_bytes * min(capacity.shape.gpus, 1.0) for gpu in gpus]
    if not on_gpu:
        limits_bytes = [
            node.memory_bytes / count
            for node, count in zip(cluster.nodes, capacity.workers_per_node, strict=True)
            if count > 0
        ]
    return Surroundings(
        capacity, on_gpu, min(limits_bytes, default=None), setting,
        known=tuple(read_measurements(store, setting)), noise_scale=read_noise_scale(store, experiment),
        estimated=_estimated(experiment) if on_gpu else None,
    )  # fmt: skip


def _estimated(experiment: Experiment) -> MemoryLaw | None:
    """Estimate the memory of a worker from shapes, so that no probe begins far beyond what fits."""
    try:
        batches = _ESTIMATED_BATCHES
        return fit_law(estimate_memory(experiment, base_params(experiment), batches, plan={"workers": 1}))
    except WorkbenchError:  # the model looks at values: probes alone will tell
        return None


def bench_for(store: Store, run_id: str, experiment: Experiment, around: Surroundings, sink: Sink) -> Bench:
    """Return a place to measure an experiment on; arguments as in `surroundings_of` and `Bench`."""
    return Bench(
        run_id, experiment, store.artifacts_of(run_id),
        capacity=around.capacity, origin=Origin.here(), sink=sink,
    )  # fmt: skip


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
        """
        self._experiment, self._bench, self._around = experiment, bench, around
        self._goal: Goal = goal
        self._budget_s, self._sink, self._clock = budget_s, sink, clock

    def advise(self, *, with_race: bool = True) -> Advice:
        """Find the advice.

        Args:
            with_race: Whether to train candidates; without, the models alone decide.

        Raises:
            ExperimentError: If nothing that is allowed fits or can be trained, or nothing measures the goal.
        """
        began_s, around = self._clock(), self._around
        survey = Survey(
            self._experiment, self._bench, around, self._budget_s,
            longest_s=_SURVEY_PART * self._budget_s, measures_power=self._goal == "energy", clock=self._clock,
        )  # fmt: skip
        if self._goal == "throughput":
            survey.find_fastest_batches()
        survey.measure_plans()
        plans = survey.fastest_plans(self._goal, around.noise_scale)
        if survey.compare_placements(plans):
            plans = survey.fastest_plans(self._goal, around.noise_scale)
        contest = Contest(
            self._experiment, self._bench, survey.choices, survey.reference, survey.knowledge,
            goal=self._goal, setting=around.setting, sink=self._sink, clock=self._clock,
        )  # fmt: skip
        rates = race = None
        if with_race and self._goal != "throughput":
            rates = contest.test_rates(self._budget_s)
            race = contest.race(plans, rates, self._budget_s - (self._clock() - began_s))
        return conclude(
            Findings(
                experiment=self._experiment,
                goal=self._goal,
                choices=survey.choices,
                knowledge=survey.knowledge,
                reference=survey.reference,
                plans=plans,
                rates=rates,
                race=race,
                noise_scale=contest.noise_scale or around.noise_scale,
                placement=survey.placement,
                num_known=len(around.known),
                num_measured=survey.num_measured,
                cost_s=self._clock() - began_s,
                placements_s=survey.placements_s,
            )
        )
