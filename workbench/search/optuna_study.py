"""The Optuna study behind a study of the workbench: one Optuna trial per configuration, in memory.

It receives means over repeats, limits, and failures such as out of memory or divergence, in the
form that each sampler learns from.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.pruners import NopPruner
from optuna.samplers import RandomSampler
from optuna.storages import InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from workbench.experiment import Experiment
from workbench.experiment.space import Params
from workbench.foundation.errors import RunError
from workbench.search import samplers
from workbench.search.optuna_space import Parameters
from workbench.search.optuna_versions import keeps_limits, limits_of_new_trial, quiet, record_limits
from workbench.search.partial_results import CURVES, is_cut
from workbench.search.pruners import (
    CurvePruner,
    DescribeRung,
    can_resume,
    explain,
    make_pruner,
    shortfall,
)
from workbench.search.study_records import Expected, Knowledge, Outcome, Result, describe_limit

Untried = Callable[[Params], Params]
"""Returns the configuration to try instead of one that a sampler chose, or the same one."""

# Hyperband derives a trial's bracket from the study's name.
_STUDY_NAME = "study"
# How many stopped trials may be continued. Their checkpoints are kept, which takes space.
_MAX_STOPPED = 3


class _Memory(InMemoryStorage):
    """Optuna's storage in memory, without the notes that samplers leave for other processes.

    TPE and GP record the parameters of a proposal before all of them are known, including
    parameters whose condition does not hold. Nothing reads partial proposals here, and a replay
    could not reproduce them. To save memory, trials share their distributions, which Optuna creates
    again for each trial.
    """

    def __init__(self) -> None:
        super().__init__()
        self._distributions: dict[tuple[str, str], BaseDistribution] = {}

    def set_trial_param(
        self,
        trial_id: int,
        param_name: str,
        param_value_internal: float,
        distribution: BaseDistribution,
    ) -> None:
        # The key is the text, because distributions with the choices True and 1 compare equal.
        shared = self._distributions.setdefault((param_name, repr(distribution)), distribution)
        super().set_trial_param(trial_id, param_name, param_value_internal, shared)

    def forget_params(self, trial_id: int) -> None:
        """Remove the parameters of a running trial, which other ones replace."""
        with self._lock:
            trial = copy.copy(self._get_trial(trial_id))
            trial.params, trial.distributions = {}, {}
            self._set_trial(trial_id, trial)

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        if ":relative_params" not in key:
            super().set_trial_system_attr(trial_id, key, value)


class _StoppableStudy(optuna.Study):
    """A study whose sampler can signal that it has nothing left to propose.

    Optuna's own `stop` only works within `optimize`, which is not used here.
    """

    is_stopped = False

    def stop(self) -> None:
        """Note that the sampler has nothing left to propose."""
        self.is_stopped = True


class Projection:
    """Samples configurations, judges intermediate values, and learns from outcomes."""

    def __init__(self, experiment: Experiment) -> None:
        """Start without any trial.

        Args:
            experiment: The experiment.

        Raises:
            ExperimentError: If the sampler cannot handle the experiment.
        """
        self._experiment = experiment
        self._metrics = [objective.metric for objective in experiment.objectives]
        self._running: dict[int, optuna.Trial] = {}
        self._knowledge = Knowledge()
        self._worst: list[float] | None = None
        self._resumes = can_resume(experiment)
        self.stopped: dict[int, FrozenTrial] = {}
        """The stopped trials that may still be continued, by configuration."""
        self._known_chances: dict[int, float] | None = None
        """The probabilities of stopped trials to end as the best. None if they are out of date."""
        self._storage = _Memory()
        with quiet():
            samplers.check(experiment)
            self.parameters = Parameters(experiment.search)
            self._pruner = make_pruner(experiment)
            self._study_id = self._storage.create_new_study(
                [StudyDirection[objective.goal.upper()] for objective in experiment.objectives],
                _STUDY_NAME,
            )
            self._study = _StoppableStudy(
                _STUDY_NAME, self._storage, sampler=RandomSampler(0), pruner=self._pruner
            )

    @property
    def is_stopped(self) -> bool:
        """Whether the sampler has called `Study.stop`, because it has nothing left to propose."""
        return self._study.is_stopped

    def begin(
        self,
        configuration: int,
        params: Params | None,
        *,
        sampled: bool,
        is_first: bool = False,
        reports: Mapping[int, float] | None = None,
        untried: Untried | None = None,
    ) -> Params:
        """Start a configuration, or continue one that was stopped.

        Args:
            configuration: Its number, from 0.
            params: The configuration, or None if the sampler should choose it.
            sampled: Whether the sampler chooses it now, or chose it when it was first proposed.
            is_first: Whether it is the first configuration that the sampler chooses.
            reports: Its reports by rung from before it was stopped, or None if it is new.
            untried: Called with the sampler's choice. It returns the configuration to try.

        Returns:
            The configuration.
        """
        self._known_chances = None
        with quiet():
            uses_sampler = sampled and (params is None or self._experiment.sampler.kind.keeps_notes)
            if uses_sampler:
                self._study.sampler = samplers.make_sampler(
                    self._experiment,
                    configuration,
                    self.parameters,
                    self._knowledge,
                    is_first=is_first,
                )
            trial = self._study.ask()
            if uses_sampler:
                # Reading the property makes the sampler sample and record its state. This is also
                # necessary in a replay, whose parameters are given.
                _ = trial.relative_params
            if params is None:
                suggested = self.parameters.suggest(trial)
                params = suggested if untried is None else untried(suggested)
                if params != suggested:
                    self._storage.forget_params(self._id(trial))
                    self._assign(trial, params)
            else:
                self._assign(trial, params)
        self._running[configuration] = trial
        if reports is not None:
            self.stopped.pop(configuration, None)
            for rung, value in reports.items():
                self._storage.set_trial_intermediate_value(self._id(trial), rung, value)
        return params

    def _assign(self, trial: optuna.Trial, params: Params) -> None:
        translated = self.parameters.to_optuna(params)
        for name, distribution in self.parameters.distributions(params).items():
            internal = distribution.to_internal_repr(translated[name])
            self._storage.set_trial_param(self._id(trial), name, internal, distribution)

    def _id(self, trial: optuna.Trial) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._study_id, trial.number)

    def expect(self, configurations: Sequence[Params]) -> list[Expected]:
        """Return what the results so far let expect of configurations, as `samplers.expect`."""
        with quiet():
            return samplers.expect(
                self._experiment, self.parameters, self._knowledge, configurations
            )

    def judge(self, configuration: int, step: int, values: Sequence[float]) -> bool:
        """Record values of a running configuration, and ask the pruner.

        Args:
            configuration: Number of the configuration.
            step: The rung, or the number of the repeat. Each may only be recorded once.
            values: The values of the objectives. A single one must be finite, several may be NaN.

        Returns:
            Whether the pruner would stop the configuration.
        """
        self._known_chances = None
        trial_id = self._id(self._running[configuration])
        if len(values) == 1:
            self._storage.set_trial_intermediate_value(trial_id, step, values[0])
        else:
            shown = self._storage.get_trial(trial_id).user_attrs.get(CURVES, {})
            self._storage.set_trial_user_attr(trial_id, CURVES, {**shown, step: list(values)})
        if isinstance(self._pruner, NopPruner):
            return False
        with quiet():
            return self._pruner.prune(self._study, self._storage.get_trial(trial_id))

    def shortfall(self, configuration: int) -> float | None:
        """Return by how much a running configuration is behind, as `pruners.shortfall`.

        Args:
            configuration: Number of the configuration, which the pruner has just decided to stop.
        """
        with quiet():
            trial = self._storage.get_trial(self._id(self._running[configuration]))
            return shortfall(self._pruner, self._study, trial)

    def explain(self, configuration: int, at: DescribeRung) -> str:
        """Return why the pruner has just stopped a configuration.

        Args:
            configuration: Number of the configuration that `judge` judged last.
            at: Writes a rung, such as `epoch 5`.
        """
        trial = self._storage.get_trial(self._id(self._running[configuration]))
        with quiet():
            return explain(self._pruner, self._study, trial, metric=self._metrics[0], at=at)

    def finish(self, configuration: int, outcome: Outcome) -> None:
        """Report the outcome of a configuration to the sampler.

        Args:
            configuration: Number of the configuration, which is no longer running.
            outcome: The outcome over its repeats.
        """
        self._known_chances = None
        trial = self._running.pop(configuration)
        violations = outcome.violations(self._experiment.constraints)
        if self._experiment.sampler.kind.needs_every_limit:
            # Optuna's gp needs the same limits in every trial, so limits that only failures break
            # are dropped. It learns from failures by their bad values.
            limits = [describe_limit(constraint) for constraint in self._experiment.constraints]
            violations = {limit: violations[limit] for limit in limits if limit in violations}
        state, values = self._translate(outcome)
        with quiet():
            record_limits(self._experiment, violations, trial, self._storage, self._id(trial))
            self._study.tell(trial, values, state)
        ended = self._storage.get_trial(self._id(trial))
        self._knowledge.results.append(Result(ended, violations, outcome.seconds))
        if self._resumes and outcome.state == "pruned" and is_cut(ended) and keeps_limits(ended):
            self.stopped[configuration] = ended
            if len(self.stopped) > _MAX_STOPPED:
                chances = self._chances()
                dropped = min(chances, key=chances.__getitem__)
                del self.stopped[dropped], chances[dropped]

    def to_resume(self) -> int | None:
        """Return the stopped configuration to continue now, or None if there is none."""
        chances = self._chances()
        if not chances or not isinstance(self._pruner, CurvePruner):
            return None
        number = max(chances, key=chances.__getitem__)
        if not self._pruner.may_resume(chances[number]):
            return None
        return number

    def _chances(self) -> dict[int, float]:
        """Return the probability of each stopped configuration to end as the best.

        The driver reads them in each turn of its loop, so they are cached until something changes.
        """
        if self._known_chances is None and self.stopped:
            assert isinstance(self._pruner, CurvePruner)
            pruner, study = self._pruner, self._study
            with quiet():
                self._known_chances = {
                    number: pruner.chance_of_best(study, trial)
                    for number, trial in self.stopped.items()
                }
        return self._known_chances or {}

    def _translate(self, outcome: Outcome) -> tuple[TrialState, list[float] | None]:
        if outcome.state == "complete":
            values = [outcome.values[metric] for metric in self._metrics]
            self._worst = [
                (min if objective.goal == "maximize" else max)(value, worst)
                for objective, value, worst in zip(
                    self._experiment.objectives, values, self._worst or values, strict=True
                )
            ]
            return TrialState.COMPLETE, values
        if outcome.reason in ("oom", "diverged"):
            if self._worst and self._experiment.sampler.kind.learns_from_complete_only:
                # These samplers only use complete trials. They would propose the configuration
                # again and again, so it counts as complete with the worst value so far.
                return TrialState.COMPLETE, self._worst
            return TrialState.PRUNED, None
        return (TrialState.PRUNED if outcome.state == "pruned" else TrialState.FAIL), None

    def add_prior(
        self,
        params: Params,
        outcome: Outcome,
        reports: Sequence[tuple[int, float]],
        run_id: str | None,
    ) -> None:
        """Add a trial that the sampler learns from although it has not proposed it.

        Args:
            params: A configuration of the space.
            outcome: Its outcome. A complete one must have finite values of all objectives.
            reports: Pairs of rungs and values of the objective that the trial reported.
            run_id: The earlier run that it belongs to, or None for a trial of this run from another
                space.
        """
        self._known_chances = None
        result = self._result_of(params, outcome, reports)
        with quiet():
            self._study.add_trial(result.trial)
        knowledge = self._knowledge
        results = knowledge.results
        if run_id is not None:
            results = knowledge.earlier.setdefault(run_id, [])
        results.append(result)
        if outcome.state == "complete":
            knowledge.priors.append(result.trial)

    def add_related(self, params: Params, outcome: Outcome, name: str) -> None:
        """Add a trial of a related function. Its values are not comparable with this function's.

        Only a sampler that models the relation between functions learns from it. Other samplers
        and pruners do not see it.

        Args:
            params: A configuration of the space.
            outcome: Its outcome. A complete one must have finite values of all objectives.
            name: The name of the function.
        """
        self._knowledge.earlier.setdefault(name, []).append(self._result_of(params, outcome, ()))

    def _result_of(
        self, params: Params, outcome: Outcome, reports: Sequence[tuple[int, float]]
    ) -> Result:
        complete = outcome.state == "complete"
        violations = outcome.violations(self._experiment.constraints)
        with quiet():
            trial = create_trial(
                state=TrialState.COMPLETE if complete else TrialState.PRUNED,
                values=[outcome.values[metric] for metric in self._metrics] if complete else None,
                params=self.parameters.to_optuna(params),
                distributions=self.parameters.distributions(params),
                **self._shown_before(reports),
                **limits_of_new_trial(self._experiment, violations),
            )
        return Result(trial, violations, outcome.seconds)

    def predict_memory(self, params: Params, share: float) -> None:
        """Add a prediction of memory.

        Args:
            params: A configuration of the space.
            share: The part of the memory that it needs. It does not fit above 1.
        """
        self._knowledge.memory.append((self.parameters.to_optuna(params), share))

    def _shown_before(self, reports: Sequence[tuple[int, float]]) -> dict[str, Any]:
        """Return the arguments of `create_trial` for a trial with these reports.

        With several objectives, reports are dropped, because a prior trial only stores those of the
        first objective. Such a trial has no curves.
        """
        if len(self._metrics) > 1:
            return {"user_attrs": {CURVES: {}}}
        return {
            "intermediate_values": {rung: value for rung, value in reports if math.isfinite(value)}
        }


class Reader(Projection):
    """A projection for studies that are only read: it chooses, judges and learns nothing.

    Optuna takes milliseconds for each trial that it learns. Questions about a run that has ended
    do not need that.
    """

    def begin(
        self,
        configuration: int,
        params: Params | None,
        *,
        sampled: bool,
        is_first: bool = False,
        reports: Mapping[int, float] | None = None,
        untried: Untried | None = None,
    ) -> Params:
        """Return the configuration.

        Raises:
            RunError: If it would have to be chosen.
        """
        if params is None:
            raise RunError(
                "this study is only read", next_step="Rebuild it without reads_only to propose."
            )
        return params

    def judge(self, configuration: int, step: int, values: Sequence[float]) -> bool:
        """Do not stop the configuration: its events say how it ended."""
        return False

    def finish(self, configuration: int, outcome: Outcome) -> None:
        """Learn nothing."""

    def add_prior(
        self,
        params: Params,
        outcome: Outcome,
        reports: Sequence[tuple[int, float]],
        run_id: str | None,
    ) -> None:
        """Learn nothing."""

    def add_related(self, params: Params, outcome: Outcome, name: str) -> None:
        """Learn nothing."""

    def predict_memory(self, params: Params, share: float) -> None:
        """Learn nothing."""
