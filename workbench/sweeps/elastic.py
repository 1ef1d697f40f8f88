"""Decide whether a trial grows onto idle workers, and measure what that gained.

A trial grows at a checkpoint: its attempt ends, and the next one continues from there with more
workers and the same global batch and learning rate. It grows only if measured speeds show that it
ends clearly earlier, even with the restart. The driver stops and starts the trial.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

from workbench.advisor.speed_history import Speed, read_restarts, read_speeds, setting_of
from workbench.cluster.workers.admission import Shape, capacity_of
from workbench.cluster.workers.pool_client import num_free
from workbench.experiment.plan import PartialPlan
from workbench.foundation.events import (
    AttemptEnded,
    CheckpointSaved,
    Event,
    Noted,
    ResizeMeasured,
    TrialResized,
)
from workbench.foundation.formatting import format_duration, format_rate
from workbench.hardware.resources import ClusterInventory, cluster_inventory
from workbench.store.database import Store
from workbench.store.history import Trial
from workbench.sweeps.elastic_gain import Gain, estimate_gain
from workbench.sweeps.ledger import Ledger
from workbench.training.planning.equivalent_plans import fixed_of, with_workers

DEFAULT_RESTART_S = 10.0
"""Assumed cost of a restart if none was measured: stopping, starting processes, importing torch."""
NUM_MEASURED = 2
"""Number of measured speeds of the new attempt after which the gain is known."""
CHECK_EVERY_S = 1.0
"""The least time between two queries of the pool for one trial."""
POOL_TIMEOUT_S = 0.5


def given_back(trial: Trial, num_workers: int, most: int) -> list[AttemptEnded]:
    """Return the events that shrink a grown trial whose workers no longer exist.

    Args:
        trial: A trial that waits to continue.
        num_workers: Number of workers with which trials of its run start.
        most: The most workers that one trial can have now.
    """
    decided = trial.decided_plan.workers
    plan = with_workers(trial.plan, num_workers)
    if decided is None or decided <= most or plan is None:
        return []
    message = f"continues with {num_workers} workers, because {decided} are no longer available"
    attempt = max(0, trial.attempts - 1)
    return [
        AttemptEnded(
            trial=trial.number,
            attempt=attempt,
            reason="resized",
            message=message,
            next_plan=plan.to_json(),
        )
    ]


class ElasticTrials:
    """Grows the trials of one run."""

    def __init__(self, store: Store, ledger: Ledger) -> None:
        """Grow the trials of `ledger`'s run.

        Earlier runs are read from `store` when they are needed.
        """
        self._store = store
        self._ledger = ledger
        self._cluster: ClusterInventory | None = None
        self._earlier: dict[str, list[Speed]] = {}
        self._earlier_restarts_s: list[float] | None = None
        self._growing: int | None = None
        self._checked_s: dict[int, float] = {}
        self._noted = False

    @property
    def is_under_way(self) -> bool:
        """Whether a growing trial still waits for its workers."""
        return (
            self._growing is not None
            and self._ledger.history.trials[self._growing].state == "waiting"
        )

    def measure(self, number: int) -> None:
        """Store what a trial has gained by growing, once that is known.

        Args:
            number: The trial, which is running.
        """
        trial = self._ledger.history.trials[number]
        if not trial.resizes or trial.resizes[-1].measured is not None:
            return
        speeds, decided = self._ledger.speeds, trial.resizes[-1].decided
        if trial.attempts < decided.attempt + 2:
            return  # it waits for its workers
        speed = speeds.current(number)
        if speed is None or speeds.num_current(number) < NUM_MEASURED:
            return
        restart_s = speeds.last_restart_s(number) if trial.attempts == decided.attempt + 2 else None
        saving_s = None
        if restart_s is not None:
            left = decided.left_s * decided.samples_per_s
            saving_s = estimate_gain(left, decided.samples_per_s, speed, restart_s).saving_s
        self._ledger.record(
            ResizeMeasured(
                trial=number,
                attempt=trial.attempts - 1,
                samples_per_s=speed,
                restart_s=restart_s,
                from_workers=decided.from_workers,
                to_workers=decided.to_workers,
                saving_s=saving_s,
            )
        )

    def decide(self, number: int, events: Sequence[Event], shape: Shape, num_wanted: int) -> bool:
        """Decide whether a trial that reported `events` grows now, and store the decision.

        Args:
            number: The trial, which is running.
            events: What it has just reported.
            shape: What one worker uses.
            num_wanted: Number of workers needed by trials that wait or will start.

        Returns:
            Whether its attempt ends with this, so that it must be stopped and restarted.
        """
        saved = [event for event in events if isinstance(event, CheckpointSaved)]
        if not saved or self.is_under_way:
            return False
        trial = self._ledger.history.trials[number]
        speed, left = self._ledger.speeds.current(number), self._left_samples(trial, saved[-1].step)
        restart_s = self._restart_s(trial)
        now_s = time.monotonic()
        is_soon = now_s - self._checked_s.get(number, float("-inf")) < CHECK_EVERY_S
        if speed is None or left is None or left / speed <= restart_s or is_soon:
            return False
        self._checked_s[number] = now_s
        most = _num_workers(trial) + num_free(shape, POOL_TIMEOUT_S) - num_wanted
        chosen = self._choose(trial, most, left, restart_s)
        if chosen is None:
            return False
        self._ledger.record(*chosen)
        self._growing = number
        return True

    def _choose(
        self, trial: Trial, most: int, left: float, restart_s: float
    ) -> tuple[TrialResized, AttemptEnded] | None:
        """Return the events that grow a trial to at most `most` workers, if that pays off."""
        fixed = fixed_of(self._ledger.experiment, trial.params)
        numbers = range(_num_workers(trial) + 1, most + 1)
        plans = [
            plan for n in numbers if (plan := with_workers(trial.plan, n, fixed=fixed)) is not None
        ]
        expected = [(self._usual(trial, plan), plan) for plan in plans]
        measured = [(speed, plan) for speed, plan in expected if speed is not None]
        if plans and not measured:
            self._note(trial, plans)
        if not measured:
            return None
        faster, plan = max(measured, key=lambda item: item[0])
        speed = self._speed(trial)
        gain = estimate_gain(left, speed, faster, restart_s)
        if not gain.pays:
            return None
        return _resized(trial, plan, speed=speed, faster=faster, gain=gain, restart_s=restart_s)

    def _usual(self, trial: Trial, plan: PartialPlan) -> float | None:
        """Return the usual speed of a plan for what a trial trains, in this run and others."""
        experiment = self._ledger.experiment
        if self._cluster is None:
            self._cluster = cluster_inventory()
        shape = capacity_of(experiment, self._cluster).shape
        setting = setting_of(experiment, trial.params, shape, self._cluster)
        if setting not in self._earlier:
            self._earlier[setting] = read_speeds(
                self._store, setting, except_run=self._ledger.run_id
            )
        return self._ledger.speeds.usual(trial.number, plan, self._earlier[setting])

    def _speed(self, trial: Trial) -> float:
        """Return the speed of a trial, corrected for a slowdown caused by other trials."""
        return max(
            self._ledger.speeds.current(trial.number) or 0.0, self._usual(trial, trial.plan) or 0.0
        )

    def _restart_s(self, trial: Trial) -> float:
        """Return the seconds of a restart: as measured, or an estimate and the loading time."""
        if self._earlier_restarts_s is None:
            self._earlier_restarts_s = read_restarts(
                self._store, self._ledger.experiment, except_run=self._ledger.run_id
            )
        measured = [*self._earlier_restarts_s, *self._ledger.speeds.restarts_s]
        if measured:
            return statistics.median(measured)
        return DEFAULT_RESTART_S + self._ledger.speeds.loading_s(trial.number)

    def _left_samples(self, trial: Trial, step: int) -> float | None:
        """Return how many samples are left to train on after a checkpoint, or None if unknown."""
        epochs = trial.params.get("epochs", self._ledger.experiment.training.epochs)
        epochs = epochs if trial.segment is None else trial.segment.end
        global_batch = trial.plan.global_batch
        if not trial.last_epoch or not isinstance(epochs, int) or global_batch is None:
            return None
        return max(0.0, epochs * trial.last_step / trial.last_epoch - step) * global_batch

    def _note(self, trial: Trial, plans: Sequence[PartialPlan]) -> None:
        if self._noted:
            return
        self._noted = True
        first, last = plans[0].workers, plans[-1].workers
        numbers = f"{first}" if first == last else f"{first} to {last}"
        message = (
            f"workers are idle, but no trial grows: the speed on {numbers} workers was never"
            f" measured here. A run with plan.workers={first} and this global batch measures it"
        )
        self._ledger.record(Noted(level="info", message=message, trial=trial.number))


def _num_workers(trial: Trial) -> int:
    return trial.plan.workers or 1


def _resized(
    trial: Trial,
    plan: PartialPlan,
    *,
    speed: float,
    faster: float,
    gain: Gain,
    restart_s: float,
) -> tuple[TrialResized, AttemptEnded]:
    before, after = _num_workers(trial), plan.workers
    assert after is not None
    attempt = trial.attempts - 1
    resized = TrialResized(
        trial=trial.number,
        attempt=attempt,
        from_workers=before,
        to_workers=after,
        samples_per_s=speed,
        expected_samples_per_s=faster,
        left_s=gain.left_s,
        assumed_restart_s=restart_s,
        expected_saving_s=gain.saving_s,
    )
    message = (
        f"grows from {before} to {after} workers: {format_rate(speed)} -> about"
        f" {format_rate(faster)} samples/s. The rest takes"
        f" {format_duration(gain.left_s - gain.saving_s)} instead of"
        f" {format_duration(gain.left_s)}"
    )
    return resized, AttemptEnded(
        trial=trial.number,
        attempt=attempt,
        reason="resized",
        message=message,
        next_plan=plan.to_json(),
    )
