"""The plans of a run's trials, decided by the advisor and refined by what trials measure.

The speed of each plan of a setting is stored once as an event of the run, even if the advisor did
not decide here, because the next advice on that setting starts from it. `advisor.trial_speeds`
collects the speeds, and `sweep_advisor` compares plans.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from pydantic import JsonValue

from workbench.advisor.speed_history import setting_of
from workbench.advisor.trial_speeds import AttemptSpeed
from workbench.cluster.workers.capacity import capacity_of
from workbench.experiment import Experiment
from workbench.experiment.plan import PartialPlan
from workbench.foundation.events import Noted, PlanMeasured
from workbench.hardware.resources import ClusterInventory, cluster_inventory
from workbench.store.database import Store
from workbench.sweeps.advised_start import begin_with_advice
from workbench.sweeps.cluster import Share, share_of
from workbench.sweeps.ledger import Ledger
from workbench.sweeps.sweep_advisor import AdvisedPlans, measure_before_trials


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
