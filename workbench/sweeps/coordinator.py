"""Carry out a trial for Tune: lease workers and forward their events.

A coordinator lives in the driver and imports no torch, so it survives whatever a trial does to its
workers, and reports it. It carries out many trials in a row in its own thread (see
`tune_internals`). The driver sends it orders and receives events. It answers at least every
`PATIENCE_S` seconds, so that the driver never waits for a silent trial.

If a trial runs out of memory, the next attempt computes its step in another way, or the trial ends.
`planning.equivalent_plans` knows the ways.
"""

from __future__ import annotations

import dataclasses
import math
import time
import traceback
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from workbench.cluster.remote.code_origin import Origin
from workbench.cluster.workers.admission import Request
from workbench.cluster.workers.gang import Gang
from workbench.cluster.workers.trial_log import crash_in, log_name
from workbench.cluster.workers.worker import Progress
from workbench.experiment.plan import PartialPlan
from workbench.foundation.errors import ArtifactsError, WorkbenchError
from workbench.foundation.events import (
    AttemptEnded,
    Event,
    Noted,
    Reason,
    TrialEnded,
    TrialPlanned,
    TrialReported,
    TrialStarted,
)
from workbench.foundation.formatting import format_duration
from workbench.training.planning.equivalent_plans import WAYS, next_way
from workbench.training.worker_task import TrialTask, Turn

_MAX_REFUSAL = 200
_KEPT_WHOLE = (
    ". The micro batch stays the same, because the loss of a batch is not the mean of the losses of"
    " its parts"
)
EVENTS_KEY = "events"
PATIENCE_S = 1.0
MIN_GRACE_S = 1.0
GRACE_SHARE = 0.1
"""Share of `resources.trial_time` by which a trial may exceed it to save its state."""
SILENT_S = 30.0
"""If a trial runs out of time this long after its last report, it may have been stuck."""


class OtherWays:
    """The ways that one trial has tried and can still try.

    Attributes:
        plan: The plan of the last attempt that knew its plan.
    """

    def __init__(self, changeable: Collection[str], tried: Collection[PartialPlan]) -> None:
        """Start from what earlier coordinators tried.

        Args:
            changeable: The names in `WAYS` that may change.
            tried: The changes that were tried.
        """
        self.plan = PartialPlan()
        self._changeable, self._tried = changeable, list(tried)
        self._has_blocks, self._divides_batch = False, True
        self._undone, self._words = PartialPlan(), ""
        self._ran_out: TrialEnded | None = None
        """The last attempt that ran out of memory, until the change that followed it has worked."""

    def take(self, planned: TrialPlanned) -> None:
        """Learn from the plan of an attempt."""
        self.plan = PartialPlan.from_json(planned.plan)
        self._has_blocks = bool(planned.has_blocks)
        self._divides_batch = planned.divides_batch is not False

    def report(self) -> None:
        """Note that the attempt trains, so a later error is not caused by its changed plan."""
        self._ran_out = None

    def after(self, ended: TrialEnded) -> tuple[TrialEnded, PartialPlan | None]:
        """Return how an attempt ended, and how the plan of the next one changes, if there is one.

        Args:
            ended: How the worker, or its loss, ended the attempt.
        """
        before, refusal = self._ran_out, ""
        if ended.reason == "oom":
            self._ran_out, self._undone = ended, PartialPlan()
        elif (
            ended.reason == "error" and before is not None and "micro_batch" not in self._tried[-1]
        ):
            refusal = f". An attempt with {self._words} failed: "
            refusal += str(ended.message)[:_MAX_REFUSAL]
            self.plan |= self._undone
        else:
            return ended, None
        change = self._next_way(self._changeable)
        out = self._ran_out
        assert out is not None
        message = f"{str(out.message).rstrip('.')}{refusal}"
        if change is None:
            return (
                out.model_copy(
                    update={
                        "attempt": ended.attempt,
                        "message": message + self._describe_unchanged(),
                    }
                ),
                None,
            )
        self._words = _words(change, self.plan)
        changes = self._undone | change if refusal else change
        self._undone = self.plan.only([name for name, _ in change.values])
        self._tried.append(change)
        self.plan |= change
        message += f". It continues with {self._words}"
        return ended.model_copy(update={"message": message}), changes

    def _describe_unchanged(self) -> str:
        """Return what could have been tried if the experiment had left it open."""
        fixed = [name for name in WAYS if name not in self._changeable and name in self.plan]
        possible = [name for name in fixed if self._next_way([name])]
        words = "" if self._divides_batch else _KEPT_WHOLE
        return words + "".join(
            f". plan.{name} stays {self.plan.get(name)} because it is not auto" for name in possible
        )

    def _next_way(self, changeable: Collection[str]) -> PartialPlan | None:
        return next_way(
            self.plan,
            changeable=changeable,
            has_blocks=self._has_blocks,
            tried=self._tried,
            divides_batch=self._divides_batch,
        )


