"""The history of a run, built from its events: its state, its trials and the best trial.

A history is a projection: the same events always give the same history. It keeps one small record
per trial and no curves.

The trial that a user chose is a label of the run, not an event, so readers of a store set
`History.chosen_trial`. Samplers, pruners and limits never see it.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import JsonValue
from typing_extensions import Self

from workbench.experiment import Budget, Experiment, Objective
from workbench.experiment.automl import MIN_TRIAL_TIME_S, concluding_s, is_automl
from workbench.experiment.budget_units import Price, parse_price
from workbench.experiment.changes import SEARCH, change, covering, values_of, with_changes
from workbench.experiment.federated import ROUNDS_METRIC
from workbench.experiment.goals import Goal, sign_of
from workbench.experiment.metric_declarations import goal_in
from workbench.experiment.train_function import importing_tool
from workbench.foundation.errors import ArgumentError
from workbench.foundation.events import (
    FINISHED_RUN_STATES,
    AdviceRequested,
    AlertCleared,
    AlertDelivered,
    AlertRaised,
    AttemptEnded,
    CheckpointsDeleted,
    DriverStarted,
    EnergyMetered,
    Event,
    ModelChosen,
    Noted,
    ProgramKept,
    RepeatsInherited,
    ReplayPlanned,
    RunState,
    RunStateChanged,
    SettingsChanged,
    SharingMeasured,
    TrialEnded,
    TrialPlanned,
    TrialProposed,
    TrialReported,
    TrialStarted,
    TrialState,
    VersionDecided,
    VersionJudged,
)
from workbench.foundation.formatting import format_count, format_number
from workbench.store.history.certainty import certainty_lines
from workbench.store.history.run_clock import RunClock
from workbench.store.history.standings import Rank, Standings, describe_nearest, keeps, place
from workbench.store.history.trial import TRIAL_EVENTS, Trial, TrialEvent, apply_to_trial

if TYPE_CHECKING:
    from workbench.store.history.reports import Reports

WORKERS_START_S = 10.0
"""How long workers may take to start. A longer wait means that other runs use the resources."""


@dataclasses.dataclass
class Alert:
    """One alert, its clearing and its deliveries."""

    raised: AlertRaised
    cleared: AlertCleared | None = None
    deliveries: dict[str, AlertDelivered] = dataclasses.field(default_factory=dict)

    def describe(self) -> str:
        """Describe the alert in one line, with the sinks that received it."""
        text = self.raised.message
        if self.cleared is not None:
            text += f" (cleared: {self.cleared.message})"
        sent = [name for name, delivery in self.deliveries.items() if delivery.sent]
        if sent:
            text += f" (sent to {', '.join(sent)})"
        failed = [
            f"{name}: {item.message}" for name, item in self.deliveries.items() if not item.sent
        ]
        if failed:
            return f"{text} (not sent to {', '.join(failed)})"
        return text

    def to_json(self) -> dict[str, Any]:
        """Return the alert as plain values."""
        raised = self.raised.model_dump(mode="json", exclude={"type", "rule", "cause"})
        answers = {
            name: {"sent": item.sent, "message": item.message}
            for name, item in self.deliveries.items()
        }
        return raised | {"cleared": self.cleared is not None, "deliveries": answers}


@dataclasses.dataclass(frozen=True)
class Reading:
    """How far the events of a large run have been read.

    Until it is complete, only a part of the run is shown.

    Attributes:
        num_read: Events read so far.
        num_events: Events that the run has.
    """

    num_read: int
    num_events: int

    @property
    def share(self) -> float:
        """The share of events read, from 0 to 1."""
        return self.num_read / self.num_events

    def describe(self) -> str:
        """Describe it as views show it.

        Example:
            >>> from workbench.store.history.history import Reading
            >>> Reading(1696, 3000).describe()
            '1,696 of 3,000 events read'
        """
        return f"{self.num_read:,} of {format_count(self.num_events, 'event')} read"


INFEASIBLE, TARGET_MISSED = NO_RESULT = ("infeasible", "target not reached")
"""Why a complete trial is no result."""


class Spent(NamedTuple):
    """What a run has used up at one time.

    Attributes:
        active_s: Its run time, in seconds.
        gpu_s: How long its trials have held GPUs, in seconds.
        energy_wh: The energy of its trials in watt-hours, as far as it was recorded.
        best: The best value of the first objective so far, or None.
    """

    active_s: float
    gpu_s: float
    energy_wh: float
    best: float | None


class History:
    """The trials of a run and their results.

    Example:
        >>> history = wb.History.of(run.experiment, run.events())
        >>> history.state
        'complete'
    """

    def __init__(self, experiment: Experiment) -> None:
        """Start before the first event of a run of `experiment`."""
        self.experiment = experiment
        self.in_force = experiment
        """The experiment with the run's current budget and concurrency."""
        self.search_changes: dict[str, JsonValue] = {}
        """Changes of the search space since the run started, by parameter."""
        self.searched = experiment.search
        """A space with all values that the search space has had so far."""
        self.replay_of: str | None = None
        self.num_recorded = 0
        self.state: RunState = "waiting"
        self.reason: str | None = None
        self.message: str | None = None
        self.result: dict[str, JsonValue] | None = None
        """The model that an automatic run chose at its end, as `wb.AutoML.to_json` returns it."""
        self.trials: dict[int, Trial] = {}
        self.reading: Reading | None = None
        """How far the events have been read, set by readers that read in parts. None if all are."""
        self.energy_of_trials: Mapping[int, float | None] = {}
        """Energy of each metered trial in watt-hours. Readers of the run's samples set it."""
        self._metrics: dict[str, None] = dict.fromkeys(
            item.metric for item in experiment.objectives
        )
        self._params: dict[str, None] = dict.fromkeys(experiment.search.root)
        self.declared_goals: dict[str, Goal] = {}
        """The goals that metrics of the user and of other packages declare."""
        self.rates: set[str] = set()
        """The metrics that are shares of the validation samples, according to the trainings."""
        self.alerts: dict[int, Alert] = {}
        self.chosen_trial: int | None = None  # a label of the run, not an event
        self.drivers: list[DriverStarted] = []
        self.programs: list[ProgramKept] = []
        """The versions of the code that trials have run, oldest first."""
        self.inherited_repeats: RepeatsInherited | None = None
        """Trainings of earlier runs that show how much the results of one configuration differ."""
        self.decided_versions: dict[str, VersionDecided] = {}
        """The last decision of statistics about a version of the code, by its name."""
        self.judged_versions: dict[str, VersionJudged] = {}
        """What a person decided last about a version of the code, by its name."""
        self.started_unix_s: float | None = None
        self.stopping_unix_s: float | None = None
        """When it began to end while trials were under way."""
        self.ended_unix_s: float | None = None
        self.advice_budget_s: float | None = None
        self.energy_wh: float | None = None
        """Energy of the trials in watt-hours, if it was recorded because of a limit."""
        self.spent: list[Spent] = []
        """What the run had used at the end of each trial, if its budget has a `gain`."""
        self.spent_before = Spent(0.0, 0.0, 0.0, None)
        """What it had used when it last started or was resumed, if its budget has a `gain`."""
        self._trainings: dict[int, list[Trial]] = {}  # by configuration
        self._keys: dict[int, str] = {}  # of configurations
        self._standings = Standings(self)
        self._num_ends = 0
        self._ranked: tuple[int, list[Trial]] | None = None
        """All ranked trials, and after how many ends of trials."""
        self.clock = RunClock()
        """The run time, which all views use to say when something happened."""
        self._alive_until_unix_s = math.inf
        self._is_automl = is_automl(experiment)
        self.is_imported = importing_tool(experiment) is not None
        """Whether another tool has run it."""
        self._unserved_s = 0.0
        self._idle_since_unix_s: float | None = None  # no trial has workers
        self._was_served = False
        self._is_held_up = False  # other runs hold the workers
        self.clock_ahead_s = 0.0
        """How far the driver's clock is ahead of the times of the run, after it was set."""

    @classmethod
    def of(cls, experiment: Experiment, events: Iterable[Event]) -> Self:
        """Build a history from `events`, oldest first."""
        history = cls(experiment)
        for event in events:
            history.apply(event)
        return history

    def apply(self, event: Event) -> None:
        """Apply the next event."""
        self.clock.note(event)
        if (handle := _HANDLERS.get(type(event))) is not None:
            handle(self, event)
        if self._is_automl:
            self._note_service(event)

    def _start_driver(self, event: DriverStarted) -> None:
        self.drivers.append(event)
        self.clock_ahead_s = 0.0
        if self.started_unix_s is None:
            self.started_unix_s = event.time_unix_s

    def _request_advice(self, event: AdviceRequested) -> None:
        self.advice_budget_s = event.budget_s
        if not self.drivers:
            self.started_unix_s = event.time_unix_s

    def _note(self, event: Noted) -> None:
        if event.clock_ahead_s is not None:
            self.clock_ahead_s = event.clock_ahead_s

    def _meter_energy(self, event: EnergyMetered) -> None:
        self.energy_wh = event.total_wh

    def _choose_model(self, event: ModelChosen) -> None:
        self.result = event.result

    def _inherit_repeats(self, event: RepeatsInherited) -> None:
        self.inherited_repeats = event

    def _decide_version(self, event: VersionDecided) -> None:
        self.decided_versions[event.version] = event

    def _judge_version(self, event: VersionJudged) -> None:
        self.judged_versions[event.version] = event

    def _keep_program(self, event: ProgramKept) -> None:
        self.programs.append(event)

    def _share_gpus(self, event: SharingMeasured) -> None:
        self.in_force = self.in_force.replace(resources={"per_gpu": event.per_gpu})

    def _propose(self, event: TrialProposed) -> None:
        before = None if event.resumes is None else self.trials.get(event.resumes)
        self.trials[event.trial] = trial = Trial(
            number=event.trial,
            params=dict(event.params),
            configuration=event.configuration,
            repeat=event.repeat,
            seed=event.seed,
            source=event.source,
            proposed_unix_s=event.time_unix_s,
            choosing_s=event.choosing_s,
            segment=event.segment,
            resumes=event.resumes,
            clone=event.clone,
            # A trial that continues another one starts in the turn in which that was.
            turn=_turns_before(event, before),
            turn_values={} if before is None else before.turn_values,
            fidelity=event.fidelity,
        )
        self._trainings.setdefault(event.configuration, []).append(trial)
        self._params.update(dict.fromkeys(event.params))

    def _delete_checkpoints(self, event: CheckpointsDeleted) -> None:
        trial = self.trials[event.trial]
        trial.checkpoints_deleted = event.reason
        trial.last_checkpoint = trial.best_checkpoint = None

    def _raise_alert(self, event: AlertRaised) -> None:
        self.alerts[event.alert] = Alert(event)

    def _clear_alert(self, event: AlertCleared) -> None:
        self.alerts[event.alert].cleared = event

    def _deliver_alert(self, event: AlertDelivered) -> None:
        self.alerts[event.alert].deliveries[event.sink] = event

    @property
    def metrics(self) -> list[str]:
        """The objectives, then all other reported metrics, in the order of their first reports."""
        return list(self._metrics)

    @property
    def params(self) -> list[str]:
        """The searched parameters, then all others that a trial has."""
        return list(self._params)

    def goal_of(self, metric: str) -> Goal | None:
        """Return whether a metric is minimized or maximized, or None if nobody has declared it.

        Args:
            metric: The metric, as trials report it.
        """
        return goal_in(self.experiment, metric, self.declared_goals)

    def _apply_to_trial(self, event: TrialEvent) -> None:
        trial = self.trials[event.trial]
        had_ended = trial.finished
        match event:
            case TrialPlanned():
                self.declared_goals.update(event.goals)
                self.rates.update(event.rates)
            case TrialReported() | TrialEnded():
                self._metrics.update(dict.fromkeys(event.values))
        apply_to_trial(trial, event)
        if had_ended or trial.finished:
            self._note_end(trial)
        if trial.finished and not had_ended and self.experiment.budget.gain is not None:
            self.spent.append(self.spent_at(event.time_unix_s))

    def _change_settings(self, event: SettingsChanged) -> None:
        limits = {path: value for path, value in event.settings.items() if path != SEARCH}
        if limits:
            self.in_force = change(self.in_force, limits)
        self.clock.waited_s += event.waited_s
        changes = event.settings.get(SEARCH)
        if isinstance(changes, dict):
            self.search_changes = changes
            search = with_changes(self.experiment, changes).search
            self.in_force = self.in_force.model_copy(update={SEARCH: search})
            self.searched = covering(self.searched, search)

    def take_reports(self, trial: int, reports: Reports) -> None:
        """Apply the next reports of one trial as columns, which is fast for a million reports."""
        import numpy as np  # most commands read no columns and need no numpy

        record = self.trials[trial]
        for name, column in reports.values.items():
            value = column.last()
            if value is not None:
                record.last_values[name] = value
                self._metrics[name] = None
        _take_measurements(record, reports)
        numbers = reports.numbers
        steps, times_unix_s = numbers["step"].values, numbers["time_unix_s"].values
        if record.first_step is None:
            above = steps[steps > 0]
            record.first_step = int(above[0]) if len(above) else None
        record.reports += len(reports)
        if "left_out" in numbers:
            record.reports_left_out += int(np.nansum(numbers["left_out"].values))
        record.last_step = int(steps[-1])
        first_epoch = record.last_epoch = None
        if (epochs := numbers.get("epoch")) is not None:
            first_epoch = float(epochs.values[0]) if epochs.is_known[0] else None
            record.last_epoch = float(epochs.values[-1]) if epochs.is_known[-1] else None
        if record.first_report is None:
            record.first_report = float(times_unix_s[0]), int(steps[0]), first_epoch
        record.last_event_unix_s = float(times_unix_s[-1])
        self.clock.note_time(record.last_event_unix_s)

    def _change_state(self, event: RunStateChanged) -> None:
        self.state, self.reason, self.message = event.state, event.reason, event.message
        ended = event.state in FINISHED_RUN_STATES
        self.ended_unix_s = event.time_unix_s if ended else None
        if event.state == "stopping":
            self.stopping_unix_s = event.time_unix_s
        if event.state == "running":
            self.result, self.stopping_unix_s = None, None
            if self.in_force.budget.gain is not None:
                self.spent_before = self.spent_at(event.time_unix_s)
        for trial in self.trials.values():
            if ended and not trial.finished:
                trial.state, trial.interrupted = "stopped", True
            elif not ended and trial.interrupted:
                trial.state, trial.interrupted = "waiting", False
            else:
                continue
            self._note_end(trial)

    def _note_end(self, trial: Trial) -> None:
        """Note that a trial has ended, or is not at its end any more."""
        self._standings.changed.add(trial.configuration)
        self._num_ends += 1

    def _plan_replay(self, event: ReplayPlanned) -> None:
        self.replay_of, self.num_recorded = event.of_run_id, len(event.proposals)
        # The limits that ended the original run must not end its replay early.
        budget = Budget(trials=len({proposal.configuration for proposal in event.proposals}))
        self.in_force = self.in_force.model_copy(update={"budget": budget})

    def in_state(self, *states: TrialState) -> list[Trial]:
        """Return the trials in one of `states`, by number."""
        return [trial for trial in self.trials.values() if trial.state in states]

    def now_unix_s(self) -> float:
        """Return the time now by the clock of the run.

        It is never earlier than the last event, because a driver whose clock is behind continues
        from there. It stops while the driver gives no sign of life, because that time is not
        counted later.
        """
        now_unix_s = min(time.time(), self._alive_until_unix_s)
        return max(now_unix_s - self.clock_ahead_s, self.clock.last_unix_s)

    def note_alive(self, owner_pid: int, until_unix_s: float, *, is_gone: bool = False) -> None:
        """Note until when the process that writes the run counts as alive.

        Args:
            owner_pid: The process. It may differ from the driver, for example while alerts of lost
                runs are sent.
            until_unix_s: The time, in seconds since 1970 by the clock of this machine.
            is_gone: Whether the run is lost.
        """
        if not self.drivers or self.drivers[-1].pid == owner_pid:
            self._alive_until_unix_s = until_unix_s
        elif is_gone and self._alive_until_unix_s == math.inf:
            self._alive_until_unix_s = -math.inf  # only its last event is known

    def active_s(self, now_unix_s: float) -> float:
        """Return how long the run has been driven, in seconds: its run time now or at its end."""
        if not self.drivers:
            return 0.0
        return self.clock.at(now_unix_s if self.ended_unix_s is None else self.ended_unix_s)

    def limited_s(self, now_unix_s: float) -> float:
        """Return how much of the run time counts against the limit on time, in seconds.

        While AutoML waits for workers that other runs use, its time does not run out. Otherwise it
        might end without having trained anything. Workers that start slowly, because the machine is
        busy, use up its time.

        Args:
            now_unix_s: The time now, in seconds since 1970.
        """
        unserved_s = self._unserved_s
        if (
            self.ended_unix_s is None
            and self._idle_since_unix_s is not None
            and self.in_state("waiting")
        ):
            unserved_s += self._excess_s(now_unix_s - self._idle_since_unix_s)
        return self.active_s(now_unix_s) - unserved_s

    def _note_service(self, event: Event) -> None:
        """Note since when no trial of an AutoML run has workers."""
        if isinstance(event, DriverStarted):
            self._idle_since_unix_s, self._is_held_up = event.time_unix_s, False
        elif isinstance(event, Noted):
            self._is_held_up = self._is_held_up or event.is_held_up
        elif isinstance(event, TrialStarted):
            if self._idle_since_unix_s is not None:
                self._unserved_s += self._excess_s(event.time_unix_s - self._idle_since_unix_s)
            self._was_served, self._idle_since_unix_s = True, None
            self._is_held_up = False
        elif isinstance(event, TrialEnded | AttemptEnded) and not self.in_state("running"):
            self._idle_since_unix_s = event.time_unix_s

    def _excess_s(self, waited_s: float) -> float:
        """Return by how much a wait for workers exceeds the time that they take to start."""
        if not self._is_held_up:
            return 0.0
        budget_s, usual_s = self.in_force.budget.time, WORKERS_START_S
        if budget_s is not None and not self._was_served:
            least_s = MIN_TRIAL_TIME_S + concluding_s(self.in_force)
            usual_s = max(0.0, min(usual_s, budget_s - least_s - self.waited_s))
        return max(0.0, waited_s - usual_s)

    @property
    def waited_s(self) -> float:
        """The part of the wait for the first driver that counts as time of the run, in seconds."""
        return self.clock.waited_s

    def gpu_s(self, now_unix_s: float) -> float:
        """Return how long trials have held GPUs, in seconds. Half a GPU counts half."""
        total = sum(trial.gpu_s(now_unix_s) for trial in self.trials.values())
        return total * self.in_force.resources.gpu_share

    def num_configurations(self) -> int:
        """Return how many configurations have been proposed, as the budget counts them.

        One that was proposed twice counts twice.
        """
        return len(self._trainings)

    def num_different_configurations(self) -> int:
        """Return how many configurations have been tried. Changed code makes them different."""
        return len({self.key_of(trial) for trial in self.trials.values()})

    def key_of(self, trial: Trial) -> tuple[int, str]:
        """Return what trials with the same configuration and code share.

        A configuration that is proposed again, for example because a user enqueued it, has another
        number, but the same key.

        Args:
            trial: A trial of this run. If it builds on the weights of another one, it has a key of
                its own.
        """
        key = self._keys.get(trial.configuration)
        if key is None:
            level = self.experiment.fidelity or {}
            params = {name: value for name, value in trial.params.items() if name not in level}
            is_whole = trial.segment is None and not trial.inherits
            key = self.experiment.search.key_of(params) if is_whole else str(trial.configuration)
            self._keys[trial.configuration] = key
        return trial.program, key

    def max_trials(self) -> int | None:
        """Return how many trials the limits allow, including repeats, or None without a limit."""
        most = self.in_force.max_trainings()
        if most is None:
            return None
        if self.replay_of is None:
            return most
        return min(most, self.num_recorded)

    def best(self) -> Trial | None:
        """Return the complete, feasible trial with the best first objective, or None.

        With repeats, it is the repeat of the best configuration that is nearest to their mean.
        """
        return self._standings.best()

    def spent_at(self, now_unix_s: float) -> Spent:
        """Return what the run has used, and the best value of its objective for it.

        Args:
            now_unix_s: The time now, in seconds since 1970, not before the last event.
        """
        best = self.best()
        value = None
        if best is not None:
            value = self.mean_values(best)[self.objectives[0].metric]
        return Spent(
            self.active_s(now_unix_s), self.gpu_s(now_unix_s), self.energy_wh or 0.0, value
        )

    def num_configurations_without_improvement(self) -> int:
        """Return how many configurations have ended since the best value was reached first."""
        return self._standings.num_configurations_since_best()

    def ranked(self, among: Iterable[Trial] | None = None) -> list[Trial]:
        """Return the complete, feasible trials with finite objectives, best first.

        Configurations are ordered by the mean of the first objective over their complete repeats.
        Configurations with all repeats come first, because a few repeats may be the easy ones.
        Before them come configurations that were trained again after the search, because the place
        of the others may be luck. The trials of a configuration are ordered by their distance to
        its mean. Trials of the last version of the code come before trials of earlier versions,
        whose results are not comparable.

        Args:
            among: Rank only these trials. The time depends on their number, not on the size of the
                run.
        """
        num_ends, known = self._num_ends, self._ranked
        if among is None and known is not None and known[0] == num_ends:
            return list(known[1])
        ranks = sorted(self.ranks(self.trials.values() if among is None else among))
        ranked = [self.trials[rank[-1]] for rank in ranks]
        if among is None:
            self._ranked = num_ends, list(ranked)
        return ranked

    def ranks(self, among: Iterable[Trial]) -> list[Rank]:
        """Return the sort keys of the complete and feasible trials among some trials."""
        objective = self.experiment.objectives[0]
        feasible = [
            trial for trial in among if trial.state == "complete" and self.is_feasible(trial)
        ]
        # The mean of a configuration is computed once, from any of its trials.
        by_configuration = {(trial.configuration, trial.program): trial for trial in feasible}
        standings = {
            key: self._standing(trial, objective.metric) for key, trial in by_configuration.items()
        }

        def rank(trial: Trial) -> Rank:
            doubt, mean = standings[trial.configuration, trial.program]
            distance = abs(trial.values[objective.metric] - mean)
            standing = place(objective, mean, trial.configuration)
            return -trial.program, doubt, *standing, distance, trial.number

        return [rank(trial) for trial in feasible]

    def _standing(self, trial: Trial, metric: str) -> tuple[int, float]:
        """Return the doubt about the mean of a trial's configuration, and that mean.

        The doubt is 0 if the configuration was trained again after the search, 1 if it has all
        repeats, and 2 if repeats are missing.
        """
        values = [repeat.values.get(metric, math.nan) for repeat in self.repeats_of(trial)]
        finite, times = [value for value in values if math.isfinite(value)], len(values)
        if self.is_imported:  # nobody has trained its best configurations again to confirm them
            return 0, math.fsum(finite) / len(finite)
        doubt = (times <= self.experiment.repeats) + (times < self.experiment.repeats)
        return doubt, math.fsum(finite) / len(finite)

    def trainings_of(self, configuration: int) -> list[Trial]:
        """Return the trials of a configuration, by number."""
        return self._trainings[configuration]

    def repeats_of(self, trial: Trial) -> list[Trial]:
        """Return the complete trials of a trial's configuration, by number."""
        return [
            repeat
            for repeat in self._trainings[trial.configuration]
            if repeat.state == "complete" and repeat.program == trial.program
        ]

    def mean_values(self, trial: Trial) -> dict[str, float]:
        """Return the means of a complete trial's values over its configuration's complete repeats.

        Configurations are compared by these means, so every view shows them for the best one. If
        only some repeats are finite, only those count.
        """
        means = {}
        repeats = self.repeats_of(trial)
        for name in trial.values:
            values = [repeat.values[name] for repeat in repeats if name in repeat.values]
            finite = [value for value in values if math.isfinite(value)] or values
            means[name] = finite[0] if len(finite) == 1 else sum(finite) / len(finite)
        return means

    def why_no_best(self) -> str | None:
        """Return a sentence on why there is no best trial, or None if there is one."""
        states = Counter(trial.state for trial in self.trials.values())
        if self.best() is not None:
            return None
        yet = " yet" if self.ended_unix_s is None else ""
        if not states:
            return f"No trial has started{yet}."
        if states["failed"] == states.total():
            return "Every trial failed."
        if states["complete"]:
            nearest = describe_nearest(self.experiment.constraints, self.in_state("complete"))
            how = " and has finite results" if nearest is None else f": {nearest}"
            return f"No complete trial keeps all constraints{how}."
        return f"No trial is complete{yet}."

    def front(self, among: Sequence[Trial] | None = None) -> list[Trial]:
        """Return the complete, feasible trials that no other one beats in every objective.

        Args:
            among: Only these ranked trials.
        """
        trials = self.ranked() if among is None else among
        trials = [trial for trial in trials if trial.program == trials[0].program]
        return [
            trial
            for trial in trials
            if not any(_beats(other, trial, self.objectives) for other in trials)
        ]

    def extremes(self) -> dict[str, Trial]:
        """Return the complete, feasible trial with the best value of each objective, by metric."""
        ranked = self.ranked()
        ranked = [trial for trial in ranked if trial.program == ranked[0].program]
        signs = {item.metric: sign_of(item.goal) for item in self.objectives}
        return {
            metric: max(
                ranked, key=lambda trial, metric=metric, sign=sign: sign * trial.values[metric]
            )
            for metric, sign in signs.items()
            if ranked
        }

    def best_values(self) -> dict[str, float]:
        """Return the best value of each objective, as every view shows it.

        With repeats, it is their mean.
        """
        if len(self.objectives) > 1:
            return {metric: trial.values[metric] for metric, trial in self.extremes().items()}
        best, metric = self.best(), self.objectives[0].metric
        if best is None:
            return {}
        return {metric: self.mean_values(best)[metric]}

    @property
    def objectives(self) -> Sequence[Objective]:
        """The objectives of the experiment."""
        return self.experiment.objectives

    def is_feasible(self, trial: Trial) -> bool:
        """Return whether a trial has finite objectives and keeps every constraint."""
        finite = all(
            math.isfinite(trial.values.get(item.metric, math.nan)) for item in self.objectives
        )
        keeps_all = all(keeps(item, trial.values) for item in self.experiment.constraints)
        return finite and keeps_all and trial.fits

    def reason_of(self, trial: Trial) -> str | None:
        """Return why a trial ended as it did.

        A complete one may be `infeasible`, because it breaks a constraint, or its target may not be
        reached: how many rounds that took is then only a number above the rounds that there were.
        """
        if trial.state == "complete" and not self.is_feasible(trial):
            return INFEASIBLE
        if trial.state == "complete" and self._misses_target_of_rounds(trial):
            return TARGET_MISSED
        return trial.reason

    def _misses_target_of_rounds(self, trial: Trial) -> bool:
        rounds = trial.values.get(ROUNDS_METRIC)
        if self.experiment.federated is None or rounds is None:
            return False
        num_rounds = trial.params.get("epochs", self.experiment.training.epochs)
        return isinstance(num_rounds, int | float) and rounds > num_rounds

    def target_reached(self) -> bool:
        """Return whether there are targets and one complete, feasible trial meets all of them."""
        if len(self.programs) < 2:
            return self._standings.is_target_reached()
        best = self.best()
        now = [
            trial for trial in self.ranked() if best is not None and trial.program == best.program
        ]
        return any(self.meets_targets(trial) for trial in now)

    def meets_targets(self, trial: Trial) -> bool:
        """Return whether there are targets and a trial with finite objectives meets all of them."""
        targets = [item for item in self.objectives if item.target is not None]
        return bool(targets) and all(_meets(item, trial.values) for item in targets)

    def _best_to_json(self, best: Trial) -> dict[str, Any]:
        plain = {"trial": best.number, "values": best.values, "params": best.params}
        num_repeats = len(self.repeats_of(best))
        if num_repeats > 1:
            plain |= {"mean_values": self.mean_values(best), "num_repeats": num_repeats}
        return plain

    def to_json(self) -> dict[str, Any]:
        """Return the state, the best trial and all trials as plain values for programs."""
        best = chosen_or_best(self)
        return {
            "state": self.state,
            "reason": self.reason,
            "settings": values_of(self.in_force),
            "best": None if best is None else self._best_to_json(best),
            "certainty": certainty_lines(self),
            "trials": [self._trial_to_json(trial) for trial in self.trials.values()],
            "alerts": [alert.to_json() for alert in self.alerts.values()],
        } | self._programs_to_json()

    def _trial_to_json(self, trial: Trial) -> dict[str, Any]:
        code = {"code": trial.program} if len(self.programs) > 1 else {}
        return {**trial.to_json(), "reason": self.reason_of(trial), **code}

    def _programs_to_json(self) -> dict[str, Any]:
        """Return the versions of the code, if there are several."""
        if len(self.programs) < 2 and not self.experiment.search.code_versions:
            return {}
        return {
            "code": [event.model_dump(exclude={"type", "continued"}) for event in self.programs]
        }


