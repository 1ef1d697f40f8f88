"""The plans of a run's trials, decided by the advisor and refined by what trials measure.

The speed of each plan of a setting is stored once as an event of the run, even if the advisor did
not decide here, because the next advice on that setting starts from it. `advisor.trial_speeds`
collects the speeds, and `sweep_advisor` compares plans.

A sweep starts at the configuration that earlier advice on the same training recommends. That covers
some of what it searches: the learning rate, the batch size and other parts of the plan. The parts
that trials leave open are decided in `sweep_advisor`.

Which configurations will not fit into memory is predicted before the first trial. The prediction is
stored as an event of the run, so a driver that takes over and a resumed run use the same one. The
study decides what the sampler does with it.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import JsonValue

from workbench.advisor.memory import memory_limit_bytes
from workbench.advisor.open_settings import base_params, drawn_params
from workbench.advisor.speed_history import earlier_runs, setting_of
from workbench.advisor.trial_speeds import AttemptSpeed
from workbench.cluster.workers.admission import capacity_of
from workbench.experiment import Experiment, Space
from workbench.experiment.domain import Choice, Domain, Fixed
from workbench.experiment.plan import PartialPlan
from workbench.experiment.searched_fields import data_option_of, is_setting
from workbench.experiment.space import Params
from workbench.experiment.trainings import is_private
from workbench.foundation.errors import WorkbenchError
from workbench.foundation.events import (
    AdviceGiven,
    MemoryPredicted,
    Noted,
    PlanMeasured,
    TrialEnqueued,
)
from workbench.foundation.formatting import format_bytes
from workbench.hardware.performance.memory import MARGIN
from workbench.hardware.resources import ClusterInventory, cluster_inventory
from workbench.store.database import Store
from workbench.sweeps.ledger import Ledger
from workbench.sweeps.sweep_advisor import AdvisedPlans, is_long, measure_before_trials
from workbench.sweeps.trial_resources import Share, share_of
from workbench.training.planning.own_code import in_words_of_plans
from workbench.training.planning.settings import fitted_of
from workbench.training.planning.typical_configurations import configurations_to_try
from workbench.training.probes.memory_estimate import estimate_peaks

_NUM_DRAWN = 24
_DECIDING = frozenset(
    {"global_batch", "micro_batch", "accumulation", "optimizer", "precision", "recompute"}
)
"""Settings that change how much memory a training needs. The model's parameters may also do so."""


class TrialPlans:
    """Decides what is left open in the plans of one run's trials, and learns from the trials."""

    def __init__(self, store: Store, ledger: Ledger) -> None:
        """Decide nothing yet: the experiment's settings and defaults are in force.

        Args:
            store: The store that holds the run, and earlier measurements.
            ledger: The events of the run. Measurements are added to them.
        """
        self._store, self._ledger = store, ledger
        self._advised: AdvisedPlans | None = None
        self._cluster: ClusterInventory | None = None
        self._known: set[str] = set()

    def begin(self, poll: Callable[[], None]) -> bool:
        """Let the advisor decide what plans leave open if it should, and return whether it did.

        The first configuration is what earlier advice recommends, if there is any.

        Args:
            poll: Called about once a second while something is measured. Its errors end the
                measurement.
        """
        self._advised = measure_before_trials(self._store, self._ledger, poll)
        begin_with_advice(self._store, self._ledger, cluster_inventory)
        return self._advised is not None

    def share(self, experiment: Experiment) -> Share:
        """Decide what the run uses of the cluster now. The advice fills in what is left open.

        Args:
            experiment: The experiment with the settings that are in force.

        Raises:
            ResourcesError: If the cluster could not hold one trial even when empty.
        """
        run_id = self._ledger.run_id
        if self._advised is None:
            return share_of(run_id, experiment)
        workers, placement = self._advised.workers, self._advised.placement
        return share_of(run_id, experiment, advised_workers=workers, advised_placement=placement)

    def plan_for(self, params: Mapping[str, JsonValue]) -> PartialPlan:
        """Return the part of a trial's plan that the advisor decided, given its configuration."""
        if self._advised is None:
            return PartialPlan()
        return self._advised.plan_for(params)

    def record_speeds(self) -> None:
        """Store the speeds of attempts that have ended, and learn from them."""
        experiment = self._ledger.experiment
        # Rounds of a federation say nothing about the steps of other trainings.
        makes_shared_steps = experiment.trained is not None and experiment.federated is None
        for speed in self._ledger.speeds.take_measured():
            if makes_shared_steps:
                self._record(speed)

    def _record(self, speed: AttemptSpeed) -> None:
        if self._cluster is None:
            self._cluster = cluster_inventory()
            earlier = self._store.events(self._ledger.run_id, types=["plan_measured"])
            self._known = {
                _key(stored.event) for stored in earlier if isinstance(stored.event, PlanMeasured)
            }
        experiment = self._ledger.experiment
        params = self._ledger.history.trials[speed.trial].params
        shape = capacity_of(experiment, self._cluster).shape
        measured = PlanMeasured(
            setting=setting_of(experiment, params, shape, self._cluster),
            plan=speed.plan.to_json(),
            by_trial=speed.trial,
            beside_others=speed.beside_others,
            workers_per_node=list(speed.workers_per_node),
            # A fidelity trains on a part of the samples.
            num_train_samples=speed.num_train_samples if experiment.fidelity is None else None,
            step_time_s=speed.plan.global_batch / speed.samples_per_s,
            samples_per_s=speed.samples_per_s,
        )
        if _key(measured) in self._known:
            return
        self._known.add(_key(measured))
        self._ledger.record(measured)
        if self._advised is None:
            return
        changed = self._advised.learn(measured)
        if changed is not None:
            self._ledger.record(Noted(level="info", message=changed))


