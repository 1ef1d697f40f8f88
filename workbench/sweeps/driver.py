"""The driver of a run: it owns the run, decides what happens in it, and writes its events.

It holds the run's lease in the store, builds the study and the history from the events, and lets
Ray Tune execute trials. Everything is stored before it takes effect. If a driver dies, another one
reads the events and continues. `trial_orders` says what a trial needs on its workers, and the
coordinator carries it out. The study decides what to propose and when to prune.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import socket
import time
from collections import deque
from pathlib import Path
from typing import Any, Literal

import ray
from pydantic import JsonValue

from workbench.cluster.workers.nodes import RETURN_S
from workbench.cluster.workers.pool_client import cancel, prepare, withdraw
from workbench.experiment.changes import values_of
from workbench.foundation.errors import (
    ArtifactsError,
    ExperimentError,
    ResourcesError,
    WorkbenchError,
)
from workbench.foundation.events import (
    AttemptEnded,
    Event,
    Noted,
    RunState,
    RunStateChanged,
    TrialEnded,
    steady_unix_s,
)
from workbench.hardware.resources import ClusterInventory
from workbench.search.optuna_versions import quiet_log
from workbench.search.samplers import prepare_proposals
from workbench.store.database import Store
from workbench.sweeps.artifact_outage import Pause
from workbench.sweeps.budget import begun_ending, ending_now, has_room, honest_ending
from workbench.sweeps.clones import Clones
from workbench.sweeps.code_versions import Program, read_origin
from workbench.sweeps.conclusion import natural_end, result_of
from workbench.sweeps.coordinator import Order, is_over
from workbench.sweeps.elastic import ElasticTrials, given_back
from workbench.sweeps.gpu_sharing import decide_sharing
from workbench.sweeps.ledger import Ledger, RunClock, timely
from workbench.sweeps.monitor import EnergyLimit, Hardware, Monitor, Waiting
from workbench.sweeps.ray_tune import fit
from workbench.sweeps.retention import Retention
from workbench.sweeps.run_alerts import Alerting
from workbench.sweeps.run_notes import DataNotes
from workbench.sweeps.trial_orders import Orders, Turns
from workbench.sweeps.trial_plans import TrialPlans, predict_memory
from workbench.sweeps.trial_reports import Referee, ResourcesUsed, RunLoggers, attempt_ended
from workbench.sweeps.trial_resources import driver_started
from workbench.sweeps.user_commands import Commands
from workbench.sweeps.warm_start import inherited_repeats

logger = logging.getLogger(__name__)

TICK_S = 0.25
"""How often commands, limits and alert rules are checked, in seconds."""


class _RunEndsError(Exception):
    """The run ends while something is measured for its trials."""


class Driver:
    """Drives one run to its end, from its first proposal or from where its last driver stopped."""

    def __init__(self, store: Store, run_id: str, *, replaces_a_killed_one: bool = False) -> None:
        """Prepare to drive a run.

        Args:
            store: The store that holds the run.
            run_id: The run.
            replaces_a_killed_one: Whether this driver replaces a killed one and nobody resumed the
                run. A run that was being stopped then stops.

        Raises:
            RunNotFoundError: If the store holds no such run.
        """
        self._ledger = Ledger(store, run_id)
        self._commands = Commands(store, self._ledger, self)
        self.run_id = self._ledger.run_id
        self.experiment = self._ledger.experiment
        self.history = self._ledger.history
        self.study = self._ledger.study
        self._artifacts = store.artifacts_of(self.run_id)
        self._clock = RunClock(self._ledger)
        self._pause = Pause(self._ledger, self._artifacts)
        self._waiting = Waiting(self._ledger)
        self._hardware = Hardware(self._ledger)
        self._retention = Retention(self._ledger, self._artifacts)
        self._alerting = Alerting(self._ledger, self._artifacts)
        self._loggers = RunLoggers(self._ledger, self._artifacts)
        self._monitor = Monitor(store, self._ledger)
        self._monitor.listeners.append(self._alerting.on_round)
        self._energy_limit = EnergyLimit(self._ledger, lambda: self._monitor.energy_wh)
        resources = ResourcesUsed(
            self._ledger,
            energy_wh_of=self._monitor.energy_of,
            num_places=lambda: self._share.at_once,
        )
        started_in = Path(read_origin(self._artifacts).directory)
        self._data_notes = DataNotes(self._ledger, started_in=started_in)
        self._referee = Referee(self._ledger, resources, started_in=started_in)
        self._store = store
        self._replaces_a_killed_one = replaces_a_killed_one
        self._unfinished: deque[int] = deque()
        self._running: set[int] = set()
        self._stop_trials: set[int] = set()
        self._plans = TrialPlans(store, self._ledger)
        self.program = Program(self._ledger, self._artifacts)
        self.clones = Clones(self._ledger, self._artifacts)
        self._orders = Orders(
            self._ledger, self._artifacts, self._plans, self._alerting, self.program
        )
        self._turns = None if self.experiment.early_stop.turns is None else Turns(self._ledger)
        self._growth = (
            ElasticTrials(store, self._ledger, self._artifacts)
            if self.experiment.resources.elastic
            else None
        )
        self._leaving: Any = None
        """A Ray reference that is ready once the last restarting trial has left its workers."""
        self._ending: RunStateChanged | None = None
        self._is_interrupted = False
        self._fatal: Exception | None = None
        """The error that ends the run. Tune would hide what is raised in its adapters."""
        self._has_prepared = False
        self._next_tick_s = 0.0

    def run(self) -> RunState:
        """Drive the run to its end.

        Returns:
            The state in which the run ended.

        Raises:
            LeaseError: If another driver holds the run.
            ResourcesError: If the cluster can never provide what the run requests.
            WorkbenchError: If something else keeps the run from continuing.
        """
        host = socket.gethostname()
        with (
            self._store.writer(self.run_id, owner_pid=os.getpid(), owner_host=host) as writer,
            self._alerting,
            self._loggers,
            quiet_log(),
        ):
            try:
                self._ledger.replay(writer)
                self._monitor.begin(writer)
                patience_s = RETURN_S if self._replaces_a_killed_one else 0.0
                cluster, self._share = self._hardware.begin(patience_s=patience_s)
                self._alerting.begin()
                self._loggers.begin()
                self._take_over(cluster)
                self.program.begin()
                self._inherit_repeats()
                self._retention.begin()
                with contextlib.suppress(_RunEndsError):
                    self._decide()
                    self.program.note_kept()
                    self._note_shortage()
                    self._prepare_workers()
                    self._data_notes.begin()
                    predict_memory(self._ledger, self._plans)
                self._fit()
            except Exception as error:
                self._fail(error)
                raise
            return self._finish()

    def _decide(self) -> None:
        """Decide what the experiment leaves to measurements."""
        self._heed()  # commands that arrived while there was no driver
        is_decided = self._plans.begin(self._heed)
        if decide_sharing(self._store, self._ledger, self._plans, self._heed) or is_decided:
            self.follow_settings()

    def _heed(self) -> None:
        """Handle commands and limits before there are trials, and raise if the run ends."""
        self._clock.tick()
        self._commands.carry_out()
        self._end_at_limits()
        if self._ending:
            raise _RunEndsError

    def _fit(self) -> None:
        """Run Tune until no trial is left, including those that the last commands have added."""
        settings = None
        while self.history.in_force is not settings:
            settings = self.history.in_force
            fit(self, self.run_id)
            if self._fatal is not None:
                raise self._fatal
            # A stop that was requested twice would otherwise end the run again on its next resume.
            self._commands.carry_out()
            if self.is_over():
                break

    def _take_over(self, cluster: ClusterInventory) -> None:
        """Put unfinished trials first in the queue, and record that this driver has taken over."""
        started = driver_started(cluster, self._ledger.before_unix_s)
        if self.history.state == "stopping" and self._replaces_a_killed_one:
            self._ending = begun_ending(self.history)
        unfinished = [
            trial
            for trial in self.history.trials.values()
            if not trial.finished or trial.interrupted
        ]
        self._unfinished.extend(trial.number for trial in unfinished if not trial.between_turns)
        # A driver that failed, or lost its store, may not have recorded how these ended.
        lost = self._end_attempts("lost", "the driver ended")
        least, most = self._share.request.num_workers, self._share.num_fitting
        fewer = [ended for trial in unfinished for ended in given_back(trial, least, most * least)]
        self._ledger.record(started, *lost, *fewer, RunStateChanged(state="running"))
        logger.info(
            "driving %s on %g CPUs and %g GPUs, %d trials at once. %d trials so far, %d of them"
            " unfinished",
            self.run_id,
            cluster.num_cpus,
            cluster.num_gpus,
            self._share.at_once,
            len(self.history.trials),
            len(unfinished),
        )

    def _inherit_repeats(self) -> None:
        """Record what earlier runs show about the noise, so that it stays the same on a resume."""
        if len(self.history.drivers) > 1 or self.history.replay_of is not None:
            return
        inherited = inherited_repeats(self._store, self.run_id, self.history)
        if inherited is not None:
            self._ledger.record(inherited)
            self._ledger.study.inherit_repeats(inherited)

    def _end_attempts(self, reason: Literal["lost", "stopped"], message: str) -> list[AttemptEnded]:
        """Return the end of each attempt that has begun and whose end is not stored."""
        return [
            attempt_ended(trial, reason, message)
            for trial in self.history.trials.values()
            if trial.has_open_attempt
        ]

    # Called by the adapters of Tune.

    def next_order(self) -> Order | None:
        """Return the next trial to start, or None if there is none now."""
        if self._ending or self._fatal or self._pause.holds:
            return None
        if len(self._running) >= self._share.at_once:
            return None
        if self._leaving is not None and not ray.wait([self._leaving], timeout=0)[0]:
            return None
        try:
            self.program.compare()
            number = self._next_trial()
        except Exception as error:
            self._fatal = error
            return None
        if number is None:
            return None
        self._running.add(number)
        self.program.start(number)
        trial, request = self.history.trials[number], self._share.request
        if self._growth is not None:
            try:
                self._growth.prepare(trial)
            except ArtifactsError as error:
                self._fatal = error
                return None
            request = dataclasses.replace(request, speedup=self._growth.speedup(number))
        return self._orders.order(trial, request)

    def is_over(self) -> bool:
        """Return whether no further trial will start."""
        if self._ending or self._fatal:
            return True
        return not self._running and not self._may_start()

    def _may_start(self) -> bool:
        if self._unfinished or self.study.has_waiting_repeats:
            return True
        if self._turns is not None and self._turns.waiting(self._running):
            return True
        return (has_room(self.history) and not self.study.exhausted) or self.study.has_confirmations

    def receive(self, trial: int, events: list[Event]) -> bool:
        """Store what a trial reported, and return whether the trial must stop."""
        if self._fatal or trial not in self._running:
            return True
        try:
            events = timely(events, self.history.drivers[-1].time_unix_s)
            events = self.program.note_unserved(events)
            events = [
                self.program.explain_failure(event) if isinstance(event, TrialEnded) else event
                for event in events
            ]
            if any(isinstance(event, AttemptEnded | TrialEnded) for event in events):
                self.program.compare()
            ended = self._referee.take_in(trial, events, stop=self._what_stops(trial))
            self._pause.on_events(events)
            self._retention.on_events(trial, events)
            if isinstance(ended, TrialEnded) and self.history.trials[trial].inherits:
                self.clones.tidy()
            self._plans.record_speeds()
            if ended is None and self._ending is None:
                return self._growth is not None and self._resize(self._growth, trial, events)
            if self._growth is not None and isinstance(ended, TrialEnded):
                self._growth.tidy(trial)
            self._running.discard(trial)
            is_complete = isinstance(ended, TrialEnded) and ended.state == "complete"
            self.program.end(trial, is_complete=is_complete)
            if isinstance(ended, AttemptEnded) and ended.reason != "turn":
                self._unfinished.appendleft(trial)
                if ended.reason == "storage":
                    self._pause.begin(ended.message)
            self._end_at_limits()
            if not (events and is_over(events[-1])):
                gone = cancel(self.run_id, trial)  # its workers do not know yet
                self._leaving = gone if isinstance(ended, AttemptEnded) else self._leaving
            return True
        except Exception as error:
            self._fatal = error
            return True

    def _what_stops(self, trial: int) -> Literal["trial", "run"] | None:
        """Return whether a trial is stopped alone, or because the run ends."""
        if trial in self._stop_trials or trial in self._ledger.alerts.to_stop:
            return "trial"
        return "run" if self._ending else None

    def _resize(self, growth: ElasticTrials, trial: int, events: list[Event]) -> bool:
        """Restart a trial with other workers if that is better, and return whether it must stop."""
        growth.measure(trial)
        if not growth.decide(trial, events, self._share.request, self._num_workers_wanted()):
            return False
        self._running.discard(trial)
        self.program.end(trial, is_complete=False)
        self._unfinished.appendleft(trial)
        self._leaving = cancel(self.run_id, trial)
        return True

    def _num_workers_wanted(self) -> int:
        """Return how many workers are needed by trials that have none or that start now."""
        least = self._share.request.num_workers
        waiting = [
            number for number in self._running if self.history.trials[number].state == "waiting"
        ]
        free = max(0, self._share.at_once - len(self._running))
        return least * (len(waiting) + (free if self._may_start() else 0))

    def tick(self) -> None:
        """Handle commands and limits, at most every `TICK_S` seconds."""
        now_s = time.monotonic()
        if now_s < self._next_tick_s or self._fatal:
            return
        self._next_tick_s = now_s + TICK_S
        try:
            self._clock.tick()
            self._commands.carry_out()
            self._pause.tick()
            self._waiting.tick(self._running)
            if self._hardware.has_changed():
                # If the remaining nodes have no room for a trial, trials wait for more.
                with contextlib.suppress(ResourcesError):
                    self.follow_settings()
            self._energy_limit.tick()
            self._alerting.tick()
            self._loggers.tick()
            self._data_notes.tick()
            self._end_at_limits()
        except Exception as error:
            self._fatal = error

    # Proposals.

    def _prepare_workers(self) -> None:
        """Let workers start for the trials that can start now."""
        allowed, share = self.history.in_force.max_configurations(), self._share
        free = max(0, share.at_once - len(self._running))
        if allowed is not None:
            free = min(
                free, len(self._unfinished) + max(0, allowed - self.history.num_configurations())
            )
        if free:
            prepare(
                dataclasses.replace(share.request, num_workers=free * share.request.num_workers)
            )

    def _next_trial(self) -> int | None:
        """Return the trial to start or to continue, or None if there is none now."""
        if self._unfinished:
            return self._unfinished.popleft()
        searches = has_room(self.history)
        if self._turns is not None:
            # What a user has asked for starts now, however short the time is.
            is_wanted = self.study.num_enqueued > 0 or self._turns.may_begin(self._share.at_once)
            is_due = searches and is_wanted
            number = self._propose(repeats_only=False) if is_due else None
            number = self._turns.next(self._running) if number is None else number
            if number is not None:
                return number
        return self._propose(repeats_only=not searches)

    def _propose(self, *, repeats_only: bool) -> int | None:
        began_s = time.perf_counter()
        if (proposal := self.study.ask(repeats_only=repeats_only)) is None:
            return None
        choosing_s = time.perf_counter() - began_s
        self._ledger.record(proposal.event().model_copy(update={"choosing_s": choosing_s}))
        if not self._has_prepared:
            self._has_prepared = True
            prepare_proposals(self.experiment)
        return proposal.trial

    # Limits and the end.

    def stop_trial(self, number: int) -> None:
        """Stop one trial: at once if it waits in the queue, otherwise at its next report.

        Raises:
            ExperimentError: If it is not running.
        """
        trial = self.history.trials.get(number)
        if trial is None or trial.finished:
            raise ExperimentError(
                f"trial {number} is not running", allowed=map(str, sorted(self._running))
            )
        if number in self._unfinished or (trial.between_turns and number not in self._running):
            with contextlib.suppress(ValueError):
                self._unfinished.remove(number)
            self._referee.take_in(number, [], stop="trial")
            return
        self._stop_trials.add(number)

    @property
    def is_ending(self) -> bool:
        """Whether the run is about to end, whatever else happens."""
        return self._ending is not None

    @property
    def is_metered(self) -> bool:
        """Whether the energy of the trials is known."""
        return self._monitor.energy_wh is not None

    def describe_concurrency(self, wanted: JsonValue) -> str:
        """Describe how many trials run at once if `wanted` is in force."""
        return self._share.describe_concurrency(wanted, len(self._running))

    def _note_shortage(self) -> None:
        """Record that the hardware has room for fewer trials than the run wants at once."""
        if (wanted := self._share.concurrency) > self._share.num_fitting:
            self._ledger.record(Noted(level="info", message=self.describe_concurrency(wanted)))

    def follow_settings(self) -> None:
        """Apply the settings that are in force now."""
        before = self._share.at_once
        self._share = self._plans.share(self.history.in_force)
        logger.info("the settings in force are now %s", values_of(self.history.in_force))
        if self._share.at_once > before:
            self._prepare_workers()

    def interrupt(self) -> None:
        """Request that the run stop. A signal handler may call this at any moment."""
        self._is_interrupted = True

    def _end_at_limits(self) -> None:
        if self._is_interrupted:
            self.end(RunStateChanged(state="stopped", reason="person", message="interrupted"))
        ending = None if self._ending else ending_now(self.history, steady_unix_s())
        if ending is not None:
            self.end(ending)

    def end(self, ending: RunStateChanged) -> None:
        """End the run and interrupt its running trials. The first reason counts."""
        if self._ending is None:
            self._ending = ending
            if self._running:
                withdraw(self.run_id, [trial.number for trial in self.history.in_state("waiting")])
                self._ledger.record(ending.model_copy(update={"state": "stopping"}))

    def _finish(self) -> RunState:
        if self._ending is None:
            self._ending = natural_end(
                self.history,
                self.study.exhausted,
                self.study.num_enqueued,
                is_stopped_by_sampler=self.study.is_stopped_by_sampler,
            )
        self._data_notes.end()
        self._retention.end()
        self.clones.tidy()
        self._orders.tidy()
        self._monitor.end()
        ending = honest_ending(self._ending, self.history)
        result = result_of(
            self._store, self.run_id, self.experiment, ending, request=self._share.request
        )
        self._ledger.record(
            *result, ending := ending.model_copy(update={"time_unix_s": steady_unix_s()})
        )
        logger.info("the run is %s: %s", ending.state, ending.message or ending.reason)
        return ending.state

    def _fail(self, error: Exception) -> None:
        logger.error("the run failed", exc_info=error)
        try:
            cut = self._end_attempts("stopped", "the run failed")
            failed = RunStateChanged(state="failed", reason="error", message=str(error))
            self._ledger.append([*cut, failed], patience_s=0.0)
        except WorkbenchError as store_error:
            logger.error("the failure could not be stored", exc_info=store_error)