_HANDLERS: dict[type[Event], Callable[[History, Any], None]] = {
    DriverStarted: History._start_driver,
    AdviceRequested: History._request_advice,
    RunStateChanged: History._change_state,
    Noted: History._note,
    EnergyMetered: History._meter_energy,
    ModelChosen: History._choose_model,
    ProgramKept: History._keep_program,
    RepeatsInherited: History._inherit_repeats,
    VersionDecided: History._decide_version,
    VersionJudged: History._judge_version,
    SettingsChanged: History._change_settings,
    SharingMeasured: History._share_gpus,
    ReplayPlanned: History._plan_replay,
    TrialProposed: History._propose,
    CheckpointsDeleted: History._delete_checkpoints,
    AlertRaised: History._raise_alert,
    AlertCleared: History._clear_alert,
    AlertDelivered: History._deliver_alert,
    **dict.fromkeys(TRIAL_EVENTS, History._apply_to_trial),
}
"""The handler of each type of event. Other types change nothing."""


def _turns_before(event: TrialProposed, before: Trial | None) -> int:
    """Return the turns that a new trial need not train, because it continues another one."""
    if event.clone is not None:
        return event.clone.turn
    return 0 if before is None else before.turn


def _take_measurements(trial: Trial, reports: Reports) -> None:
    """Apply what the next reports of a trial say about its speed, workers and memory."""
    import numpy as np

    numbers = reports.numbers
    speeds = numbers.get("samples_per_s")
    if speeds is not None:
        where = np.flatnonzero(speeds.is_known & (speeds.values != 0))
        if len(where):
            trial.samples_per_s = float(speeds.values[where[-1]])
    trial.parts_s = reports.last_parts_s() or trial.parts_s
    if "slowest_rank" in numbers and "slowest_rank_factor" in numbers:
        rank, factor = numbers["slowest_rank"].last(), numbers["slowest_rank_factor"].last()
        if rank is not None and factor is not None:
            trial.slowest_rank = int(rank), factor
    shares = numbers.get("memory_share")
    if shares is not None and shares.is_known.any():
        trial.memory_share = max(float(np.nanmax(shares.values)), trial.memory_share or 0.0)


