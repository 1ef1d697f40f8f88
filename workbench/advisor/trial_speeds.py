"""Collects the speeds that the trials of a run report, from its events.

The first report of an attempt does not count, because it includes first calls and the time to read
a checkpoint. When an attempt ends, its speed becomes a row of the speed history. `speed_history`
reads earlier runs.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from workbench.advisor.plan_variants import plan_with, read_plan, variant_of
from workbench.advisor.speed_history import Speed, work_params
from workbench.experiment.plan import PartialPlan, Plan
from workbench.foundation.events import (
    AttemptEnded,
    DriverStarted,
    Event,
    TrialEnded,
    TrialPlanned,
    TrialProposed,
    TrialReported,
    TrialStarted,
)

MIN_SPEEDS = 2
"""Reports after the first that make an attempt a measurement."""
MAX_SPEEDS = 50
"""Only this many of the latest reports of a plan count."""
NUM_CURRENT_SPEEDS = 5
_Place = tuple[str, Plan]
"""The work of a trial as JSON, and its plan in the form of `plan_with`."""


@dataclass(frozen=True)
class AttemptSpeed:
    """The speed of one attempt.

    Attributes:
        trial: The trial.
        plan: The plan of the attempt.
        samples_per_s: The median throughput of all workers over its reports.
        workers_per_node: The number of workers on each node.
        beside_others: Whether another trial of the run ran at the same time.
        num_train_samples: Samples of an epoch, of which the last batch counts as full, or None if
            no epoch ended.
    """

    trial: int
    plan: Plan
    samples_per_s: float
    workers_per_node: tuple[int, ...]
    beside_others: bool
    num_train_samples: int | None = None


@dataclass
class _Attempt:
    started_unix_s: float
    nodes: tuple[str, ...]
    beside_others: bool
    plan: Plan | None = None
    place: _Place | None = None
    loading_s: float = 0.0
    steps_per_epoch: float | None = None
    speeds: list[float] = field(default_factory=list)
    """Speeds of all reports, including the first."""


class TrialSpeeds:
    """Measured speeds and restarts of the trials of one run."""

    def __init__(self) -> None:
        """Start before the first event of a run."""
        self.restarts_s: list[float] = []
        """Seconds from the end of an attempt until the next one trained, for each restart."""
        self._work: dict[int, str] = {}
        self._attempts: dict[int, _Attempt] = {}
        self._speeds: dict[_Place, deque[float]] = defaultdict(lambda: deque(maxlen=MAX_SPEEDS))
        self._ended_unix_s: dict[int, float] = {}
        self._last_restart_s: dict[int, float] = {}
        self._measured: list[AttemptSpeed] = []

    def apply(self, event: Event) -> None:
        """Apply the next event of the run."""
        match event:
            case DriverStarted():  # time without a driver is not part of a restart
                self._ended_unix_s.clear()
                self._attempts.clear()
            case TrialProposed():
                self._work[event.trial] = json.dumps(work_params(event.params), sort_keys=True)
            case TrialStarted():
                self._start(event)
            case TrialPlanned():
                self._plan(event)
            case TrialReported(samples_per_s=float(speed), told_again=False) if speed > 0:
                self._add(event, speed)
            case AttemptEnded():
                self._end(event.trial)
                self._last_restart_s.pop(event.trial, None)
                if event.reason != "stopped":
                    self._ended_unix_s[event.trial] = event.time_unix_s
            case TrialEnded():
                self._end(event.trial)
            case _:
                pass

    def current(self, trial: int) -> float | None:
        """Return the current speed of a trial in samples/s, or None if it is not known yet."""
        attempt = self._attempts.get(trial)
        speeds = [] if attempt is None else attempt.speeds[1:]
        return statistics.median(speeds[-NUM_CURRENT_SPEEDS:]) if speeds else None

    def num_current(self, trial: int) -> int:
        """Return the number of reports in a trial's current attempt, without the first."""
        attempt = self._attempts.get(trial)
        return 0 if attempt is None else max(0, len(attempt.speeds) - 1)

    def usual(self, trial: int, plan: PartialPlan, earlier: Iterable[Speed] = ()) -> float | None:
        """Return the usual speed of a plan for the work of a trial, in samples/s.

        Args:
            trial: A running trial.
            plan: The plan. Missing dimensions are taken from the trial.
            earlier: Measurements of the same setting from earlier runs.

        Returns:
            The median of the measurements, or None if there are none.
        """
        attempt = self._attempts.get(trial)
        if attempt is None or attempt.plan is None or attempt.place is None:
            return None
        work, _ = attempt.place
        whole = (PartialPlan.of_plan(attempt.plan) | plan).complete()
        if whole is None:
            return None
        wanted = _canonical(whole)
        speeds = list(self._speeds.get((work, wanted), ()))
        speeds += [
            speed.samples_per_s
            for speed in earlier
            if speed.samples_per_s and _canonical(speed.plan) == wanted
        ]
        return statistics.median(speeds) if speeds else None

    def last_restart_s(self, trial: int) -> float | None:
        """Return the seconds of the last restart of a trial, or None if there was none."""
        return self._last_restart_s.get(trial)

    def loading_s(self, trial: int) -> float:
        """Return the seconds that the current attempt took to load data and model."""
        attempt = self._attempts.get(trial)
        return 0.0 if attempt is None else attempt.loading_s

    def take_measured(self) -> list[AttemptSpeed]:
        """Return the attempts that ended since the last call and were long enough to count."""
        measured, self._measured = self._measured, []
        return measured

    def _start(self, event: TrialStarted) -> None:
        self._end(event.trial)
        for other in self._attempts.values():
            other.beside_others = True
        self._attempts[event.trial] = _Attempt(
            event.time_unix_s, tuple(event.nodes), beside_others=bool(self._attempts)
        )

    def _plan(self, event: TrialPlanned) -> None:
        attempt = self._attempts.setdefault(
            event.trial, _Attempt(event.time_unix_s, (), beside_others=True)
        )
        attempt.loading_s = max(0.0, event.time_unix_s - attempt.started_unix_s)
        attempt.plan = read_plan(event.plan)
        if attempt.plan is not None:
            attempt.place = (self._work.get(event.trial, ""), _canonical(attempt.plan))
        ended_unix_s = self._ended_unix_s.pop(event.trial, None)
        if ended_unix_s is not None:
            self._last_restart_s[event.trial] = max(0.0, event.time_unix_s - ended_unix_s)
            self.restarts_s.append(self._last_restart_s[event.trial])

    def _add(self, event: TrialReported, speed: float) -> None:
        attempt = self._attempts.get(event.trial)
        if attempt is None:
            return
        if event.epoch and event.epoch.is_integer():
            attempt.steps_per_epoch = event.step / event.epoch
        if attempt.speeds and attempt.place is not None:
            self._speeds[attempt.place].append(speed)
        attempt.speeds.append(speed)

    def _end(self, trial: int) -> None:
        attempt = self._attempts.pop(trial, None)
        if attempt is None or attempt.plan is None or len(attempt.speeds) <= MIN_SPEEDS:
            return
        per_node = tuple(sorted(Counter(attempt.nodes).values()))
        speed = statistics.median(attempt.speeds[1:])
        samples = None
        if attempt.steps_per_epoch is not None:
            samples = round(attempt.steps_per_epoch * attempt.plan.global_batch)
        self._measured.append(
            AttemptSpeed(
                trial=trial,
                plan=attempt.plan,
                samples_per_s=speed,
                workers_per_node=per_node,
                beside_others=attempt.beside_others,
                num_train_samples=samples,
            )
        )


def _canonical(plan: Plan) -> Plan:
    return plan_with(variant_of(plan), plan.workers, plan.micro_batch, plan.accumulation)