def _key(measured: PlanMeasured) -> str:
    return json.dumps([measured.setting, measured.plan, measured.by_trial is None], sort_keys=True)


def begin_with_advice(
    store: Store, ledger: Ledger, cluster: Callable[[], ClusterInventory]
) -> None:
    """Enqueue the configuration that the latest advice recommends, unless the run has trials.

    Only the sampler `auto` starts with it, and only if `resources.advice` is not `never`.

    Args:
        store: The store that holds earlier runs.
        ledger: The events of the run, to which the configuration is added.
        cluster: Returns the hardware. It is called only if there is advice.
    """
    experiment, history, study = ledger.experiment, ledger.history, ledger.study
    if history.trials or history.replay_of is not None or study.num_enqueued:
        return
    if experiment.sampler.name != "auto" or experiment.resources.advice == "never":
        return
    enqueued = advised_configuration(store, experiment, cluster, except_run=ledger.run_id)
    if enqueued is not None:
        study.enqueue(enqueued.params)
        ledger.record(enqueued)


def advised_configuration(
    store: Store,
    experiment: Experiment,
    cluster: Callable[[], ClusterInventory],
    *,
    except_run: str,
) -> TrialEnqueued | None:
    """Return the configuration that the latest advice on the same training and hardware recommends.

    Parameters that the advice does not cover keep the value of the trainings that it measured, or
    the value of the user's prior. Values outside the space are replaced by the nearest ones inside.

    Args:
        store: The store that holds earlier runs.
        experiment: What is to be tuned.
        cluster: Returns the hardware.
        except_run: A run to ignore.

    Returns:
        The configuration, or None if no advice decides anything that is searched.
    """
    if experiment.trained is None:
        return None
    search = experiment.search.root
    searched = {name for name, domain in search.items() if not isinstance(domain, Fixed)}
    for run_id, advice in earlier_runs(store, ["advice_given"], except_run=except_run):
        values = _values(advice[-1]) if advice else {}
        advised = {name: value for name, value in values.items() if name in searched}
        if not advised:
            continue
        try:
            earlier = store.experiment(run_id)
        except WorkbenchError:  # of another version, or damaged
            continue
        if not _is_measured_here(store, run_id, earlier, experiment, cluster()):
            continue
        believed = {
            name: domain.belief.near
            for name, domain in search.items()
            if not isinstance(domain, Fixed) and domain.belief is not None
        }
        rng = random.Random(experiment.seed)
        wanted = drawn_params(experiment) | drawn_params(earlier) | believed | advised
        params = _placed(experiment.search, wanted, rng)
        chosen = {name: value for name, value in advised.items() if name in params}
        return TrialEnqueued(params=params, advice_run_id=run_id, advised=chosen)
    return None