def _meets(objective: Objective, values: Mapping[str, float]) -> bool:
    assert objective.target is not None
    value = values[objective.metric]
    if objective.goal == "maximize":
        return value >= objective.target
    return value <= objective.target


def _beats(first: Trial, second: Trial, objectives: Sequence[Objective]) -> bool:
    signs = [sign_of(item.goal) for item in objectives]
    gains = [
        sign * (first.values[item.metric] - second.values[item.metric])
        for sign, item in zip(signs, objectives, strict=True)
    ]
    return all(gain >= 0 for gain in gains) and any(gain > 0 for gain in gains)


def no_such_trial(history: History, number: int, field: str = "trial") -> ArgumentError:
    """Return the error for the number of a trial that does not exist.

    Args:
        history: The run.
        number: The number.
        field: The field with the number.
    """
    last = len(history.trials) - 1
    if last < 0:
        return ArgumentError("the run has no trials yet", field=field)
    allowed = "0" if last == 0 else f"0 to {last}"
    return ArgumentError(f"the run has no trial {number}", field=field, allowed=allowed)


def check_choice(history: History, number: int) -> None:
    """Raise an error if a trial cannot be chosen.

    Args:
        history: The run.
        number: The trial.

    Raises:
        ArgumentError: If there is no such trial, it is not complete, or it violates a constraint.
    """
    trial = history.trials.get(number)
    if can_be_chosen(history, trial):
        return
    if trial is None:
        raise no_such_trial(history, number)
    if trial.state != "complete":
        problem = f"trial {number} is {trial.state}, not complete"
    else:
        problem = f"trial {number} violates a constraint or has a result that is not finite"
    ranked = [str(trial.number) for trial in history.ranked()[:8]]
    if not ranked:
        raise ArgumentError(f"{problem}, and no other trial can be chosen yet", field="trial")
    allowed = f"a complete trial that keeps all constraints, such as {', '.join(ranked)}"
    raise ArgumentError(problem, field="trial", allowed=allowed)


