"""The sampler and the pruner of a study, across changes of the search space and of the code.

Each space has its own projection. A configuration that started before a change is judged and ended
in the projection in which it started. After that, the current sampler learns from it as from a
trial of an earlier run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import JsonValue

from workbench.experiment import Experiment
from workbench.experiment.changes import SEARCH, covering, with_changes
from workbench.experiment.space import Fixed, Params, Space
from workbench.foundation.errors import ExperimentError
from workbench.foundation.events import MemoryPredicted, PriorTrialAdded
from workbench.search.importance import AddReports, Importance, importance, negligible
from workbench.search.optuna_space import Parameters
from workbench.search.optuna_study import Projection, Reader, Untried
from workbench.search.pruners import DescribeRung
from workbench.search.study_records import (
    ConfigurationRecord,
    Expected,
    Outcome,
    outcome_of_prior,
)

Finished = Iterable[tuple[ConfigurationRecord, Outcome]]


class Learner:
    """Samples configurations, judges them, and learns from their outcomes."""

    def __init__(self, experiment: Experiment, *, reads_only: bool = False) -> None:
        """Start without any trial.

        Args:
            experiment: The experiment.
            reads_only: Whether nothing is sampled, judged or learned.

        Raises:
            ExperimentError: If the sampler cannot handle the experiment.
        """
        self._kind = Reader if reads_only else Projection
        self.experiment = experiment
        """The experiment with the current search space."""
        self._original = experiment
        self._projection = self._kind(experiment)
        self._started_in: dict[int, Projection] = {}
        self._has_sampled = False
        self._priors: list[tuple[Params, Outcome, PriorTrialAdded]] = []
        self._related: list[tuple[Params, Outcome, str]] = []
        self._started_with: dict[int, str] = {}
        """The names of earlier code that unfinished configurations still run."""
        self._memory: MemoryPredicted | None = None
        self._loose: frozenset[str] = frozenset()
        self._covering = experiment.search

    def all_parameters(self) -> Parameters:
        """Return the parameters in Optuna's terms, with the values of all spaces of the run."""
        return Parameters(self._covering)

    def begin(
        self,
        configuration: int,
        params: Params | None,
        *,
        sampled: bool,
        reports: Mapping[int, float] | None = None,
        untried: Untried | None = None,
    ) -> Params:
        """Start a configuration, as `Projection.begin`."""
        self._started_in[configuration] = self._projection
        is_first = sampled and not self._has_sampled
        self._has_sampled |= sampled
        return self._projection.begin(
            configuration,
            params,
            sampled=sampled,
            is_first=is_first,
            reports=reports,
            untried=untried,
        )

    @property
    def is_stopped(self) -> bool:
        """Whether the current sampler has nothing left to propose, as `Projection.is_stopped`."""
        return self._projection.is_stopped

    def to_resume(self) -> int | None:
        """Return the stopped configuration to continue, as `Projection.to_resume`."""
        return self._projection.to_resume()

    def stopped(self) -> Collection[int]:
        """Return the stopped configurations that may still be continued."""
        return self._projection.stopped

    def expect(self, configurations: Sequence[Params]) -> list[Expected]:
        """Return what is expected of configurations, as `samplers.expect`."""
        return self._projection.expect(configurations)

    def judge(self, configuration: int, step: int, values: Sequence[float]) -> bool:
        """Judge a configuration, as `Projection.judge`."""
        return self._started_in[configuration].judge(configuration, step, values)

    def shortfall(self, configuration: int) -> float | None:
        """Return by how much a configuration is behind, as `pruners.shortfall`."""
        return self._started_in[configuration].shortfall(configuration)

    def explain(self, configuration: int, at: DescribeRung) -> str:
        """Return why the pruner has just stopped a configuration, as `Projection.explain`."""
        return self._started_in[configuration].explain(configuration, at)

    def finish(self, configuration: ConfigurationRecord, outcome: Outcome) -> None:
        """Learn the outcome of a configuration, which is no longer running."""
        started_in = self._started_in.pop(configuration.number)
        started_in.finish(configuration.number, outcome)
        if (name := self._started_with.pop(configuration.number, None)) is not None:
            self._learn_related(configuration.params, outcome, name)
        elif started_in is not self._projection:
            self._learn_again(configuration, outcome)

    def add_prior(self, params: Params, event: PriorTrialAdded) -> None:
        """Learn a trial of an earlier run.

        Args:
            params: Its configuration, in the current space.
            event: The trial.

        Raises:
            ExperimentError: If the trial is complete but lacks an objective.
        """
        metrics = [objective.metric for objective in self.experiment.objectives]
        outcome = outcome_of_prior(event, metrics)
        self._priors.append((params, outcome, event))
        self._projection.add_prior(params, outcome, event.reports, event.from_run_id)

    def predict_memory(self, event: MemoryPredicted) -> None:
        """Learn which configurations will not fit into memory, before anything is tried."""
        self._memory = event
        for params, peak_bytes in event.peaks:
            if (moved := self._placed(params)) is not None:
                self._projection.predict_memory(moved, peak_bytes / event.limit_bytes)

    def change_search(
        self, changes: Mapping[str, Any], finished: Finished, enqueued: Iterable[Params] = ()
    ) -> int:
        """Search another space from now on. Earlier trials that are inside of it still count.

        Trials with another value of a parameter that is now fixed also count if the parameter has
        no effect. Running configurations count when they end.

        Args:
            changes: All changes of the space since the start of the run, by parameter.
            finished: The configurations that have ended.
            enqueued: The configurations that will be tried next.

        Returns:
            How many of the ended configurations count in the new space.

        Raises:
            ExperimentError: If the space is not valid or excludes an enqueued configuration.
        """
        experiment, finished = with_changes(self._original, changes), list(finished)
        if any(placed(params, experiment.search) is None for params in enqueued):
            raise ExperimentError(
                "the new search space does not contain an enqueued configuration",
                field=SEARCH,
                next_step="Include its values, or wait until its trial has started.",
            )
        undecided = set(negligible(self.importance(finished)))
        frozen = {
            name for name, domain in experiment.search.root.items() if isinstance(domain, Fixed)
        }
        projection = self._kind(experiment)
        self._loose = frozenset(frozen & (undecided | self._loose))
        self._covering = covering(self._covering, experiment.search)
        self.experiment, self._projection = experiment, projection
        self._learn_earlier()
        return sum(
            [self._learn_again(configuration, outcome) for configuration, outcome in finished]
        )

    def change_program(
        self,
        name: str,
        finished: Finished,
        begun: Iterable[ConfigurationRecord],
        kept: Collection[int],
    ) -> None:
        """Learn the function of changed code from now on.

        Trials of the code so far count as trials of a related, earlier run.

        Args:
            name: The name of the code so far.
            finished: The configurations that have ended with it.
            begun: All configurations that have not ended.
            kept: The numbers of configurations that still run earlier code. They count as related
                when they end.
        """
        self._related += [(record.params, outcome, name) for record, outcome in finished]
        self._projection = self._kind(self.experiment)
        self._learn_earlier()
        for record in begun:
            if record.number in kept:
                self._started_with.setdefault(record.number, name)
                continue
            self._started_in[record.number] = self._projection
            self._projection.begin(record.number, record.params, sampled=False)

    def _learn_earlier(self) -> None:
        """Teach a new projection everything except for the trials of the current code."""
        for params, outcome, event in self._priors:
            if (moved := self._placed(params)) is not None:
                self._projection.add_prior(moved, outcome, event.reports, event.from_run_id)
        related, self._related = self._related, []
        for params, outcome, name in related:
            self._learn_related(params, outcome, name)
        if self._memory is not None:
            self.predict_memory(self._memory)

    def _learn_related(self, params: Params, outcome: Outcome, name: str) -> None:
        """Learn from a configuration that ran earlier code."""
        self._related.append((params, outcome, name))
        moved = self._placed(params)
        if moved is not None and outcome.state != "failed":
            self._projection.add_related(moved, outcome, name)

    def importance(self, finished: Finished, add_reports: AddReports | None = None) -> Importance:
        """Return the importance of each parameter among configurations of the current space."""
        records: Finished = finished
        if self.experiment is not self._original:  # else all have been checked when they began
            records = (
                (replace(record, params=params), outcome)
                for record, outcome in finished
                if (params := self._placed(record.params)) is not None
            )
        return importance(self.experiment, self._projection.parameters, records, add_reports)

    def _learn_again(self, configuration: ConfigurationRecord, outcome: Outcome) -> bool:
        """Learn from a configuration of an earlier space. Return whether it counts in this one."""
        params = self._placed(configuration.params)
        says_nothing = outcome.state == "failed" and outcome.reason not in ("oom", "diverged")
        if params is None or says_nothing:
            return False
        reports = list(configuration.trials[0].reports.items())
        self._projection.add_prior(params, outcome, reports, None)
        return True

    def _placed(self, params: Mapping[str, JsonValue]) -> Params | None:
        return placed(params, self.experiment.search, self._loose)


def placed(
    params: Mapping[str, JsonValue], space: Space, loose: Collection[str] = ()
) -> Params | None:
    """Return a configuration of an earlier space in the current one, or None if it is outside.

    Args:
        params: The configuration.
        space: The current space.
        loose: Fixed parameters of which any other value counts as the fixed one.
    """
    moved = {
        name: domain.value
        for name, domain in space.root.items()
        if name in loose and name in params and isinstance(domain, Fixed)
    }
    try:
        return space.check({**params, **moved})
    except ExperimentError:
        return None
