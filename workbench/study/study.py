"""The study itself: ask, report, tell, and the replay of events."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from pydantic import JsonValue

from workbench.errors import ExperimentError, RunError
from workbench.events import (
    Event,
    PriorTrialAdded,
    ReplayPlanned,
    SettingsChanged,
    TrialEnded,
    TrialEnqueued,
    TrialProposed,
    TrialReported,
)
from workbench.experiment import Experiment
from workbench.experiment.search_changes import SEARCH
from workbench.experiment.trial_value import TrialValue
from workbench.space import Params
from workbench.study import confirmation, export, samplers
from workbench.study.grid import Grid, key_of
from workbench.study.learner import Learner
from workbench.study.records import ConfigurationRecord, Outcome, Proposal, TrialRecord, num_epochs


class Study:
    """Proposes configurations, decides which trainings stop early, and learns from their results."""

    def __init__(self, experiment: Experiment) -> None:
        """Start without any trial.

        Args:
            experiment: What to tune.

        Raises:
            ExperimentError: If the sampler cannot handle the experiment.
        """
        self._metrics = [objective.metric for objective in experiment.objectives]
        self._repeats_test = experiment.repeats > 1 and experiment.early_stop.kind.compares_repeats
        self._trials: dict[int, TrialRecord] = {}
        self._configurations: list[ConfigurationRecord] = []
        self._waiting_repeats: deque[tuple[int, int]] = deque()
        self._enqueued: deque[Params] = deque()
        self._replayed: deque[TrialProposed] | None = None
        self._num_recorded: Counter[int] = Counter()
        self._learner = Learner(experiment)
        self._tried: set[str] = set()
        self._grid = Grid(experiment) if experiment.sampler.kind.enumerates_grid else None

    @classmethod
    def rebuild(cls, experiment: Experiment, events: Iterable[Event]) -> Study:
        """Build a study from the events of a run.

        Args:
            experiment: The experiment.
            events: The events of a run, in order.

        Returns:
            A study that proposes what the live one would have proposed.
        """
        study = cls(experiment)
        for event in events:
            study.apply(event)
        return study

    def apply(self, event: Event) -> None:
        """Apply one stored event; events that do not concern the study do nothing."""
        match event:
            case TrialProposed():
                self._replay(event)
            case TrialReported():
                self.take_report(event)
            case TrialEnded():
                self.tell(event.trial, event)
            case TrialEnqueued():
                self.enqueue(event.params)
            case PriorTrialAdded():
                self.add_prior(event)
            case SettingsChanged() if SEARCH in event.settings:
                self.change_search(event.settings[SEARCH])
            case ReplayPlanned():
                self.replay(event.proposals)
            case _:
                pass

    @property
    def experiment(self) -> Experiment:
        """What is tuned, in the space that is in force."""
        return self._learner.experiment

    @property
    def num_enqueued(self) -> int:
        """How many enqueued configurations have not been proposed yet."""
        return len(self._enqueued)

    @property
    def has_waiting_repeats(self) -> bool:
        """Whether `ask` has further trainings of configurations that were begun."""
        if self._replayed is not None:
            return bool(self._replayed) and self._replayed[0].repeat > 0
        return bool(self._waiting_repeats)

    @property
    def has_confirmations(self) -> bool:
        """Whether `ask` trains one of the best configurations again now, if it proposes no new one."""
        return (
            self._replayed is None
            and confirmation.next_training(self.experiment, self._configurations) is not None
        )

    @property
    def exhausted(self) -> bool:
        """Whether `ask` will never propose anything again."""
        if self._replayed is not None:
            return not self._replayed
        if self._grid is None or self._enqueued or self._waiting_repeats:
            return False
        if self.experiment.repeats > 1 and any(record.outcome is None for record in self._configurations):
            return False
        return self._grid.point(self._tried) is None

    def ask(self, *, repeats_only: bool = False) -> Proposal | None:
        """Propose the next training.

        Repeats of configurations whose first training completed come first, then enqueued
        configurations, then the sampler's, and at last the best ones again. A replay proposes what was
        recorded, in that order.

        Args:
            repeats_only: Propose no new configuration, because the budget has no room for one.

        Returns:
            The proposal, or None if there is nothing to propose at the moment.
        """
        if self._replayed is not None:
            return self._ask_replayed(repeats_only)
        if self._waiting_repeats:
            number, repeat = self._waiting_repeats.popleft()
            configuration = self._configurations[number]
            configuration.num_waiting -= 1
            return self._propose(configuration, repeat, configuration.trials[0].proposal.source)
        if repeats_only:
            return self._confirm()
        if self._enqueued:
            return self._propose(self._configure(self._enqueued.popleft(), "enqueued"), 0, "enqueued")
        if self._grid is None:
            return self._propose(self._configure(None, "sampler"), 0, "sampler")
        if (point := self._grid.point(self._tried)) is None:
            return self._confirm()
        return self._propose(self._configure(point, "sampler"), 0, "sampler")

    def _confirm(self) -> Proposal | None:
        if (found := confirmation.next_training(self.experiment, self._configurations)) is None:
            return None
        configuration, repeat = found
        return self._propose(configuration, repeat, configuration.trials[0].proposal.source)

    def _configure(self, chosen: Params | None, source: str) -> ConfigurationRecord:
        """Start a configuration: the given one, or one that the sampler chooses."""
        number = len(self._configurations)
        sampled = source == "sampler" and self._replayed is None
        params = self._learner.begin(number, chosen, sampled=sampled)
        record = ConfigurationRecord(number, params)
        self._configurations.append(record)
        if self._grid is not None:
            self._tried.add(key_of(params))
        return record

    def _propose(
        self,
        configuration: ConfigurationRecord,
        repeat: int,
        source: Literal["sampler", "enqueued"],
        seed: int | None = None,
    ) -> Proposal:
        if seed is None:
            seed = samplers.training_seed(self.experiment.seed, repeat)
        proposal = Proposal(
            trial=len(self._trials),
            params=configuration.params,
            configuration=configuration.number,
            repeat=repeat,
            seed=seed,
            source=source,
        )
        record = TrialRecord(
            proposal, TrialValue(self.experiment), num_epochs(self.experiment, proposal.params)
        )
        configuration.trials.append(record)
        self._trials[proposal.trial] = record
        return proposal

    def replay(self, proposals: Iterable[TrialProposed]) -> None:
        """Propose what another study of the experiment proposed, in the same order, and nothing else.

        Args:
            proposals: All recorded proposals, by number of the trial.

        Raises:
            RunError: If this study has proposed something already.
        """
        if self._trials:
            raise RunError("the study has proposed something already", next_step="Replay into a new run.")
        self._replayed = deque(proposals)
        self._num_recorded = Counter(proposal.configuration for proposal in self._replayed)

    def _ask_replayed(self, repeats_only: bool) -> Proposal | None:
        assert self._replayed is not None
        if not self._replayed or (repeats_only and self._replayed[0].repeat == 0):
            return None
        recorded = self._replayed.popleft()
        if recorded.configuration < len(self._configurations):
            configuration = self._configurations[recorded.configuration]
        else:
            configuration = self._configure(dict(recorded.params), recorded.source)
            configuration.num_waiting = self._num_recorded[configuration.number]
        configuration.num_waiting -= 1
        return self._propose(configuration, recorded.repeat, recorded.source, recorded.seed)

    def _replay(self, event: TrialProposed) -> None:
        if event.trial != len(self._trials):
            raise RunError(
                f"the event proposes trial {event.trial} where {len(self._trials)} is next",
                next_step="The stored events are incomplete: restore the store from a backup.",
            )
        if self._replayed is not None:
            self._ask_replayed(repeats_only=False)
        elif event.configuration < len(self._configurations):
            configuration = self._configurations[event.configuration]
            if configuration.outcome is None:
                self._waiting_repeats.remove((event.configuration, event.repeat))
                configuration.num_waiting -= 1
            self._propose(configuration, event.repeat, event.source)
        else:
            if event.source == "enqueued" and event.params in self._enqueued:
                self._enqueued.remove(event.params)
            self._propose(self._configure(event.params, event.source), event.repeat, event.source)
        self._trials[event.trial].proposed_unix_s = event.time_unix_s

    def report(self, trial: int, rung: int, values: Mapping[str, float]) -> bool:
        """Record a report of a trial.

        Args:
            trial: Number of the trial.
            rung: Resource spent, in epochs or steps, `TrialReported.rung`; each is judged only once.
            values: Metrics by name.

        Returns:
            Whether the trial should stop now.
        """
        return self.take_report(TrialReported(trial=trial, step=rung, epoch=None, values=dict(values)))

    def take_report(self, event: TrialReported) -> bool:
        """Record a report in its stored form, and return whether the trial should stop now."""
        record, rung = self._record(event.trial), self.experiment.early_stop.rung_of(event)
        if record.value is None:  # it has ended
            return record.prune
        record.value.report(event.values, step=event.step, attempt=event.attempt, returned=event.returned)
        value = event.values.get(self._metrics[0], math.nan)
        if not math.isfinite(value) or rung is None or rung in record.reports:
            return record.prune
        record.reports[rung] = value
        if record.proposal.repeat == 0 and not self._repeats_test:
            stop = self._learner.judge(record.proposal.configuration, rung, record.seen(self._metrics, value))
            may_stop = rung >= self.experiment.early_stop.grace and not record.is_over_with(event)
            record.prune = record.prune or (stop and may_stop)
        return record.prune

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
        repeat, configuration = record.proposal.repeat, self._configurations[record.proposal.configuration]
        if configuration.outcome is not None:  # trained again: the sampler compares first outcomes only
            configuration.confirmed = configuration.combine(self._metrics) or configuration.confirmed
            return
        result = record.outcome(self._metrics)
        assert result is not None
        if result.state == "complete":
            if repeat == 0 and self._replayed is None:
                for later in range(1, self.experiment.repeats):
                    self._waiting_repeats.append((configuration.number, later))
                configuration.num_waiting = self.experiment.repeats - 1
            value = result.values[self._metrics[0]]
            judged = self._repeats_test and self._learner.judge(configuration.number, repeat, [value])
            if judged and self._replayed is None:
                self._forgo_repeats(configuration)
        combined = configuration.combine(self._metrics)
        if combined is not None:
            configuration.outcome = combined
            self._learner.finish(configuration, combined)

    def _forgo_repeats(self, configuration: ConfigurationRecord) -> None:
        configuration.prune = True
        configuration.num_waiting = 0
        self._waiting_repeats = deque(one for one in self._waiting_repeats if one[0] != configuration.number)

    def _outcomes(self) -> Iterator[tuple[ConfigurationRecord, Outcome]]:
        yield from ((each, each.outcome) for each in self._configurations if each.outcome is not None)

    def _record(self, trial: int) -> TrialRecord:
        if (record := self._trials.get(trial)) is None:
            raise RunError(f"the study has not proposed a trial {trial}")
        return record

    def enqueue(self, params: Mapping[str, JsonValue]) -> None:
        """Enqueue a configuration to be tried next, after those enqueued before.

        Args:
            params: A configuration; fixed values may be left out.

        Raises:
            ExperimentError: If it is not a configuration of the space, or the study is a replay.
        """
        if self._replayed is not None:
            raise ExperimentError("a replay tries only what was recorded", next_step="Start another run.")
        self._enqueued.append(self._checked(params))

    def _checked(self, params: Mapping[str, JsonValue]) -> Params:
        try:
            return self.experiment.search.check(params)
        except ExperimentError as error:
            raise error.at("params") from error

    def change_search(self, changes: Any) -> int:
        """Search another space from now on, as `Learner.change_search`; a replay refuses it."""
        if self._replayed is not None:
            raise ExperimentError("a replay tries only what was recorded", next_step="Start another run.")
        return self._learner.change_search(changes, self._outcomes(), self._enqueued)

    def add_prior(self, event: PriorTrialAdded) -> None:
        """Add a trial of an earlier run for the sampler to learn from.

        nsga2, nsga3 and grid learn nothing from it; pruners compare with it at the rungs that it reported.

        Args:
            event: The trial; its parameters must be a configuration of this space.

        Raises:
            ExperimentError: If it is not a configuration of the space, or lacks an objective.
        """
        self._learner.add_prior(self._checked(event.params), event)

    def result(self, trial: int) -> dict[str, float]:
        """Return the values of a trial.

        Args:
            trial: Number of the trial.

        Returns:
            Its values so far, according to the objectives' `value`.
        """
        return self._record(trial).result()

    def best_trials(self) -> list[int]:
        """Return the best feasible trial, or with several objectives the Pareto front.

        Returns:
            Numbers of trials: of each configuration the repeat with the best value, or with several
            objectives its first complete repeat. Empty while nothing feasible is complete.
        """
        found = [(record, record.confirmed or outcome) for record, outcome in self._outcomes()]
        return export.best_trials(self.experiment, found)

    def importance(self) -> dict[str, tuple[float, float, float]]:
        """Return the importance of each searched parameter with its uncertainty, the most important first.

        Returns:
            Shares by PED-ANOVA over complete trials, each with its 90 % interval; 0 for a parameter that
            chance could explain. Empty with too few trials or several objectives.
        """
        return self._learner.importance(self._outcomes())

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
