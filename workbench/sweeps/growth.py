"""Whether a trial grows onto workers that nobody waits for, and what that brought.

A trial grows at a checkpoint: its attempt ends, and the next one goes on from there with more workers and
the same global batch and learning rate. It does only where speeds that were measured say that what is
left ends clearly earlier, the restart included. Stopping and starting is left to the driver.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from workbench.events import AttemptEnded, CheckpointSaved, Event, Noted, ResizeMeasured, TrialResized
from workbench.history import Trial
from workbench.store import Store
from workbench.sweeps.gain import Forecast, forecast
from workbench.sweeps.ledger import Ledger
from workbench.sweeps.step_times import StepTimes, read_step_times
from workbench.training.settings import fixed_of, with_workers
from workbench.workers.admission import Shape
from workbench.workers.requests import num_free

DEFAULT_RESTART_S = 10.0
"""What a restart is thought to cost where none was measured: to stop, start processes, import torch."""
NUM_MEASURED = 2
"""Speeds of the new attempt after which it is known what growing brought."""
ASK_EVERY_S = 1.0
"""How often the pool is asked about one trial."""
POOL_PATIENCE_S = 0.5


def given_back(trial: Trial, num_workers: int, most: int) -> list[AttemptEnded]:
    """Return what takes workers from a grown trial again where there are not as many any more.

    Args:
        trial: A trial that waits to go on.
        num_workers: With how many workers trials of its run begin.
        most: How many one trial can have now.
    """
    decided = trial.decided_plan.get("workers")
    plan = with_workers(trial.plan, num_workers)
    if not isinstance(decided, int) or decided <= most or plan is None:
        return []
    message = f"goes on with {num_workers} workers: there are no {decided} any more"
    attempt = max(0, trial.attempts - 1)
    return [
        AttemptEnded(trial=trial.number, attempt=attempt, reason="resized", message=message, next_plan=plan)
    ]


class Growth:
    """Watches the trials of one run that may grow."""

    def __init__(self, store: Store, ledger: Ledger) -> None:
        """Watch the run of `ledger`, and read earlier ones from `store` once that is needed."""
        self._store = store
        self._ledger = ledger
        self._times: StepTimes | None = None
        self._growing: int | None = None
        self._asked_s: dict[int, float] = {}
        self._noted = False
        ledger.listeners.append(self._hear)

    @property
    def is_under_way(self) -> bool:
        """Whether a trial that grows has not got its workers yet."""
        return self._growing is not None and self._ledger.history.trials[self._growing].state == "waiting"

    def measure(self, number: int) -> None:
        """Store what growing has brought a trial, once that is known.

        Args:
            number: The trial, which is running.
        """
        trial = self._ledger.history.trials[number]
        if not trial.resizes or trial.resizes[-1].measured is not None:
            return
        times, decided = self._step_times(), trial.resizes[-1].decided
        if trial.attempts < decided.attempt + 2:
            return  # it waits for its workers
        speed = times.current(number)
        if speed is None or times.num_current(number) < NUM_MEASURED:
            return
        restart_s = times.last_restart_s(number) if trial.attempts == decided.attempt + 2 else None
        saving_s = None
        if restart_s is not None:
            left = decided.left_s * decided.samples_per_s
            saving_s = forecast(left, decided.samples_per_s, speed, restart_s).saving_s
        self._ledger.record(
            ResizeMeasured(
                trial=number, attempt=trial.attempts - 1, samples_per_s=speed, restart_s=restart_s,
                from_workers=decided.from_workers, to_workers=decided.to_workers, saving_s=saving_s,
            )
        )  # fmt: skip

    def decide(self, number: int, events: Sequence[Event], shape: Shape, num_wanted: int) -> bool:
        """Decide whether a trial that reported `events` grows now, and store that.

        Args:
            number: The trial, which is running.
            events: What it has just reported.
            shape: What one worker uses.
            num_wanted: Workers that trials which wait or will start need.

        Returns:
            Whether its attempt has ended with this, so that it must be stopped and started again.
        """
        saved = [event for event in events if isinstance(event, CheckpointSaved)]
        if not saved or self.is_under_way:
            return False
        trial = self._ledger.history.trials[number]
        speed, left = self._step_times().current(number), self._left_samples(trial, saved[-1].step)
        restart_s = self._restart_s(trial)
        now_s = time.monotonic()
        is_soon = now_s - self._asked_s.get(number, float("-inf")) < ASK_EVERY_S
        if speed is None or left is None or left / speed <= restart_s or is_soon:
            return False
        self._asked_s[number] = now_s
        most = _num_workers(trial) + num_free(shape, POOL_PATIENCE_S) - num_wanted
        chosen = self._choose(trial, most, left, restart_s)
        if chosen is None:
            return False
        self._ledger.record(*chosen)
        self._growing = number
        return True

    def _choose(
        self, trial: Trial, most: int, left: float, restart_s: float
    ) -> tuple[TrialResized, AttemptEnded] | None:
        """Return how a trial grows to at most `most` workers, or None where that does not pay."""
        fixed = fixed_of(self._ledger.experiment, trial.params)
        numbers = range(_num_workers(trial) + 1, most + 1)
        plans = [plan for n in numbers if (plan := with_workers(trial.plan, n, fixed=fixed)) is not None]
        expected = [(self._step_times().usual(trial.number, plan), plan) for plan in plans]
        measured = [(speed, plan) for speed, plan in expected if speed is not None]
        if plans and not measured:
            self._note(trial, plans)
        if not measured:
            return None
        faster, plan = max(measured, key=lambda item: item[0])
        speed = self._speed(trial)
        found = forecast(left, speed, faster, restart_s)
        return _resized(trial, plan, speed, faster, found, restart_s) if found.pays else None

    def _hear(self, event: Event) -> None:
        if self._times is not None:
            self._times.apply(event)

    def _step_times(self) -> StepTimes:
        if self._times is None:
            self._times = read_step_times(self._store, self._ledger.run_id, self._ledger.experiment)
        return self._times

    def _speed(self, trial: Trial) -> float:
        """Return how fast a trial trains or could with its workers: others may have been in its way."""
        times = self._step_times()
        return max(times.current(trial.number) or 0.0, times.usual(trial.number, trial.plan) or 0.0)

    def _restart_s(self, trial: Trial) -> float:
        """Return what starting again will cost: as measured, or as long as loading took, and more."""
        times = self._step_times()
        if times.restarts_s:
            return statistics.median(times.restarts_s)
        return DEFAULT_RESTART_S + times.loading_s(trial.number)

    def _left_samples(self, trial: Trial, step: int) -> float | None:
        """Return how many samples a trial has still to train on after a checkpoint, if that is known."""
        epochs = trial.params.get("epochs", self._ledger.experiment.training.epochs)
        global_batch = trial.plan.get("global_batch")
        if not trial.last_epoch or not isinstance(epochs, int) or not isinstance(global_batch, int):
            return None
        return max(0.0, epochs * trial.last_step / trial.last_epoch - step) * global_batch

    def _note(self, trial: Trial, plans: Sequence[Mapping[str, JsonValue]]) -> None:
        if self._noted:
            return
        self._noted = True
        first, last = plans[0]["workers"], plans[-1]["workers"]
        numbers = f"{first}" if first == last else f"{first} to {last}"
        message = (
            f"workers are idle, but this machine has not measured how fast {numbers} of them train this: "
            f"no trial grows; a run with plan.workers={first} and this global batch would tell"
        )
        self._ledger.record(Noted(level="info", message=message, trial=trial.number))


def _num_workers(trial: Trial) -> int:
    workers = trial.plan.get("workers")
    return workers if isinstance(workers, int) else 1


def _resized(
    trial: Trial, plan: dict[str, JsonValue], speed: float, faster: float, found: Forecast, restart_s: float
) -> tuple[TrialResized, AttemptEnded]:
    before, after = _num_workers(trial), plan["workers"]
    assert isinstance(after, int)
    attempt = trial.attempts - 1
    resized = TrialResized(
        trial=trial.number, attempt=attempt, from_workers=before, to_workers=after, samples_per_s=speed,
        expected_samples_per_s=faster, left_s=found.left_s, assumed_restart_s=restart_s,
        expected_saving_s=found.saving_s,
    )  # fmt: skip
    message = (
        f"grows from {before} to {after} workers: {speed:,.0f} -> about {faster:,.0f} samples/s; "
        f"what is left takes {found.left_s - found.saving_s:,.1f} s instead of {found.left_s:,.1f} s"
    )
    return resized, AttemptEnded(
        trial=trial.number, attempt=attempt, reason="resized", message=message, next_plan=plan
    )
