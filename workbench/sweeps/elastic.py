"""Decide whether a trial grows onto idle workers or returns some, and measure what that gained.

A trial changes its workers at a checkpoint: its attempt ends, and the next one continues from there
with the same global batch and learning rate. It grows only if measured speeds show that it ends
clearly earlier, even with the restart. It shrinks if another run waits for workers and makes more
of them. If its validation then falls behind the forecast of its curve, it goes back. The driver
stops and starts the trial.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Mapping, Sequence

from workbench.advisor.speed_history import Speed, read_restarts, read_speeds, setting_of
from workbench.cluster.workers.admission import Request, Shortage, capacity_of
from workbench.cluster.workers.pool_client import num_free, shortage
from workbench.experiment.goals import sign_of
from workbench.experiment.plan import PartialPlan
from workbench.foundation.artifacts import Artifacts
from workbench.foundation.events import (
    AttemptEnded,
    CheckpointSaved,
    Event,
    Noted,
    ResizeMeasured,
    TrialResized,
)
from workbench.foundation.formatting import format_count, format_duration, format_rate
from workbench.hardware.resources import ClusterInventory, cluster_inventory
from workbench.search.curves import Curve, forecast
from workbench.store.database import Store
from workbench.store.database.run_files import trial_folder
from workbench.store.history import Trial
from workbench.sweeps.elastic_gain import Gain, estimate_gain, is_better_shared
from workbench.sweeps.ledger import Ledger
from workbench.training.mirrored_folder import BEFORE_RESIZE, copy_files
from workbench.training.planning.equivalent_plans import fixed_of, with_workers

DEFAULT_RESTART_S = 10.0
"""Assumed cost of a restart if none was measured: stopping, starting processes, importing torch."""
NUM_MEASURED = 2
"""Number of measured speeds of the new attempt after which the gain is known."""
CHECK_EVERY_S = 1.0
"""The least time between two queries of the pool for one trial."""
GUARD_CHANCE = 0.01
"""Validation falls behind if a value as bad as the reported one has less than this chance."""
GUARD_REPORTS = 2
"""Number of reports in a row that must fall behind before a trial goes back."""
GUARD_DOUBLINGS = 2.0
"""A trial is guarded until it has trained this many times as long as before the change."""
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


def is_behind(
    before: Mapping[int, float],
    after: Mapping[int, float],
    others: Sequence[Mapping[int, float]],
    sign: float,
) -> bool:
    """Return whether a curve has fallen behind the forecast of its beginning.

    Args:
        before: The values by rung until the workers changed.
        after: The values by rung since then.
        others: The curves of other trials.
        sign: 1.0 if higher values are better, -1.0 if lower ones are.

    Returns:
        Whether each of the last `GUARD_REPORTS` values is so bad that the forecast gives it, or a
        worse one, less than `GUARD_CHANCE`. False if nothing can be forecast.
    """
    start = Curve.of({rung: sign * value for rung, value in before.items()})
    last = sorted(after)[-GUARD_REPORTS:]
    if start is None or len(last) < GUARD_REPORTS:
        return False
    curves = (Curve.of({rung: sign * value for rung, value in other.items()}) for other in others)
    examples = [start, *(curve for curve in curves if curve is not None)]
    for rung in last:
        expected = forecast(start, rung, examples)
        if expected is None or expected.chance_below(sign * after[rung]) >= GUARD_CHANCE:
            return False
    return True


class ElasticTrials:
    """Changes the number of workers of the trials of one run."""

    def __init__(self, store: Store, ledger: Ledger, artifacts: Artifacts) -> None:
        """Change the workers of trials in `ledger`, whose files are in `artifacts`.

        Earlier runs are read from `store` when they are needed.
        """
        self._store = store
        self._ledger = ledger
        self._artifacts = artifacts
        self._speedups: dict[int, float] = {}
        self._cluster: ClusterInventory | None = None
        self._earlier: dict[str, list[Speed]] = {}
        self._earlier_restarts_s: list[float] | None = None
        self._growing: int | None = None
        self._checked_s: dict[int, float] = {}
        self._noted = False

    @property
    def is_under_way(self) -> bool:
        """Whether a trial that changes its workers still waits for them."""
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
        if trial.resizes[-1].decided.cause == "guard":
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

    def prepare(self, trial: Trial) -> None:
        """Keep the checkpoints of a trial that changes its workers, or put them back.

        No attempt of the trial may be running.

        Args:
            trial: The trial, which starts its next attempt.

        Raises:
            ArtifactsError: If a file cannot be read or written.
        """
        if not trial.resizes or trial.attempts != trial.resizes[-1].decided.attempt + 1:
            return
        folder = self._artifacts.below(trial_folder(trial.number))
        source, target = folder.below("checkpoints"), folder.below(BEFORE_RESIZE)
        if trial.resizes[-1].decided.cause == "guard":
            source, target = target, source
        names = [name for name in source.stamps() if not name.rpartition("/")[2].startswith(".")]
        if names:
            target.delete("")
            copy_files(source, target, names, may_link=True)

    def tidy(self, number: int) -> None:
        """Delete what was kept for a trial that has ended.

        Args:
            number: The trial.
        """
        if self._ledger.history.trials[number].resizes:
            self._artifacts.below(trial_folder(number)).below(BEFORE_RESIZE).delete("")

    def speedup(self, number: int) -> float | None:
        """Return how many times as fast as with one worker a trial trains, or None if unknown.

        Args:
            number: The trial.
        """
        return self._speedups.get(number)

    def decide(
        self, number: int, events: Sequence[Event], request: Request, num_wanted: int
    ) -> bool:
        """Decide whether a trial that reported `events` changes its workers, and store that.

        Args:
            number: The trial, which is running.
            events: What it has just reported.
            request: What trials of the run request.
            num_wanted: Number of workers needed by trials that wait or will start.

        Returns:
            Whether its attempt ends with this, so that it must be stopped and restarted.
        """
        saved = [event for event in events if isinstance(event, CheckpointSaved)]
        if not saved or self.is_under_way:
            return False
        trial = self._ledger.history.trials[number]
        if self._must_go_back(trial):
            return self._store_decision(number, _gone_back(trial, self._rung(number)))
        if trial.resizes and trial.resizes[-1].decided.cause == "guard":
            return False
        speed, left = self._ledger.speeds.current(number), self._left_samples(trial, saved[-1].step)
        restart_s = self._restart_s(trial)
        now_s = time.monotonic()
        is_soon = now_s - self._checked_s.get(number, float("-inf")) < CHECK_EVERY_S
        if speed is None or left is None or left / speed <= restart_s or is_soon:
            return False
        self._checked_s[number] = now_s
        request = dataclasses.replace(request, run_id=self._ledger.run_id)
        if (lacking := shortage(request, POOL_TIMEOUT_S)) is not None:
            return self._store_decision(number, self._shrink(trial, lacking, left, restart_s))
        most = _num_workers(trial) + num_free(request.shape, POOL_TIMEOUT_S) - num_wanted
        return self._store_decision(number, self._choose(trial, most, left, restart_s))

    def _store_decision(
        self, number: int, chosen: tuple[TrialResized, AttemptEnded] | None
    ) -> bool:
        if chosen is None:
            return False
        self._ledger.record(*chosen)
        self._growing = number
        return True

    def _rung(self, number: int) -> int:
        return max(self._ledger.study.curve_of(number), default=0)

    def _must_go_back(self, trial: Trial) -> bool:
        """Return whether the validation of a trial fell behind after its workers changed."""
        if not trial.resizes:
            return False
        decided = trial.resizes[-1].decided
        curve = self._ledger.study.curve_of(trial.number)
        if decided.cause == "guard" or max(curve, default=0) > GUARD_DOUBLINGS * decided.rung:
            return False
        if trial.attempts < decided.attempt + 2:
            return False  # it waits for its workers
        before = {rung: value for rung, value in curve.items() if rung <= decided.rung}
        after = {rung: value for rung, value in curve.items() if rung > decided.rung}
        others = [
            self._ledger.study.curve_of(other)
            for other in self._ledger.history.trials
            if other != trial.number
        ]
        return is_behind(before, after, others, sign_of(self._ledger.history.objectives[0].goal))

    def _shrink(
        self, trial: Trial, lacking: Shortage, left: float, restart_s: float
    ) -> tuple[TrialResized, AttemptEnded] | None:
        """Return the events that shrink a trial for another run, if that makes more of workers."""
        now = _num_workers(trial)
        fixed = fixed_of(self._ledger.experiment, trial.params)
        plans = (
            with_workers(trial.plan, number, fixed=fixed)
            for number in range(now - lacking.num_missing, 0, -1)
        )
        plan = next((plan for plan in plans if plan is not None), None)
        if plan is None or plan.workers is None:
            return None
        speed = self._speed(trial)
        # Fewer workers are at most in proportion slower.
        slower = self._usual(trial, plan) or speed * plan.workers / now
        before = self._relative(trial, speed, now)
        after = min(before, before * slower / speed)
        own = lacking.own_speedup - now + before
        if not is_better_shared(
            max(own, before),
            lacking.other_speedup,
            loss=before - after,
            gain=lacking.num_requested,
        ):
            return None
        self._speedups[trial.number] = after
        left_s = left / speed
        gain = Gain(left_s, left_s - restart_s - left / slower, pays=False)
        rung = self._rung(trial.number)
        return _resized(
            trial,
            plan,
            speed=speed,
            faster=slower,
            gain=gain,
            restart_s=restart_s,
            rung=rung,
            lacking=lacking,
        )

    def _relative(self, trial: Trial, speed: float, num_workers: int) -> float:
        """Return how many times as fast as with one worker a trial trains."""
        single = with_workers(trial.plan, 1)
        alone = None if single is None else self._usual(trial, single)
        return float(num_workers) if alone is None else min(speed / alone, float(num_workers))

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
        self._speedups[trial.number] = self._relative(trial, faster, plan.workers or 1)
        rung = self._rung(trial.number)
        return _resized(
            trial, plan, speed=speed, faster=faster, gain=gain, restart_s=restart_s, rung=rung
        )

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
    rung: int,
    lacking: Shortage | None = None,
) -> tuple[TrialResized, AttemptEnded]:
    before, after = _num_workers(trial), plan.workers
    assert after is not None
    attempt = trial.attempts - 1
    resized = TrialResized(
        trial=trial.number,
        attempt=attempt,
        cause="idle" if lacking is None else "request",
        for_run=None if lacking is None else lacking.run_id,
        rung=rung,
        from_workers=before,
        to_workers=after,
        samples_per_s=speed,
        expected_samples_per_s=faster,
        left_s=gain.left_s,
        assumed_restart_s=restart_s,
        expected_saving_s=gain.saving_s,
    )
    verb = "grows" if lacking is None else "shrinks"
    why = "" if lacking is None else f", because run {lacking.run_id} waits for workers"
    message = (
        f"{verb} from {before} to {format_count(after, 'worker')}{why}: {format_rate(speed)} ->"
        f" about {format_rate(faster)} samples/s. The rest takes"
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


def _gone_back(trial: Trial, rung: int) -> tuple[TrialResized, AttemptEnded] | None:
    """Return the events that undo the last change of a trial's workers."""
    undone, attempt = trial.resizes[-1].decided, trial.attempts - 1
    # The micro batch of before as well: some layers look at the samples of one worker.
    plan = with_workers(trial.resizes[-1].plan, undone.from_workers)
    if plan is None:
        return None
    speed = trial.samples_per_s or undone.expected_samples_per_s
    resized = TrialResized(
        trial=trial.number,
        attempt=attempt,
        cause="guard",
        rung=rung,
        from_workers=undone.to_workers,
        to_workers=undone.from_workers,
        samples_per_s=speed,
        expected_samples_per_s=undone.samples_per_s,
        left_s=undone.left_s,
        assumed_restart_s=undone.assumed_restart_s,
        expected_saving_s=0.0,
    )
    message = (
        f"goes back to {format_count(undone.from_workers, 'worker')} and the checkpoint at rung"
        f" {undone.rung}: with {undone.to_workers} its validation fell behind the forecast"
    )
    return resized, AttemptEnded(
        trial=trial.number,
        attempt=attempt,
        reason="resized",
        message=message,
        next_plan=plan.to_json(),
    )