def _words(change: PartialPlan, before: PartialPlan) -> str:
    if change.micro_batch is not None:
        return f"micro batches of {change.micro_batch} instead of {before.micro_batch}"
    if "recompute" in change:
        return "blocks that are recomputed in the backward pass, which gives the same result"
    return (
        f"the strategy {change.get('strategy')} instead of {before.get('strategy')}, which gives"
        " the same result"
    )


def is_over(event: Event) -> bool:
    """Return whether the workers of a trial are free after an event that they reported."""
    is_turn = isinstance(event, AttemptEnded) and event.reason == "turn"
    return is_turn or isinstance(event, TrialEnded)


class Events(list[Event]):
    """What happened in a trial, oldest first.

    Tune formats every result for its debug log, even if nobody reads that log, so `repr` is short.
    """

    def __repr__(self) -> str:
        return f"{len(self)} events"


@dataclass(frozen=True)
class Order:
    """What a coordinator must know to run one trial.

    Attributes:
        task: The trial.
        request: The workers that it needs.
        blocking: Whether training waits for a decision after each report of an objective.
        origin: Where the run was started.
        plan: The part of the plan that is known before the data is loaded.
        max_retries: How often the trial is tried again when a worker was lost.
        changeable: Which parts of the plan may change if memory runs out, in addition to how the
            batch is divided.
        tried: The changes that earlier attempts tried when memory ran out.
        time_limit_s: How long all attempts may take together, in seconds, or None for no limit.
        trained_s: How long earlier attempts took, in seconds.
        program: The version of the code that it runs.
    """

    task: TrialTask
    request: Request
    blocking: bool
    origin: Origin
    plan: PartialPlan
    max_retries: int
    changeable: frozenset[str]
    tried: tuple[PartialPlan, ...]
    time_limit_s: float | None
    trained_s: float = 0.0
    program: int = 1

    def __str__(self) -> str:
        return f"trial {self.task.trial}"

    __repr__ = __str__


