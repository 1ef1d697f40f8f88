"""The plans of a run's trials: answered before the first by the advisor, refined by what trials show.

How fast a plan trained is an event of the run, once for every plan of a setting, whether or not the advisor
answers here: the next advice on that setting begins with it. Comparing plans is left to `advising`.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from workbench.advisor.choices import DECIDED
from workbench.advisor.measurements import setting_of
from workbench.events import Event, Noted, PlanMeasured, TrialPlanned, TrialReported, TrialStarted
from workbench.experiment import Experiment
from workbench.history import Trial
from workbench.resources import ClusterInventory, cluster_inventory
from workbench.store import Store
from workbench.sweeps.advising import AdvisedPlans, measure_before_trials
from workbench.sweeps.cluster import Share, share_of
from workbench.sweeps.ledger import Ledger
from workbench.workers.capacity import capacity_of

_FEWEST_SPEEDS = 3


class TrialPlans:
    """Decides what is open of the plans of one run's trials, and learns from them."""

    def __init__(self, store: Store, ledger: Ledger) -> None:
        """Decide nothing yet: what the experiment says, or its defaults, is in force.

        Args:
            store: The store that holds the run, and earlier measurements.
            ledger: The events of the run, to which what is found is added.
        """
        self._store, self._ledger = store, ledger
        self._advised: AdvisedPlans | None = None
        self._cluster: ClusterInventory | None = None
        self._speeds: dict[int, list[float]] = {}
        self._nodes: dict[int, Sequence[str]] = {}
        self._known: set[str] = set()

    def begin(self) -> bool:
        """Have the advisor answer what plans leave open, where that is wanted; return whether it did."""
        self._advised = measure_before_trials(self._store, self._ledger)
        return self._advised is not None

    def share(self, experiment: Experiment) -> Share:
        """Decide what the run uses of the cluster now; what was advised answers what is left open.

        Args:
            experiment: As it is in force.

        Raises:
            ResourcesError: If the cluster could not hold one trial even when empty.
        """
        run_id = self._ledger.run_id
        if self._advised is None:
            return share_of(run_id, experiment)
        workers, placement = self._advised.workers, self._advised.placement
        return share_of(run_id, experiment, advised_workers=workers, advised_placement=placement)

    def plan_for(self, params: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Return what is decided of the plan of a trial with a configuration."""
        return {} if self._advised is None else self._advised.plan_for(params)

    def hear(self, number: int, events: Sequence[Event]) -> None:
        """Take in what a trial reported, and keep how fast its plan was once the trial has ended."""
        if self._ledger.experiment.model is None:
            return
        for event in events:
            match event:
                case TrialStarted():
                    self._nodes[number] = event.nodes
                case TrialPlanned():
                    self._speeds[number] = []
                case TrialReported(samples_per_s=float(speed), told_again=False) if speed > 0:
                    self._speeds.setdefault(number, []).append(speed)
                case _:
                    pass
        trial = self._ledger.history.trials[number]
        if trial.finished:
            # The first also tells of first calls and of reading a checkpoint.
            speeds = self._speeds.pop(number, [])[1:]
            if len(speeds) >= _FEWEST_SPEEDS and "global_batch" in trial.plan:
                self._keep(trial, statistics.median(speeds), self._nodes.pop(number, ()))

    def _keep(self, trial: Trial, samples_per_s: float, nodes: Sequence[str]) -> None:
        experiment, batch = self._ledger.experiment, trial.plan["global_batch"]
        assert isinstance(batch, int)
        if self._cluster is None:
            self._cluster = cluster_inventory()
            earlier = self._store.events(self._ledger.run_id, types=["plan_measured"])
            self._known = {_key(each.event) for each in earlier if isinstance(each.event, PlanMeasured)}
        others = {name: value for name, value in trial.params.items() if name not in DECIDED}
        measured = PlanMeasured(
            setting=setting_of(
                experiment, others, capacity_of(experiment, self._cluster).shape, self._cluster
            ),
            plan=dict(trial.plan),
            by_trial=trial.number,
            workers_per_node=sorted(Counter(nodes).values()),
            step_time_s=batch / samples_per_s,
            samples_per_s=samples_per_s,
        )
        if _key(measured) in self._known:
            return
        self._known.add(_key(measured))
        self._ledger.record(measured)
        changed = None if self._advised is None else self._advised.learn(measured)
        if changed is not None:
            self._ledger.record(Noted(level="info", message=changed))


def _key(measured: PlanMeasured) -> str:
    return json.dumps([measured.setting, measured.plan, measured.by_trial is None], sort_keys=True)
