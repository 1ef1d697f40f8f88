"""The study: ask, report and tell, the replay of events, and the results."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Literal

from pydantic import JsonValue

from workbench.experiment import Experiment
from workbench.experiment.changes import CONFIRM, SEARCH
from workbench.experiment.fidelity import Levels
from workbench.experiment.space import Params
from workbench.experiment.trial_value import TrialValue
from workbench.foundation.errors import ExperimentError, RunError
from workbench.foundation.events import (
    Clone,
    Event,
    MemoryPredicted,
    PriorTrialAdded,
    ProgramKept,
    RepeatsInherited,
    ReplayPlanned,
    Segment,
    SettingsChanged,
    TrialEnded,
    TrialEnqueued,
    TrialProposed,
    TrialReported,
)
from workbench.search import export, samplers
from workbench.search.follow_ups import Promotions, Recording, next_confirmation
from workbench.search.importance import Importance, ReadReports
from workbench.search.population import Population
from workbench.search.sampler_and_pruner import Learner
from workbench.search.samplers import Grid, is_small_space
from workbench.search.study_records import (
    ConfigurationRecord,
    Doubt,
    Expected,
    Outcome,
    Proposal,
    TrialRecord,
    first_turn,
    num_epochs,
)
from workbench.store.history.certainty import noise_with_inherited

ENDS = (
    "trial_proposed",
    "trial_ended",
    "trial_enqueued",
    "prior_trial_added",
    "repeats_inherited",
    "replay_planned",
    "memory_predicted",
    "settings_changed",
    "program_kept",
)
"""The types of the events that a study applies, without reports. There may be a million reports."""


class Study:
    """Proposes configurations, stops trainings early, and learns from their results."""

    def __init__(self, experiment: Experiment, *, reads_only: bool = False) -> None:
        """Start without any trial.

        Args:
            experiment: The experiment.
            reads_only: Whether nothing will be proposed or stopped, which is much faster.

        Raises:
            ExperimentError: If the sampler cannot handle the experiment.
        """
        self._metrics = [objective.metric for objective in experiment.objectives]
        self._trials: dict[int, TrialRecord] = {}
        self._configurations: list[ConfigurationRecord] = []
        self._of_earlier_code: set[int] = set()
        """The configurations that ran, or still run, code from before its last change."""
        self._reads_only = reads_only
        self._learner = Learner(experiment, reads_only=reads_only)
        self._repeats_test = experiment.repeats > 1 and experiment.early_stop.kind.compares_repeats
        self._waiting_repeats: deque[tuple[int, int]] = deque()
        self._enqueued: deque[tuple[Params, Clone | None]] = deque()
        self._recording: Recording | None = None
        self._inherited_repeats: RepeatsInherited | None = None
        self._num_to_confirm: int | None = None  # if it was changed during the run
        self._tried: set[str] = set()
        self._resumed: dict[int, int] = {}  # running trials, and the stopped ones they continue
        self._grid = Grid(experiment) if experiment.sampler.kind.enumerates_grid else None
        self._population = Population(experiment) if experiment.sampler.kind.is_population else None
        self._combinations = self._combinations_of(experiment)
        self._has_inherited = False  # whether some configuration began with the weights of another
        levels = Levels.of(experiment.fidelity)
        self._promotions = None if levels is None else Promotions(experiment, levels)

    @classmethod
    def rebuild(
        cls, experiment: Experiment, events: Iterable[Event], *, reads_only: bool = False
    ) -> Study:
        """Build a study from the events of a run.

        Args:
            experiment: The experiment.
            events: The events of a run, in order.
            reads_only: Whether the study is only asked what it has seen, which is much faster.

        Returns:
            A study that proposes what the live one would have proposed.
        """
        study = cls(experiment, reads_only=reads_only)
        for event in events:
            study.apply(event)
        return study

    @property
    def experiment(self) -> Experiment:
        """The experiment with the current search space."""
        return self._learner.experiment

    def apply(self, event: Event) -> None:
        """Apply one stored event. Events that do not concern the study have no effect."""
        match event:
            case TrialProposed():
                self._replay(event)
            case TrialReported():
                self.take_report(event)
            case TrialEnded():
                self.tell(event.trial, event)
            case TrialEnqueued():
                self.enqueue(event.params, event.clone)
            case PriorTrialAdded() | RepeatsInherited() | ReplayPlanned():
                self._take_from_earlier_run(event)
            case MemoryPredicted():
                self._learner.predict_memory(event)
            case SettingsChanged():
                self._change_settings(event.settings)
            case ProgramKept() if event.version > 1:
                self.change_program(event)
            case _:
                pass

    def _change_settings(self, settings: Mapping[str, Any]) -> None:
        if SEARCH in settings:
            self.change_search(settings[SEARCH])
        if CONFIRM in settings:
            self.confirm_best(settings[CONFIRM])

    def _take_from_earlier_run(
        self, event: PriorTrialAdded | RepeatsInherited | ReplayPlanned
    ) -> None:
        match event:
            case PriorTrialAdded():
                self.add_prior(event)
            case RepeatsInherited():
                self.inherit_repeats(event)
            case ReplayPlanned():
                self.replay(event.proposals)

    # Proposals.

    @property
    def num_enqueued(self) -> int:
        """The number of enqueued configurations that have not been proposed yet."""
        return len(self._enqueued)

    @property
    def has_waiting_repeats(self) -> bool:
        """Whether `ask` has further trainings of configurations that have started."""
        if self._recording is None:
            return bool(self._waiting_repeats)
        return self._recording.repeats

    @property
    def has_confirmations(self) -> bool:
        """Whether `ask` would now train a known configuration if it may not propose a new one.

        It continues stopped configurations that may end as the best, trains promising ones at a
        higher fidelity, and repeats the best ones.
        """
        return self._recording is None and (
            self._to_resume(is_searching=False) is not None or self._next_confirmation() is not None
        )

    @property
    def is_stopped_by_sampler(self) -> bool:
        """Whether the sampler has called Optuna's `Study.stop` and has nothing left to propose."""
        return self._learner.is_stopped

    @property
    def exhausted(self) -> bool:
        """Whether `ask` will never propose anything again."""
        if self._recording is not None:
            return self._recording.is_over
        if self._population is not None:
            return self._population.exhausted
        grid = self._grid or self._combinations
        if grid is None and not self.is_stopped_by_sampler:
            return False
        if self._enqueued or self._waiting_repeats:
            return False
        if self.experiment.repeats > 1 and any(
            record.outcome is None for record in self._configurations
        ):
            return False
        return self.is_stopped_by_sampler or (grid is not None and grid.point(self._tried) is None)

    def _combinations_of(self, experiment: Experiment) -> Grid | None:
        """Return all combinations of a small space, for samplers that do not enumerate a grid.

        Training a configuration again with the same seed has the same result, so the run ends when
        all combinations were tried. `repeats` and `confirm` use other seeds.
        """
        if self._grid is not None or self._population is not None:
            return None
        return Grid(experiment) if is_small_space(experiment.search) else None

    def ask(self, *, repeats_only: bool = False) -> Proposal | None:
        """Propose the next training.

        Repeats of configurations whose first training is complete come first. Enqueued
        configurations are next, then the sampler's, and at last repeats of the best ones. A replay
        follows the recorded order instead.

        Args:
            repeats_only: Do not propose a new configuration, because the budget has no room for it.

        Returns:
            The proposal, or None if there is nothing to propose at the moment.
        """
        if self._recording is not None:
            return self._ask_replayed(self._recording, repeats_only)
        if self._waiting_repeats:
            number, repeat = self._waiting_repeats.popleft()
            configuration = self._configurations[number]
            configuration.num_waiting -= 1
            return self._propose(configuration, repeat, configuration.trials[0].proposal.source)
        if repeats_only:
            return self._resume_best(is_searching=False) or self._confirm()
        if self._population is not None:
            return self._ask_population(self._population)
        if self._enqueued:
            return self._propose_enqueued()
        return self._resume_best(is_searching=True) or self._ask_sampler()

    def _ask_population(self, population: Population) -> Proposal | None:
        """Propose the next part of a member's training. Enqueued configurations are new members."""
        part = population.next()
        if part is None:
            return None
        if part.params is None and self._enqueued:
            return self._propose_enqueued(part.segment)
        configuration = self._configure(part.params, "sampler")
        return self._propose(configuration, 0, "sampler", segment=part.segment)

    def _propose_enqueued(self, segment: Segment | None = None) -> Proposal:
        params, clone = self._enqueued.popleft()
        configuration = self._configure(params, "enqueued", clone)
        return self._propose(configuration, 0, "enqueued", segment=segment, clone=clone)

    def _ask_sampler(self) -> Proposal | None:
        """Propose a configuration of the sampler, or a repeat of a good one if there is none."""
        if self.is_stopped_by_sampler:
            return self._confirm()
        chosen = None
        if self._grid is not None:
            chosen = self._grid.point(self._tried)
            if chosen is None:
                return self._confirm()
        elif self._has_tried_all:
            return self._confirm()
        return self._propose(self._configure(chosen, "sampler"), 0, "sampler")

    @property
    def _has_tried_all(self) -> bool:
        """Whether every combination of a small space was tried."""
        if self._combinations is None or not self._tried:
            return False
        return self._combinations.point(self._tried) is None

    def _resume_best(self, *, is_searching: bool) -> Proposal | None:
        """Continue the stopped trial that may now end as the best, if there is one."""
        number = self._to_resume(is_searching=is_searching)
        if number is None:
            return None
        return self._resume(self._configurations[number])

    def _to_resume(self, *, is_searching: bool) -> int | None:
        """Return the configuration to continue from its checkpoint or at a higher fidelity."""
        if self._promotions is None:
            return self._learner.to_resume()
        is_running = any(record.outcome is None for record in self._configurations)
        return self._promotions.next(is_over=not is_searching and not is_running)

    def _resume(self, configuration: ConfigurationRecord) -> Proposal:
        """Continue a training that was stopped, or start it again at a higher fidelity."""
        before, starts_over = configuration.trials.pop(), self._promotions is not None
        reports = None if starts_over else before.reports
        self._learner.begin(
            configuration.number, configuration.params, sampled=False, reports=reports
        )
        configuration.outcome = None
        proposal = self._propose(
            configuration,
            before.proposal.repeat,
            before.proposal.source,
            seed=before.proposal.seed,
            resumes=before.proposal.trial,
        )
        if not starts_over:
            configuration.trials[-1].continue_from(before)
            self._resumed[proposal.trial] = before.proposal.trial
        return proposal

    def _confirm(self) -> Proposal | None:
        """Repeat one of the best configurations, unless the race between them is over."""
        training = self._next_confirmation()
        if training is None:
            return None
        configuration, repeat = training
        return self._propose(configuration, repeat, configuration.trials[0].proposal.source)

    def _configure(
        self, chosen: Params | None, source: str, clone: Clone | None = None
    ) -> ConfigurationRecord:
        """Start the given configuration, or one that the sampler chooses."""
        number = len(self._configurations)
        if chosen is not None and clone is not None and clone.inherits:
            # Its result also depends on the weights, so it says nothing about the configuration.
            self._has_inherited = True
            inheriting = ConfigurationRecord(number, dict(chosen), inherits=True)
            self._configurations.append(inheriting)
            return inheriting
        sampled = source == "sampler" and self._recording is None
        params = self._learner.begin(number, chosen, sampled=sampled, untried=self._untried)
        record = ConfigurationRecord(number, params)
        self._configurations.append(record)
        if not self._reads_only:
            self._tried.add(self.experiment.search.key_of(params))
        return record

    def _untried(self, params: Params) -> Params:
        """Return a configuration that the sampler proposes, or one that was not tried, if it was.

        A sampler that has converged proposes the best configuration again. Nothing new would come
        of it, because it would train with the same seed.
        """
        if self._combinations is None or self.experiment.search.key_of(params) not in self._tried:
            return params
        return self._combinations.point(self._tried) or params

    def _propose(
        self,
        configuration: ConfigurationRecord,
        repeat: int,
        source: Literal["sampler", "enqueued"],
        *,
        seed: int | None = None,
        segment: Segment | None = None,
        resumes: int | None = None,
        clone: Clone | None = None,
    ) -> Proposal:
        """Start a training of a configuration."""
        if seed is None and configuration.inherits and clone is not None:
            seed = self._record(clone.of).proposal.seed  # it goes on with the same order of samples
        if seed is None:
            seed = samplers.training_seed(self.experiment.seed, repeat)
        params, low = configuration.params, None
        if self._promotions is not None and repeat == 0:
            low = self._promotions.begin(configuration.number)
            if low is not None:
                params = {**params, low.name: low.value}
        proposal = Proposal(
            trial=len(self._trials),
            params=params,
            configuration=configuration.number,
            repeat=repeat,
            seed=seed,
            source=source,
            segment=segment,
            resumes=resumes,
            fidelity=low,
            clone=clone,
        )
        if self._population is not None and segment is not None:
            self._population.begin(proposal.trial, params, segment)
        record = TrialRecord(
            proposal,
            TrialValue(self.experiment),
            num_epochs(self.experiment, params),
            first_turn(self.experiment, params),
        )
        configuration.trials.append(record)
        self._trials[proposal.trial] = record
        return proposal

    def expect(self, configurations: Sequence[Mapping[str, JsonValue]]) -> list[Expected]:
        """Return what the results so far let expect of configurations.

        Args:
            configurations: Configurations of the space. Fixed values may be omitted.

        Returns:
            One for each configuration, or an empty list: see `samplers.expect`.

        Raises:
            ExperimentError: If one is not a configuration of the space.
        """
        return self._learner.expect([self._checked(params) for params in configurations])

    def enqueue(self, params: Mapping[str, JsonValue], clone: Clone | None = None) -> None:
        """Enqueue a configuration to try next, after those that were enqueued before.

        Args:
            params: A configuration. Fixed values may be omitted.
            clone: The trial from which it was cloned, if it was. If it inherits weights, no pruner
                stops it, and the sampler does not learn from it.

        Raises:
            ExperimentError: If it is not a configuration of the space, the study is a replay, or
                trials of its experiment cannot inherit weights.
        """
        self._check_not_replay()
        if clone is not None and clone.inherits:
            self._check_weights_can_be_inherited()
        if self._population is not None and len(self._enqueued) >= self._population.num_unborn:
            raise ExperimentError(
                "every member of the population has already started",
                next_step="Start another run with this configuration.",
            )
        self._enqueued.append((self._checked(params), clone))

    def _check_weights_can_be_inherited(self) -> None:
        problem = None
        if self._population is not None:
            problem = "a population already decides which trial continues from which weights"
        elif self._promotions is not None:
            problem = "with a fidelity, trials are only compared if they train from the start"
        if problem is not None:
            raise ExperimentError(
                problem, field="from_", next_step="Clone the trial from its start, or start a run."
            )

    def enqueued_clones(self) -> list[Clone]:
        """Return the clones that have not been proposed yet."""
        return [clone for _, clone in self._enqueued if clone is not None]

    def branches(self, trial: int) -> list[int]:
        """Return the steps at which a trial of a replay keeps a checkpoint for its clones."""
        return [] if self._recording is None else self._recording.branches(trial)

    def curve_of(self, trial: int) -> dict[int, float]:
        """Return the first objective of a trial by rung, as it was first reported there.

        Args:
            trial: The trial.

        Raises:
            RunError: If the study has not proposed it.
        """
        return dict(self._record(trial).reports)

    def needed(self) -> set[int]:
        """Return the trials from whose checkpoints others may still continue."""
        needed = set(self._resumed.values())
        needed |= {
            self._configurations[number].trials[-1].proposal.trial
            for number in self._learner.stopped()
        }
        if self._population is not None:
            needed |= self._population.needed()
        if self._recording is not None:
            needed |= self._recording.needed()
        return needed

    # Reports and ends of trials.

    def report(self, trial: int, rung: int, values: Mapping[str, float]) -> bool:
        """Record a report of a trial.

        Args:
            trial: Number of the trial.
            rung: The resource that was spent, in epochs or steps. Each rung is only judged once.
            values: Metrics by name.

        Returns:
            Whether the trial should stop now.
        """
        return self.take_report(
            TrialReported(trial=trial, step=rung, epoch=None, values=dict(values))
        )

    def take_report(self, event: TrialReported) -> bool:
        """Record a stored report, and return whether the trial should stop now."""
        record = self._record(event.trial)
        if record.value is None:  # the trial has ended
            return record.prune
        record.elapsed_s[event.attempt] = event.elapsed_s
        if event.memory_share is not None:
            record.memory_share = max(event.memory_share, record.memory_share or 0.0)
        record.value.report(
            event.values, step=event.step, attempt=event.attempt, returned=event.returned
        )
        # With a fidelity, trainings are only compared at their ends.
        if self.experiment.fidelity is not None:
            return False
        value = event.values.get(self._metrics[0], math.nan)
        if not math.isfinite(value):
            return record.prune
        reached = self.experiment.early_stop.values_at_rungs(record.last_seen, event, value)
        new_rungs = record.take(reached, event.epoch, value)
        if self._configurations[record.proposal.configuration].inherits:
            return record.prune
        if record.proposal.repeat == 0 and not self._repeats_test:
            for rung in new_rungs:
                self._judge(record, event, rung, reached[rung])
        return record.prune

    def _judge(self, record: TrialRecord, event: TrialReported, rung: int, value: float) -> None:
        """Let the pruner decide whether a trial should stop at a new rung."""
        configuration = record.proposal.configuration
        stop = self._learner.judge(configuration, rung, record.seen(self._metrics, value))
        grace = max(self.experiment.early_stop.grace, record.first_turn)
        may_stop = rung >= grace and not record.is_over_with(event)
        if not may_stop or record.prune:
            return
        if stop and record.doubt is None:
            at = partial(self.experiment.early_stop.describe_rung, event)
            why = self._learner.explain(configuration, at)
            record.doubt = self._doubt(configuration, value, why)
            if record.doubt is None:
                record.why_pruned = why
        elif record.doubt is not None:
            record.doubt.values.append(value)
            sign = 1 if self.experiment.objectives[0].goal == "maximize" else -1
            if record.doubt.is_over:
                record.why_pruned = record.doubt.verdict(sign)
                record.doubt = None

    def _doubt(self, configuration: int, value: float, why: str) -> Doubt | None:
        """Return the doubt about a trial that is behind by less than the noise, or None.

        Nothing is known about the noise before some configuration was trained twice, in this run or
        in an earlier one.
        """
        noise = noise_with_inherited(self._repeated_values(), self._inherited_repeats)
        if noise is None:
            return None
        behind = self._learner.shortfall(configuration)
        if behind is None or behind >= math.sqrt(2 * noise.variance):
            return None
        sign = 1 if self.experiment.objectives[0].goal == "maximize" else -1
        return Doubt(value + sign * behind, why, [value])

    def _repeated_values(self) -> list[list[float]]:
        """Return the results of the configurations that were trained more than once."""
        metric = self._metrics[0]
        groups = [
            [
                value
                for trial in record.trials
                if trial.ended is not None
                and trial.ended.state == "complete"
                and math.isfinite(value := trial.ended.values.get(metric, math.nan))
            ]
            for record in self._comparable()
            if len(record.trials) > 1
        ]
        return [values for values in groups if len(values) > 1]

    def tell(self, trial: int, outcome: TrialEnded) -> None:
        """Record how a trial ended.

        Args:
            trial: Number of the trial.
            outcome: Its state, the reason if it failed, and its values.
        """
        record = self._record(trial)
        if record.ended is not None:
            return
        record.end(outcome)
        self._resumed.pop(trial, None)
        configuration = self._configurations[record.proposal.configuration]
        # A confirmation of a configuration that has an outcome. The sampler only learns the first
        # outcome, because comparing means of different numbers of trainings would mislead it.
        if configuration.outcome is not None:
            configuration.confirmed = (
                configuration.combine(self._metrics) or configuration.confirmed
            )
            return
        result = record.outcome(self._metrics)
        assert result is not None
        if configuration.inherits:
            configuration.outcome = result
            return
        if self._promotions is not None and result.state == "pruned":
            value = result.values[self._metrics[0]]
            rung = self._promotions.finish(configuration.number, value)
            record.reports = {rung: value}
            self._learner.judge(configuration.number, rung, [value])
        if result.state == "complete":
            self._take_repeat(configuration, record.proposal.repeat, result)
        combined = configuration.combine(self._metrics)
        if combined is not None:
            configuration.outcome = combined
            self._learner.finish(configuration, combined)
        if self._population is not None:
            value = result.values[self._metrics[0]] if result.state == "complete" else None
            self._population.finish(trial, value)

    def _take_repeat(
        self, configuration: ConfigurationRecord, repeat: int, result: Outcome
    ) -> None:
        """Queue repeats after a first training, or drop them if the pruner rejects the values."""
        if repeat == 0 and self._recording is None:
            for later in range(1, self.experiment.repeats):
                self._waiting_repeats.append((configuration.number, later))
            configuration.num_waiting = self.experiment.repeats - 1
        value = result.values[self._metrics[0]]
        judged = self._repeats_test and self._learner.judge(configuration.number, repeat, [value])
        if judged and self._recording is None:
            configuration.prune = True
            configuration.num_waiting = 0
            self._waiting_repeats = deque(
                waiting for waiting in self._waiting_repeats if waiting[0] != configuration.number
            )

    def confirm_best(self, num_best: int) -> None:
        """Train this many of the best configurations again, once the search is over."""
        self._num_to_confirm = num_best

    def inherit_repeats(self, event: RepeatsInherited) -> None:
        """Let trainings of earlier runs show the noise, which ends the race of `confirm` sooner.

        Args:
            event: The trainings.
        """
        self._inherited_repeats = event

    def add_prior(self, event: PriorTrialAdded) -> None:
        """Add a trial of an earlier run for the sampler to learn from.

        nsga2, nsga3 and grid do not learn from it. Pruners compare other trials with it at the
        rungs that it reported.

        Args:
            event: The trial. Its parameters must be a configuration of this space.

        Raises:
            ExperimentError: If it is not a configuration of the space, or lacks an objective.
        """
        params = self._checked(event.params)
        if self.experiment.fidelity is not None:
            if event.state == "pruned":  # its rungs are not levels of the fidelity
                return
            event = event.model_copy(update={"reports": []})
        self._learner.add_prior(params, event)

    # Replays.

    def replay(self, proposals: Iterable[TrialProposed]) -> None:
        """Propose exactly the trainings that another study proposed, in the same order.

        Args:
            proposals: All recorded proposals, by number of the trial.

        Raises:
            RunError: If this study has proposed something already.
        """
        if self._trials:
            raise RunError(
                "the study has already proposed a trial", next_step="Replay into a new run."
            )
        self._recording = Recording(proposals)

    def _ask_replayed(self, recording: Recording, repeats_only: bool) -> Proposal | None:
        running = [number for number, record in self._trials.items() if record.ended is None]
        if (recorded := recording.next(running, repeats_only=repeats_only)) is None:
            return None
        if recorded.resumes is not None:
            return self._resume(self._configurations[recorded.configuration])
        if recorded.configuration < len(self._configurations):
            configuration = self._configurations[recorded.configuration]
        else:
            configuration = self._configure(
                self._in_full(recorded.params), recorded.source, recorded.clone
            )
            configuration.num_waiting = recording.num_trainings[configuration.number]
        configuration.num_waiting -= 1
        return self._propose(
            configuration,
            recorded.repeat,
            recorded.source,
            seed=recorded.seed,
            segment=recorded.segment,
            clone=recorded.clone,
        )

    def _replay(self, event: TrialProposed) -> None:
        """Apply a proposal of this run that is already stored."""
        if event.trial != len(self._trials):
            raise RunError(
                f"the event proposes trial {event.trial}, but trial {len(self._trials)} is next",
                next_step="Events are missing in the store. Restore it from a backup.",
            )
        if self._recording is not None:
            self._ask_replayed(self._recording, repeats_only=False)
        elif event.resumes is not None:
            self._resume(self._configurations[event.configuration])
        elif event.configuration < len(self._configurations):
            configuration = self._configurations[event.configuration]
            if configuration.outcome is None:
                self._waiting_repeats.remove((event.configuration, event.repeat))
                configuration.num_waiting -= 1
            self._propose(configuration, event.repeat, event.source)
        else:
            params = self._in_full(event.params)
            if event.source == "enqueued" and (params, event.clone) in self._enqueued:
                self._enqueued.remove((params, event.clone))
            configuration = self._configure(params, event.source, event.clone)
            self._propose(
                configuration, event.repeat, event.source, segment=event.segment, clone=event.clone
            )
        self._trials[event.trial].proposed_unix_s = event.time_unix_s

    def _in_full(self, params: Params) -> Params:
        """Return the configuration without the fidelity at which it was trained."""
        if self._promotions is None:
            return dict(params)
        return self._promotions.levels.complete(params)

    # Changes of the space and of the code.

    def change_search(self, changes: Any) -> int:
        """Search another space from now on, as `Learner.change_search`.

        Raises:
            ExperimentError: If the space of this study cannot change.
        """
        self._check_not_replay()
        if self._population is not None:
            raise ExperimentError(
                "you cannot change the search space of a population", next_step="Start another run."
            )
        if self._promotions is not None:
            raise ExperimentError(
                "you cannot change the search space of a run with a fidelity",
                next_step="Start another run.",
            )
        enqueued = [params for params, _ in self._enqueued]
        num_kept = self._learner.change_search(changes, self._outcomes(), enqueued)
        space = self.experiment.search
        self._tried = {
            space.key_of(record.params)
            for record in self._configurations
            if record.number not in self._of_earlier_code and not record.inherits
        }
        self._combinations = self._combinations_of(self.experiment)
        return num_kept

    def check_program(self) -> None:
        """Check that the code of the run may change.

        Raises:
            ExperimentError: If later trials continue earlier ones, or the run is a replay.
        """
        self._check_not_replay()
        kind = None
        if self._population is not None:
            kind = "population"
        elif self._promotions is not None:
            kind = "run with a fidelity"
        if kind is not None:
            raise ExperimentError(
                f"you cannot change the code of a {kind}", next_step="Start another run."
            )

    def change_program(self, event: ProgramKept) -> None:
        """Learn the function of changed code. Trials so far count as those of a related run.

        Args:
            event: The new version. Trials in `continued` still run the code that they started with.
        """
        if (self._population, self._promotions, self._recording) != (None, None, None):
            return
        finished = list(self._outcomes())
        begun = [
            record
            for record in self._configurations
            if record.outcome is None and not record.inherits
        ]
        kept = {
            record.number
            for record in begun
            if any(
                trial.ended or trial.proposal.trial in event.continued for trial in record.trials
            )
        }
        self._learner.change_program(f"code {event.version - 1}", finished, begun, kept)
        self._of_earlier_code |= {record.number for record, _ in finished} | kept
        space = self.experiment.search
        self._tried = {space.key_of(record.params) for record in begun if record.number not in kept}
        # With the new code, no combination has been tried.
        self._combinations = self._combinations_of(self.experiment)
        if self._grid is not None:
            self._grid = Grid(self.experiment)

    def _check_not_replay(self) -> None:
        if self._recording is not None:
            raise ExperimentError(
                "a replay only repeats recorded trials, so you cannot change it",
                next_step="Start another run.",
            )

    # Results.

    def result(self, trial: int) -> dict[str, float]:
        """Return the values of a trial.

        Args:
            trial: Number of the trial.

        Returns:
            Its values so far, by the `value` of each objective.
        """
        return self._record(trial).result()

    def why_pruned(self, trial: int) -> str | None:
        """Return why a trial should stop in one sentence, or None if no pruner decided that."""
        return self._record(trial).why_pruned

    def best_trials(self) -> list[int]:
        """Return the best feasible trial, or with several objectives the Pareto front.

        Returns:
            Numbers of trials. A configuration is represented by its repeat with the best value, or
            with several objectives by its first complete repeat. Empty while no feasible trial is
            complete.
        """
        finished = [
            (record, record.confirmed or record.outcome)
            for record in self._configurations
            if record.outcome is not None and record.number not in self._of_earlier_code
        ]
        return export.best_trials(self.experiment, finished)

    def importance(
        self, trials: Collection[int] | None = None, *, read: ReadReports | None = None
    ) -> Importance:
        """Return the importance of each searched parameter, the most important first.

        Args:
            trials: Only use the configurations of these trials, or None for all.
            read: Returns the reports of some trials, oldest first, for a study that was rebuilt
                from `ENDS`. At most a few hundred trials are read.

        Returns:
            The share of each parameter in the variance over the space, with its 90 % interval. 0
            for a parameter without an effect. Empty with too few trials or several objectives.
        """
        if self.experiment.sampler.kind.is_population:
            # Members continue from each other, so a value is not due to its parameters alone.
            return {}
        finished = (
            (record, outcome)
            for record, outcome in self._outcomes()
            if trials is None or any(trial.proposal.trial in trials for trial in record.trials)
        )
        if read is None or self.experiment.fidelity is not None:  # then only ends are compared
            return self._learner.importance(finished)
        return self._learner.importance(finished, partial(self._add_reports, read))

    def _add_reports(self, read: ReadReports, records: Sequence[ConfigurationRecord]) -> None:
        """Give the first trainings of some configurations the reports that they ended with."""
        trainings = [self._continued(record.trials[0]) for record in records]
        metric, early_stop = self._metrics[0], self.experiment.early_stop
        numbers = {part.proposal.trial for parts in trainings for part in parts}
        for event in read(numbers):
            value = event.values.get(metric, math.nan)
            if math.isfinite(value):
                record = self._record(event.trial)
                reached = early_stop.values_at_rungs(record.last_seen, event, value)
                record.take(reached, event.epoch, value)
        for parts in trainings:
            for before, after in pairwise(parts):
                after.reports |= before.reports

    def _continued(self, record: TrialRecord) -> list[TrialRecord]:
        """Return a training with the stopped ones that it continues, oldest first."""
        parts = [record]
        while (before := parts[0].proposal.resumes) is not None:
            parts.insert(0, self._record(before))
        return parts

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
        export.copy_to_storage(self.experiment, parameters, trials, url=url, name=name)

    def _outcomes(self) -> Iterator[tuple[ConfigurationRecord, Outcome]]:
        """Yield the configurations of the current code that have ended, as the sampler learns."""
        for record in self._comparable():
            if record.outcome is not None:
                yield record, record.outcome

    def _next_confirmation(self) -> tuple[ConfigurationRecord, int] | None:
        experiment = self.experiment
        if self._num_to_confirm is not None:
            # Without a check, which came with the change: this is asked for with each trial.
            confirm = experiment.confirm.model_copy(update={"best": self._num_to_confirm})
            experiment = experiment.model_copy(update={"confirm": confirm})
        return next_confirmation(experiment, self._comparable(), self._inherited_repeats)

    def _comparable(self) -> list[ConfigurationRecord]:
        """Return the configurations that trained from the start with the current code.

        Other code, or inherited weights, measure another function.
        """
        if not self._of_earlier_code and not self._has_inherited:
            return self._configurations
        return [
            record
            for record in self._configurations
            if not record.inherits and record.number not in self._of_earlier_code
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
