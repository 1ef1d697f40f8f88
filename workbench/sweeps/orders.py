"""Write the orders of a run: everything that a coordinator needs to start a trial.

The driver decides which trial is next, and when.
"""

from __future__ import annotations

import dataclasses

from workbench.cluster.workers.admission import Request
from workbench.foundation.artifacts import Artifacts
from workbench.store.database.run_files import trial_folder
from workbench.store.history import Trial
from workbench.sweeps.cluster import known_plan
from workbench.sweeps.coordinator import Order
from workbench.sweeps.ledger import Ledger
from workbench.sweeps.program import Program
from workbench.sweeps.run_alerts import Alerting
from workbench.sweeps.trial_plans import TrialPlans
from workbench.training.planning.equivalent_plans import changeable_ways
from workbench.training.task import TrialTask


class Orders:
    """Writes the orders of one run."""

    def __init__(
        self,
        ledger: Ledger,
        artifacts: Artifacts,
        plans: TrialPlans,
        alerting: Alerting,
        program: Program,
    ) -> None:
        """Prepare to write orders.

        Args:
            ledger: The run's events, experiment and alerts.
            artifacts: The place of the run's files.
            plans: Decides the parts of a plan that the experiment leaves open.
            alerting: Knows which nodes are excluded by rules.
            program: Knows which version of the code a trial runs.
        """
        self._ledger = ledger
        self._artifacts = artifacts
        self._plans = plans
        self._alerting = alerting
        self._program = program
        self._written: tuple[object, str] | None = None

    def order(self, trial: Trial, request: Request) -> Order:
        """Return the order that starts the next attempt of a trial.

        Args:
            trial: The trial.
            request: The workers that each trial leases.
        """
        experiment, settings = self._ledger.experiment, self._ledger.experiment.resources
        decided = self._plans.plan_for(trial.params) | trial.decided_plan
        task = TrialTask(
            run_id=self._ledger.run_id,
            trial=trial.number,
            attempt=trial.attempts,
            experiment_json=self._experiment_json(),
            objects=self._artifacts.below("objects").url if experiment.payload_hashes() else None,
            params=dict(trial.params),
            seed=trial.seed,
            folder=self._artifacts.below(trial_folder(trial.number)).url,
            resume=True,
            plan=decided,
            patterns=self._ledger.alerts.patterns,
        )
        before = trial.resumes
        if trial.segment is not None:
            before = trial.segment.continues
        if experiment.fidelity is not None and not experiment.continues_levels:
            before = None
        if trial.segment is not None or before is not None:
            continued = None
            if before is not None:
                continued = self._artifacts.below(trial_folder(before)).url
            task = dataclasses.replace(task, segment=trial.segment, continued=continued)
        limit_s, version = settings.trial_time, self._program.version_of(trial)
        plan = known_plan(experiment, trial.params, decided)
        return Order(
            task=task,
            request=self._alerting.allowed(
                dataclasses.replace(request, trial=trial.number, num_workers=plan.workers or 1)
            ),
            blocking=experiment.early_stop.pruner != "none",
            origin=self._program.origin_of(version),
            program=version,
            plan=plan,
            max_retries=max(0, settings.max_retries - trial.num_retries),
            changeable=changeable_ways(experiment, trial.params),
            tried=trial.ways_tried,
            time_limit_s=limit_s,
            trained_s=trial.trained_s,
        )

    def _experiment_json(self) -> str:
        """Return the experiment for the workers, with the number of trials that share a GPU."""
        per_gpu = self._ledger.history.in_force.resources.per_gpu
        if self._written is None or self._written[0] != per_gpu:
            experiment = self._ledger.experiment.replace(resources={"per_gpu": per_gpu})
            self._written = per_gpu, experiment.model_dump_json()
        return self._written[1]
