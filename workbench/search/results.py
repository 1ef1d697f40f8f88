"""What a study has tried, and what came of it.

Reports, results, the best, importance, and a copy of all.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from functools import partial

from pydantic import JsonValue

from workbench.experiment import Experiment
from workbench.experiment.space import Params
from workbench.foundation.errors import ExperimentError, RunError
from workbench.foundation.events import PriorTrialAdded, TrialReported
from workbench.search import export
from workbench.search.learner import Learner
from workbench.search.records import ConfigurationRecord, Outcome, TrialRecord


class Results:
    """The trials and configurations of a study, also of earlier runs.

    Proposing them is left to `Study`.
    """

    def __init__(self, experiment: Experiment) -> None:
        """Start without any trial.

        Args:
            experiment: What to tune.

        Raises:
            ExperimentError: If the sampler cannot handle the experiment.
        """
        self._metrics = [objective.metric for objective in experiment.objectives]
        self._trials: dict[int, TrialRecord] = {}
        self._configurations: list[ConfigurationRecord] = []
        self._of_earlier_code: set[int] = set()
        """The configurations that ran, or still run, code from before the last change of it."""
        self._learner = Learner(experiment)
        self._repeats_test = experiment.repeats > 1 and experiment.early_stop.kind.compares_repeats

    @property
    def experiment(self) -> Experiment:
        """What is tuned, in the space that is in force."""
        return self._learner.experiment

    def _outcomes(self) -> Iterator[tuple[ConfigurationRecord, Outcome]]:
        """Yield the configurations that have ended, of the code in force.

        Others measured something else.
        """
        yield from ((each, each.outcome) for each in self._comparable() if each.outcome is not None)

    def _comparable(self) -> list[ConfigurationRecord]:
        if not self._of_earlier_code:
            return self._configurations
        return [
            record for record in self._configurations if record.number not in self._of_earlier_code
        ]

    def _record(self, trial: int) -> TrialRecord:
        if (record := self._trials.get(trial)) is None:
            raise RunError(f"the study has not proposed a trial {trial}")
        return record

    def _checked(self, params: Mapping[str, JsonValue]) -> Params:
        try:
            return self.experiment.search.check(params)
        except ExperimentError as error:
            raise error.at("params") from error

    def add_prior(self, event: PriorTrialAdded) -> None:
        """Add a trial of an earlier run for the sampler to learn from.

        nsga2, nsga3 and grid learn nothing from it; pruners compare with it at the rungs that it
        reported.

        Args:
            event: The trial; its parameters must be a configuration of this space.

        Raises:
            ExperimentError: If it is not a configuration of the space, or lacks an objective.
        """
        params = self._checked(event.params)
        if self.experiment.fidelity is not None:
            if event.state == "pruned":  # by other rungs than levels of the fidelity
                return
            event = event.model_copy(update={"reports": []})
        self._learner.add_prior(params, event)

    def report(self, trial: int, rung: int, values: Mapping[str, float]) -> bool:
        """Record a report of a trial.

        Args:
            trial: Number of the trial.
            rung: Resource spent, in epochs or steps, `TrialReported.rung`; each is judged only
                once.
            values: Metrics by name.

        Returns:
            Whether the trial should stop now.
        """
        return self.take_report(
            TrialReported(trial=trial, step=rung, epoch=None, values=dict(values))
        )

    def take_report(self, event: TrialReported) -> bool:
        """Record a report in its stored form, and return whether the trial should stop now."""
        record, rung = self._record(event.trial), self.experiment.early_stop.rung_of(event)
        if record.value is None:  # it has ended
            return record.prune
        record.elapsed_s[event.attempt] = event.elapsed_s
        if event.memory_share is not None:
            record.memory_share = max(event.memory_share, record.memory_share or 0.0)
        record.value.report(
            event.values, step=event.step, attempt=event.attempt, returned=event.returned
        )
        if (
            self.experiment.fidelity is not None
        ):  # trainings at a low fidelity are compared at their ends
            return False
        value = event.values.get(self._metrics[0], math.nan)
        if not math.isfinite(value) or rung is None or rung in record.reports:
            return record.prune
        record.reports[rung] = value
        if record.proposal.repeat == 0 and not self._repeats_test:
            stop = self._learner.judge(
                record.proposal.configuration, rung, record.seen(self._metrics, value)
            )
            may_stop = rung >= self.experiment.early_stop.grace and not record.is_over_with(event)
            if stop and may_stop and not record.prune:
                at = partial(self.experiment.early_stop.describe_rung, event)
                record.why_pruned = self._learner.explain(record.proposal.configuration, at)
        return record.prune

    def result(self, trial: int) -> dict[str, float]:
        """Return the values of a trial.

        Args:
            trial: Number of the trial.

        Returns:
            Its values so far, according to the objectives' `value`.
        """
        return self._record(trial).result()

    def why_pruned(self, trial: int) -> str | None:
        """Return why a trial should stop, in one sentence.

        None where no pruner has decided that.
        """
        return self._record(trial).why_pruned

    def best_trials(self) -> list[int]:
        """Return the best feasible trial, or with several objectives the Pareto front.

        Returns:
            Numbers of trials: of each configuration the repeat with the best value, or with several
            objectives its first complete repeat. Empty while nothing feasible is complete.
        """
        found = [(record, record.confirmed or outcome) for record, outcome in self._outcomes()]
        return export.best_trials(self.experiment, found)

    def importance(
        self, trials: Collection[int] | None = None
    ) -> dict[str, tuple[float, float, float]]:
        """Return the importance of each searched parameter with its uncertainty, the most important
        first.

        Args:
            trials: Among the configurations of these trials; None for all.

        Returns:
            Shares of total effects in the variance over the space, each with its 90 % interval; 0
            for a parameter that has no effect. Empty with too few trials or several objectives.
        """
        if self.experiment.sampler.kind.is_population:  # its trials begin with weights of others
            return {}
        return self._learner.importance(
            (record, outcome)
            for record, outcome in self._outcomes()
            if trials is None or any(trial.proposal.trial in trials for trial in record.trials)
        )

    def export(self, url: str, name: str) -> None:
        """Copy all trials into an Optuna storage, for optuna-dashboard and other tools.

        Args:
            url: URL of a database as SQLAlchemy writes it, or the path of a journal file.
            name: Name of the new Optuna study.

        Raises:
            ExperimentError: If the storage has a study of that name.
            StoreError: If the storage cannot be opened or written.
        """
        parameters, trials = self._learner.all_parameters(), list(self._trials.values())
        export.copy_to_storage(self.experiment, parameters, trials, url, name)