def can_be_chosen(history: History, trial: Trial | None) -> bool:
    """Return whether a trial is complete and feasible."""
    return trial is not None and trial.state == "complete" and history.is_feasible(trial)


def chosen_by_hand(history: History) -> Trial | None:
    """Return the trial that a user chose, or None."""
    trial = None if history.chosen_trial is None else history.trials.get(history.chosen_trial)
    return trial if can_be_chosen(history, trial) else None


def chosen_or_best(history: History) -> Trial | None:
    """Return the trial that a user chose, or else the best one, or None."""
    return chosen_by_hand(history) or history.best()


def describe_choice(history: History) -> str | None:
    """Describe the objectives of the chosen trial next to the best values, if there is a choice.

    Example: `val_accuracy 0.97 (front's best 0.98), size 1.2 (front's best 0.3)`.
    """
    chosen = chosen_by_hand(history)
    if chosen is None:
        return None
    whose = "front's best" if len(history.objectives) > 1 else "best"
    parts: list[str] = []
    for metric, value in history.best_values().items():
        best_value, chosen_value = format_number(value), format_number(chosen.values[metric])
        compared = f"the {whose}" if chosen_value == best_value else f"{whose} {best_value}"
        parts.append(f"{metric} {chosen_value} ({compared})")
    return ", ".join(parts)


def cost_of(history: History, now_unix_s: float) -> float | None:
    """Return the cost of a run in the currency of its price, or None without a price.

    Args:
        history: The run so far.
        now_unix_s: The time now, in seconds since 1970.
    """
    if (text := history.experiment.budget.price) is None:
        return None
    return money_of(parse_price(text), history.active_s(now_unix_s), history.gpu_s(now_unix_s))


def money_of(price: Price, active_s: float, gpu_s: float) -> float:
    """Return what a run costs, in the currency of its price.

    Args:
        price: The price of the hardware.
        active_s: How long the run was active, in seconds.
        gpu_s: How long its trials have held GPUs, in seconds.
    """
    return (gpu_s if price.is_per_gpu else active_s) / 3600.0 * price.amount
