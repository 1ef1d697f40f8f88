"""The study itself: ask, report, tell, and the replay of events."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import JsonValue

from workbench.experiment import Experiment
from workbench.experiment.fidelity import Levels
from workbench.experiment.search_changes import SEARCH
from workbench.experiment.space import Params
from workbench.experiment.trial_value import TrialValue
from workbench.foundation.errors import ExperimentError, RunError
from workbench.foundation.events import (
    Event,
    MemoryPredicted,
    PriorTrialAdded,
    ProgramKept,
    ReplayPlanned,
    Segment,
    SettingsChanged,
    TrialEnded,
    TrialEnqueued,
    TrialProposed,
    TrialReported,
)
from workbench.search import confirmation, samplers
from workbench.search.grid import Grid, is_small, key_of
from workbench.search.population import Population
from workbench.search.promotions import Promotions
from workbench.search.recording import Recording
from workbench.search.records import ConfigurationRecord, Proposal, TrialRecord, num_epochs
from workbench.search.results import Results


class Study(Results):
    """Proposes configurations, decides which trainings stop early, and learns from their
    results.
    """

    def __init__(self, experiment: Experiment) -> None:
        """Start without any trial.

        Args:
            experiment: What to tune.

        Raises:
            ExperimentError: If the sampler cannot handle the experiment.
        """
        super().__init__(experiment)
        self._waiting_repeats: deque[tuple[int, int]] = deque()
        self._enqueued: deque[Params] = deque()
        self._recording: Recording | None = None
        self._tried: set[str] = set()
        self._resumed: dict[int, int] = {}  # by running trial, the stopped one that it continues
        self._grid = Grid(experiment) if experiment.sampler.kind.enumerates_grid else None
        self._population = Population(experiment) if experiment.sampler.kind.is_population else None
        self._combinations = self._combinations_of(experiment)
        self._has_repeated = False  # whether the sampler's last configuration was known
        levels = Levels.of(experiment)
        self._promotions = None if levels is None else Promotions(experiment, levels)

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
            case MemoryPredicted():
                self._learner.predict_memory(event)
            case SettingsChanged() if SEARCH in event.settings:
                self.change_search(event.settings[SEARCH])
            case ReplayPlanned():
                self.replay(event.proposals)
            case ProgramKept() if event.version > 1:
                self.change_program(event)
            case _:
                pass

    @property
    def num_enqueued(self) -> int:
        """How many enqueued configurations have not been proposed yet."""
        return len(self._enqueued)

    @property
    def has_waiting_repeats(self) -> bool:
        """Whether `ask` has further trainings of configurations that were begun."""
        return bool(self._waiting_repeats) if self._recording is None else self._recording.repeats

    @property
    def has_confirmations(self) -> bool:
        """Whether `ask` trains known configurations now, if it proposes no new one.

        It continues stopped ones that may end as the best, trains promising ones at a higher
        fidelity, and the best ones again.
        """
        return self._recording is None and (
            self._to_resume(is_searching=False) is not None
            or confirmation.next_training(self.experiment, self._comparable()) is not None
        )

    @property
    def exhausted(self) -> bool:
        """Whether `ask` will never propose anything again."""
        if self._recording is not None:
            return self._recording.is_over
        if self._population is not None:
            return self._population.exhausted
        grid = self._grid or self._combinations
        if grid is None or self._enqueued or self._waiting_repeats:
            return False
        if self.experiment.repeats > 1 and any(
            record.outcome is None for record in self._configurations
        ):
            return False
        return grid.point(self._tried) is None

    def _combinations_of(self, experiment: Experiment) -> Grid | None:
        """Return all combinations of a space that a run can use up, though its sampler knows of no
        grid.

        The same configuration with the same seed is the same training: `repeats` and `confirm` ask
        for more.
        """
        if (
            self._grid is not None
            or self._population is not None
            or not is_small(experiment.search)
        ):
            return None
        return Grid(experiment)

    def ask(self, *, repeats_only: bool = False) -> Proposal | None:
        """Propose the next training.

        Repeats of configurations whose first training completed come first, then enqueued
        configurations, then the sampler's, and at last the best ones again. A replay proposes what
        was recorded, in that order.

        Args:
            repeats_only: Propose no new configuration, because the budget has no room for one.

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
        part = None if self._population is None else self._population.next()
        if self._population is not None and (part is None or part.params is not None):
            return (
                None
                if part is None
                else self._propose(
                    self._configure(part.params, "sampler"), 0, "sampler", segment=part.segment
                )
            )
        segment = part and part.segment
        if self._enqueued:
            configuration = self._configure(self._enqueued.popleft(), "enqueued")
            return self._propose(configuration, 0, "enqueued", segment=segment)
        if (resumed := self._resume_best(is_searching=True)) is not None:
            return resumed
        if self._grid is None:
            chosen = None
            if self._combinations is not None:
                untried = self._combinations.point(self._tried)
                if untried is None and self._tried:
                    return self._confirm()
                # A sampler that repeats itself has learnt what it can: the next one is new.
                chosen = untried if self._has_repeated else None
            return self._propose(self._configure(chosen, "sampler"), 0, "sampler", segment=segment)
        if (point := self._grid.point(self._tried)) is None:
            return self._confirm()
        return self._propose(self._configure(point, "sampler"), 0, "sampler")

    def _resume_best(self, *, is_searching: bool) -> Proposal | None:
        """Continue the stopped trial that may end as the best by what is known now, if there is
        one.
        """
        number = self._to_resume(is_searching=is_searching)
        return None if number is None else self._resume(self._configurations[number])

    def _to_resume(self, *, is_searching: bool) -> int | None:
        """Return the configuration to continue from its checkpoint, or at a higher fidelity."""
        if self._promotions is None:
            return self._learner.to_resume()
        is_running = any(record.outcome is None for record in self._configurations)
        return self._promotions.next(is_over=not is_searching and not is_running)

    def _resume(self, configuration: ConfigurationRecord) -> Proposal:
        """Continue the training of a configuration that was stopped, or train it at a higher
        fidelity.
        """
        before, begins_anew = configuration.trials.pop(), self._promotions is not None
        reports = None if begins_anew else before.reports
        self._learner.begin(
            configuration.number, configuration.params, sampled=False, reports=reports
        )
        configuration.outcome = None
        proposal = self._propose(
            configuration,
            before.proposal.repeat,
            before.proposal.source,
            before.proposal.seed,
            resumes=before.proposal.trial,
        )
        if not begins_anew:
            configuration.trials[-1].continue_from(before)
            self._resumed[proposal.trial] = before.proposal.trial
        return proposal

    def _confirm(self) -> Proposal | None:
        if (found := confirmation.next_training(self.experiment, self._comparable())) is None:
            return None
        configuration, repeat = found
        return self._propose(configuration, repeat, configuration.trials[0].proposal.source)

    def _configure(self, chosen: Params | None, source: str) -> ConfigurationRecord:
        """Start a configuration: the given one, or one that the sampler chooses."""
        number = len(self._configurations)
        sampled = source == "sampler" and self._recording is None
        params = self._learner.begin(number, chosen, sampled=sampled)
        record = ConfigurationRecord(number, params)
        self._configurations.append(record)
        key = key_of(self._learner.experiment.search, params)
        self._has_repeated = key in self._tried
        self._tried.add(key)
        return record

    def _propose(
        self,
        configuration: ConfigurationRecord,
        repeat: int,
        source: Literal["sampler", "enqueued"],
        seed: int | None = None,
        segment: Segment | None = None,
        resumes: int | None = None,
    ) -> Proposal:
        if seed is None:
            seed = samplers.training_seed(self.experiment.seed, repeat)
        params, low = configuration.params, None
        if self._promotions is not None and repeat == 0:
            low = self._promotions.begin(configuration.number)
            params = params if low is None else {**params, low.name: low.value}
        proposal = Proposal(
            len(self._trials),
            params,
            configuration.number,
            repeat,
            seed,
            source,
            segment,
            resumes,
            low,
        )
        if self._population is not None and segment is not None:
            self._population.begin(proposal.trial, proposal.params, segment)
        record = TrialRecord(
            proposal, TrialValue(self.experiment), num_epochs(self.experiment, proposal.params)
        )
        configuration.trials.append(record)
        self._trials[proposal.trial] = record
        return proposal

    def replay(self, proposals: Iterable[TrialProposed]) -> None:
        """Propose what another study of the experiment proposed, in the same order, and nothing
        else.

        Args:
            proposals: All recorded proposals, by number of the trial.

        Raises:
            RunError: If this study has proposed something already.
        """
        if self._trials:
            raise RunError(
                "the study has proposed something already", next_step="Replay into a new run."
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
            configuration = self._configure(self._in_full(recorded.params), recorded.source)
            configuration.num_waiting = recording.num_trainings[configuration.number]
        configuration.num_waiting -= 1
        return self._propose(
            configuration, recorded.repeat, recorded.source, recorded.seed, recorded.segment
        )

    def _replay(self, event: TrialProposed) -> None:
        if event.trial != len(self._trials):
            raise RunError(
                f"the event proposes trial {event.trial} where {len(self._trials)} is next",
                next_step="The stored events are incomplete: restore the store from a backup.",
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
            if event.source == "enqueued" and params in self._enqueued:
                self._enqueued.remove(params)
            configuration = self._configure(params, event.source)
            self._propose(configuration, event.repeat, event.source, segment=event.segment)
        self._trials[event.trial].proposed_unix_s = event.time_unix_s

    def _in_full(self, params: Params) -> Params:
        """Return the configuration that was trained, at any fidelity."""
        return (
            dict(params) if self._promotions is None else self._promotions.levels.complete(params)
        )

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
        repeat, configuration = (
            record.proposal.repeat,
            self._configurations[record.proposal.configuration],
        )
        if (
            configuration.outcome is not None
        ):  # trained again: the sampler compares first outcomes only
            configuration.confirmed = (
                configuration.combine(self._metrics) or configuration.confirmed
            )
            return
        result = record.outcome(self._metrics)
        assert result is not None
        if self._promotions is not None and result.state == "pruned":
            value = result.values[self._metrics[0]]
            rung = self._promotions.finish(configuration.number, value)
            record.reports = {rung: value}
            self._learner.judge(configuration.number, rung, [value])
        if result.state == "complete":
            if repeat == 0 and self._recording is None:
                for later in range(1, self.experiment.repeats):
                    self._waiting_repeats.append((configuration.number, later))
                configuration.num_waiting = self.experiment.repeats - 1
            value = result.values[self._metrics[0]]
            judged = self._repeats_test and self._learner.judge(
                configuration.number, repeat, [value]
            )
            if judged and self._recording is None:
                self._forgo_repeats(configuration)
        combined = configuration.combine(self._metrics)
        if combined is not None:
            configuration.outcome = combined
            self._learner.finish(configuration, combined)
        if self._population is not None:
            value = result.values[self._metrics[0]] if result.state == "complete" else None
            self._population.finish(trial, value)

    def _forgo_repeats(self, configuration: ConfigurationRecord) -> None:
        configuration.prune = True
        configuration.num_waiting = 0
        self._waiting_repeats = deque(
            one for one in self._waiting_repeats if one[0] != configuration.number
        )

    def enqueue(self, params: Mapping[str, JsonValue]) -> None:
        """Enqueue a configuration to be tried next, after those enqueued before.

        Args:
            params: A configuration; fixed values may be left out.

        Raises:
            ExperimentError: If it is not a configuration of the space, or the study is a replay.
        """
        self._refuse_where_fixed()
        if self._population is not None and len(self._enqueued) >= self._population.num_unborn:
            raise ExperimentError(
                "every member of the population has begun", next_step="Start another run with it."
            )
        self._enqueued.append(self._checked(params))

    def _refuse_where_fixed(self) -> None:
        if self._recording is not None:
            raise ExperimentError(
                "a replay tries only what was recorded", next_step="Start another run."
            )

    def change_search(self, changes: Any) -> int:
        """Search another space from now on, as `Learner.change_search`; a replay refuses it."""
        self._refuse_where_fixed()
        if self._population is not None:
            raise ExperimentError(
                "the members of a population keep their space", next_step="Start another run."
            )
        if self._promotions is not None:
            raise ExperimentError(
                "a run with a fidelity keeps its space", next_step="Start another run."
            )
        num_kept = self._learner.change_search(changes, self._outcomes(), self._enqueued)
        space = self._learner.experiment.search
        self._tried = {
            key_of(space, record.params)
            for record in self._configurations
            if record.number not in self._of_earlier_code
        }
        self._combinations = self._combinations_of(self._learner.experiment)
        return num_kept

    def check_program(self) -> None:
        """Refuse to change the code where later trials continue what earlier ones began.

        Raises:
            ExperimentError: If they do, or the run is a replay.
        """
        self._refuse_where_fixed()
        if self._population is not None or self._promotions is not None:
            what = (
                "the members of a population keep"
                if self._population
                else "a run with a fidelity keeps"
            )
            raise ExperimentError(
                f"{what} the code with which the run began", next_step="Start another run."
            )

    def change_program(self, event: ProgramKept) -> None:
        """Learn another function from now on: its trials so far are those of a related run.

        Args:
            event: The new version. A trial in `continued` still runs the code with which it began.
        """
        if (
            self._population is not None
            or self._promotions is not None
            or self._recording is not None
        ):
            return
        finished = list(self._outcomes())
        begun = [record for record in self._configurations if record.outcome is None]
        kept = {
            record.number
            for record in begun
            if any(
                trial.ended or trial.proposal.trial in event.continued for trial in record.trials
            )
        }
        self._learner.change_program(f"code {event.version - 1}", finished, begun, kept)
        self._of_earlier_code |= {record.number for record, _ in finished} | kept
        space = self._learner.experiment.search
        self._tried = {
            key_of(space, record.params) for record in begun if record.number not in kept
        }
        # All combinations are new to the new code.
        self._has_repeated = False
        self._combinations = self._combinations_of(self._learner.experiment)
        if self._grid is not None:
            self._grid = Grid(self.experiment)

    def needed(self) -> set[int]:
        """Return the trials from whose checkpoints others may still continue."""
        needed = set(self._resumed.values())
        needed |= {
            self._configurations[one].trials[-1].proposal.trial for one in self._learner.stopped()
        }
        if self._population is not None:
            needed |= self._population.needed()
        return needed if self._recording is None else needed | self._recording.needed()