def _values(advice_given: Any) -> dict[str, JsonValue]:
    """Return what advice recommends, by the names of parameters."""
    assert isinstance(advice_given, AdviceGiven)
    settings: Any = advice_given.advice.get("settings") or {}
    return {path.partition(".")[2]: value for path, value in settings.items()}


def _is_measured_here(
    store: Store,
    run_id: str,
    earlier: Experiment,
    experiment: Experiment,
    cluster: ClusterInventory,
) -> bool:
    """Return whether a run measured steps of the model, data and hardware of an experiment."""
    params, shape = base_params(in_words_of_plans(earlier)), capacity_of(experiment, cluster).shape
    setting = setting_of(experiment, params, shape, cluster)
    measured = (stored.event for stored in store.events(run_id, types=["plan_measured"]))
    return any(isinstance(event, PlanMeasured) and event.setting == setting for event in measured)


def _placed(space: Space, wanted: Mapping[str, JsonValue], rng: random.Random) -> Params:
    """Return the configuration that is nearest to some values, drawing those that are missing."""
    placed: Params = {}
    for name in space.order():
        if space.exists(name, placed):
            domain = space.root[name]
            placed[name] = _nearest(domain, wanted.get(name), rng)
    return placed


def _nearest(domain: Domain, value: Any, rng: random.Random) -> JsonValue:
    """Return the value of a domain that is nearest to a number, or draw one."""
    if domain.contains(value):
        return value
    if isinstance(domain, Fixed) or isinstance(value, bool) or not isinstance(value, int | float):
        return domain.sample(rng)
    if isinstance(domain, Choice):
        numbers = [choice for choice in domain.choices if isinstance(choice, int | float)]
        return min(numbers, key=lambda number: abs(number - value), default=domain.sample(rng))
    if (values := domain.values()) is None:
        return min(max(float(value), domain.low), domain.high)
    place = round((value - domain.low) / (domain.step or 1))
    return values[min(max(place, 0), len(values) - 1)]


def predict_memory(ledger: Ledger, plans: TrialPlans) -> None:
    """Record how much memory configurations would need, if some of them may not fit.

    Args:
        ledger: The events of the run, to which the prediction is added.
        plans: The parts of the trials' plans that the advisor decided.
    """
    experiment, cluster = ledger.history.in_force, cluster_inventory()
    capacity = capacity_of(experiment, cluster)
    if ledger.history.trials or not _is_wanted(experiment, on_gpu=capacity.shape.gpus > 0):
        return
    total_bytes = memory_limit_bytes(experiment, capacity, cluster)
    if total_bytes is None:
        return
    limit_bytes = (1.0 - MARGIN) * total_bytes

    rng = random.Random(experiment.seed)
    extremes = [params for _, params in configurations_to_try(experiment)]
    drawn = (experiment.search.sample(rng) for _ in range(_NUM_DRAWN))
    trials = [
        (params, plans.plan_for(params))
        for params in (*extremes, *drawn)
        if fitted_of(experiment, params) is None
    ]
    try:
        peaks = estimate_peaks(experiment, trials, num_first=len(extremes), limit_bytes=limit_bytes)
    except WorkbenchError as error:
        ledger.record(Noted(level="info", message=f"memory could not be predicted: {error}"))
        return
    estimates = [
        (params, peak) for (params, _), peak in zip(trials, peaks, strict=False) if peak is not None
    ]
    if all(peak <= limit_bytes for _, peak in estimates):
        return
    least = min(peak for _, peak in estimates)
    predicted = MemoryPredicted(limit_bytes=int(limit_bytes), peaks=estimates)
    ledger.study.apply(predicted)
    ledger.record(
        predicted,
        Noted(
            level="info",
            message=(
                f"configurations need {format_bytes(least)} to"
                f" {format_bytes(max(peak for _, peak in estimates))} of memory, as predicted."
                f" Those that do not fit into {format_bytes(int(limit_bytes))} are avoided"
            ),
        ),
    )


def _is_wanted(experiment: Experiment, *, on_gpu: bool) -> bool:
    if not experiment.sampler.kind.avoids_too_large or experiment.resources.advice == "never":
        return False
    if not experiment.trains_model or is_private(experiment) or experiment.federated is not None:
        return False
    return (on_gpu or is_long(experiment)) and any(
        name in _DECIDING or not is_setting(name) or data_option_of(name) is not None
        for name in experiment.search.root
    )