class Coordinator:
    """Runs the attempts of one trial after another on leased workers."""

    def __init__(self, order: Order) -> None:
        """Take the first trial.

        Args:
            order: The trial.
        """
        self._gang: Gang | None = None
        self._next: Order | None = None
        self._begin(order)

    def reset(self, order: Order) -> bool:
        """Take the next trial after a pause, and tell Tune that reuse is possible.

        Args:
            order: The trial.
        """
        self.take(order)
        return True

    def take(self, order: Order) -> None:
        """Take the next trial. It starts when `train` is called again.

        Args:
            order: The trial. The one before may have been stopped in the middle.
        """
        self._next = order

    def rest(self) -> None:
        """Return the workers that were kept for the next trial, because there is none now."""
        self._release()

    def stop(self) -> None:
        """Return the workers."""
        self._release()

    def train(self) -> dict[str, Any]:
        """Return what happened since the last call, waiting at most `PATIENCE_S` for something."""
        try:
            events = self._advance()
        except ArtifactsError as error:
            self._release()
            events = [self._failed("storage", str(error))]
        except WorkbenchError as error:
            self._release()
            events = [self._failed("error", str(error))]
        except Exception as error:
            self._release()
            events = [
                self._failed("error", f"{type(error).__name__}: {error}", traceback.format_exc())
            ]
        return {EVENTS_KEY: Events(events)}

    def _begin(self, order: Order) -> None:
        self._order = order
        self._attempt = order.task.attempt
        self._retries_left = order.max_retries
        self._ways = OtherWays(order.changeable, order.tried)
        self._decided_plan = order.task.plan
        self._started_s: float | None = None
        self._reported_s: float | None = None
        # The seconds and the step of the first and the last report of new steps.
        self._first_new: tuple[float, int] | None = None
        self._last_new: tuple[float, int] | None = None
        self._spent_s = order.trained_s  # on attempts that have ended

    def _release(self) -> None:
        if self._gang is not None:
            self._gang.release()
            self._gang = None

    def _advance(self) -> list[Event]:
        if self._next is not None:
            order, self._next = self._next, None
            self._begin(order)
            if self._gang is None or not self._gang.continue_with(order.request):
                self._release()
        started: list[Event] = []
        if self._gang is None:
            self._gang = Gang(self._order.request)
        if self._started_s is None:
            if not self._gang.ready(PATIENCE_S):
                return []
            started = [self._start(self._gang)]
        return [*started, *self._follow(self._gang)]

    def _start(self, gang: Gang) -> TrialStarted:
        order = self._order
        task = dataclasses.replace(order.task, attempt=self._attempt, plan=self._decided_plan)
        last = task.last_checkpoint if task.resume else None
        gang.start(task, blocking=order.blocking, origin=order.origin)
        self._started_s = time.monotonic()
        return TrialStarted(
            trial=task.trial,
            attempt=self._attempt,
            worker_pids=[worker.pid for worker in gang.workers],
            hosts=[worker.host for worker in gang.workers],
            nodes=[worker.node for worker in gang.workers],
            gpus=[list(worker.gpus) for worker in gang.workers],
            plan=(order.plan | self._decided_plan).to_json(),
            resumed_from=last,
            program=order.program,
        )

    def _follow(self, gang: Gang) -> list[Event]:
        progress = gang.next(timeout_s=min(PATIENCE_S, max(0.0, self._left_s())))
        if progress.ended is None and progress.lost is None and self._left_s() <= 0:
            events = list(progress.events)
            message = self._describe_timeout()
            progress = gang.stop(self._stop_grace_s())
            self._release()
            if progress.message is not None:
                message += f"; {progress.message}{self._describe_grace()}"
            return [*events, *progress.events, self._failed("timeout", message)]
        events: list[Event] = list(progress.events)
        for event in events:
            if isinstance(event, TrialPlanned):
                self._ways.take(event)
            elif isinstance(event, TrialReported):
                self._reported_s = time.monotonic()
                self._note_step(event)
                self._ways.report()
        if progress.unfit is not None:
            note = f"replaced after trial {self._order.task.trial}: {progress.unfit}"
            events.append(Noted(level="warning", message=note, trial=self._order.task.trial))
        if progress.lost is not None:
            events.append(self._after_loss(progress.lost, progress))
            self._release()
        elif progress.ended is not None:
            events.append(self._after_end(progress.ended, has_begun=progress.occupied is None))
            if not (is_over(events[-1]) and gang.can_continue):
                self._release()
        else:
            gang.announce()
        return events

    def _after_loss(self, reason: Reason, progress: Progress) -> AttemptEnded | TrialEnded:
        """Retry from the last checkpoint if that may help."""
        failed = self._failed(
            reason, (progress.message or "a worker was lost") + self._describe_crash()
        )
        if reason == "oom":
            return self._after_end(failed)
        if self._retries_left == 0:
            return failed
        self._retries_left -= 1
        return self._next_attempt(failed)

    def _describe_crash(self) -> str:
        folder = self._order.task.artifacts.working_folder
        signal = crash_in(folder / log_name(0), time.time() - self._attempt_s())
        return "" if signal is None else f" by {signal}"

    def _after_end(self, ended: TrialEnded, *, has_begun: bool = True) -> AttemptEnded | TrialEnded:
        """Retry after running out of memory, with a plan that takes the same steps.

        Args:
            ended: How the attempt ended.
            has_begun: Whether it began. Otherwise others held its GPU, and it costs no retry.
        """
        if not has_begun:
            return self._next_attempt(ended).model_copy(update={"is_retry": False})
        if ended.ends_turn:
            return self._end_turn(ended)
        ended, changes = self._ways.after(ended)
        if changes is None:
            return ended
        self._decided_plan |= changes
        return self._next_attempt(ended, changes)

    def _end_turn(self, ended: TrialEnded) -> AttemptEnded:
        turn = self._order.task.turn
        assert turn is not None
        return AttemptEnded(
            trial=ended.trial,
            attempt=self._attempt,
            reason="turn",
            message=f"turn {turn.number} of {turn.num_turns} is over",
            turn=turn.number,
            restart_s=self._restart_s(turn),
        )

    def _note_step(self, event: TrialReported) -> None:
        """Note a report of a step that no earlier attempt has reported."""
        turn = self._order.task.turn
        if turn is not None and not event.told_again and event.step > turn.known_step:
            self._last_new = event.elapsed_s, event.step
            self._first_new = self._first_new or self._last_new

    def _restart_s(self, turn: Turn) -> float | None:
        """Return how much longer the turn took than its steps, in seconds, or None if unknown."""
        if turn.number == 1 or self._first_new is None or self._last_new is None:
            return None
        (first_s, first), (last_s, last) = self._first_new, self._last_new
        if last <= first:
            return None
        steps_s = (last_s - first_s) / (last - first) * (last - turn.known_step)
        return max(0.0, self._attempt_s() - steps_s)

    def _next_attempt(self, failed: TrialEnded, changes: PartialPlan | None = None) -> AttemptEnded:
        assert failed.reason is not None
        ended = AttemptEnded(
            trial=failed.trial,
            attempt=self._attempt,
            reason=failed.reason,
            message=failed.message or "",
            is_retry=failed.reason == "lost",
            next_plan={} if changes is None else changes.to_json(),
        )
        self._attempt += 1
        self._spent_s += self._attempt_s()
        self._started_s = None
        return ended

    def _left_s(self) -> float:
        """Return how long the trial may still take, in seconds."""
        limit_s = self._order.time_limit_s
        if limit_s is None:
            return math.inf
        return limit_s - self._spent_s - self._attempt_s()

    def _stop_grace_s(self) -> float:
        """Return how long a trial that is out of time may take to stop, relative to its limit."""
        grace_s, limit_s = self._order.request.stop_grace_s, self._order.time_limit_s
        if limit_s is None:
            return grace_s
        return min(grace_s, max(MIN_GRACE_S, GRACE_SHARE * limit_s))

    def _describe_grace(self) -> str:
        """Return why a trial had less time to stop than `resources.stop_grace`, if it had."""
        if self._stop_grace_s() == self._order.request.stop_grace_s:
            return ""
        shortest = format_duration(MIN_GRACE_S)
        return (
            f" (a trial out of time has {GRACE_SHARE:.0%} of its limit to stop, at least"
            f" {shortest})"
        )

    def _describe_timeout(self) -> str:
        limit = (
            f"it exceeded resources.trial_time ({format_duration(self._order.time_limit_s or 0.0)})"
        )
        if self._reported_s is None:
            return f"{limit} without a report"
        silent_s = time.monotonic() - self._reported_s
        if silent_s < SILENT_S:
            return limit
        return f"{limit}, {format_duration(silent_s)} after its last report"

    def _attempt_s(self) -> float:
        """Return how long the attempt has trained, in seconds."""
        if self._started_s is None:
            return 0.0
        return time.monotonic() - self._started_s

    def _failed(self, reason: Reason, message: str, trace: str | None = None) -> TrialEnded:
        return TrialEnded(
            trial=self._order.task.trial,
            attempt=self._attempt,
            state="failed",
            reason=reason,
            message=message,
            traceback=trace,
        )
