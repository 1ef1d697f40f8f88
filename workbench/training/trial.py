"""Runs one attempt at a trial: chooses the kind of training, and interprets errors.

If a driver dies, a report on its way to it is lost. But the trial may continue, and save a
checkpoint after the report. So reports are also written to a journal next to the checkpoints. The
next attempt repeats the reports of earlier attempts, up to the step where it continues. The driver
skips those that it has already stored. A trial without checkpoints starts again, so it needs no
journal.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import traceback
from collections.abc import Callable
from functools import partial
from types import FrameType

from workbench.foundation.artifacts import disk_fault
from workbench.foundation.errors import StoreError, WorkbenchError
from workbench.foundation.events import Event, Reason, TrialEnded, TrialReported, from_json, to_json
from workbench.store.history.failure_text import failure_place
from workbench.training.mirrored_folder import BranchKeeper
from workbench.training.outcome import Outcome, describe, ran_out_of_memory
from workbench.training.planning.settings import fitted_of
from workbench.training.probes.measurements import NeighbourProbe, PlanProbe, PowerProbe, RateTest
from workbench.training.worker_task import TrialTask

MAX_JOURNAL_BYTES = 2**20
"""If the file is longer, it is kept as the earlier file, and a new one is started."""
_NAME, _EARLIER_NAME = "reports.jsonl", "reports.earlier.jsonl"


class Journal:
    """Writes a trial's reports to the file, and then passes its events on."""

    def __init__(self, task: TrialTask, report: Callable[[Event], bool]) -> None:
        """Read the reports of earlier attempts.

        Args:
            task: The order.
            report: Receives events, and returns whether the trial should stop.
        """
        self._report = report
        self._folder = task.artifacts.working_folder
        self._checkpoints = task.checkpoints.working_folder
        self._has_checkpoints = task.experiment.trains_model
        self._file: int | None = None
        self._bytes = 0
        earlier = self._read() if task.resume else []
        self._is_first = task.rank == 0
        # The reports of earlier turns are stored.
        unsent = earlier
        if task.turn is not None:
            unsent = [event for event in earlier if event.step > task.turn.known_step]
        self._unsent = unsent if self._is_first else []
        self.values = {name: value for event in earlier for name, value in event.values.items()}
        """The last values that earlier attempts reported, by metric."""
        self.last_step = earlier[-1].step if earlier else 0
        """The last step that earlier attempts reported."""

    def __call__(self, event: Event) -> bool:
        """Pass an event on, after the reports of earlier attempts before its step."""
        stop = False
        if isinstance(event, TrialReported):
            stop = self._send_again(
                [earlier for earlier in self._unsent if earlier.step < event.step]
            )
            self._write(event)
        return bool(self._report(event)) or stop

    def close(self, *, sends_all: bool) -> None:
        """End the journal of this attempt.

        Args:
            sends_all: Whether to send all remaining reports of earlier attempts, because the trial
                is over and will not repeat them.
        """
        if sends_all:
            self._send_again(self._unsent)
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _send_again(self, events: list[TrialReported]) -> bool:
        """Repeat reports of earlier attempts. The training itself will repeat the later ones."""
        self._unsent = []
        stops = [self._report(event.model_copy(update={"told_again": True})) for event in events]
        return any(stops)

    def _read(self) -> list[TrialReported]:
        """Return the reports of earlier attempts by step. If a step was repeated, the last one."""
        events: dict[int, TrialReported] = {}
        for name in (_EARLIER_NAME, _NAME):
            with contextlib.suppress(OSError):
                for line in (self._folder / name).read_bytes().splitlines():
                    # The last line may be incomplete, if the process was killed while writing it.
                    with contextlib.suppress(StoreError):
                        event = from_json(line)
                        if isinstance(event, TrialReported):
                            events[event.step] = event
        return [events[step] for step in sorted(events)]

    def _write(self, event: TrialReported) -> None:
        self._has_checkpoints = self._has_checkpoints or self._checkpoints.is_dir()
        if not (self._is_first and self._has_checkpoints):
            return
        line = to_json(event).encode() + b"\n"
        # If the disk is full, the checkpoint will fail as well, and report it.
        with contextlib.suppress(OSError):
            if self._file is None or self._bytes > MAX_JOURNAL_BYTES:
                self._open()
            assert self._file is not None
            self._bytes += os.write(self._file, line)

    def _open(self) -> None:
        path = self._folder / _NAME
        if self._file is not None:
            os.close(self._file)
            self._file = None
            os.replace(path, self._folder / _EARLIER_NAME)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._bytes = os.fstat(self._file).st_size
        if self._bytes:
            self._bytes += os.write(
                self._file, b"\n"
            )  # ends an incomplete line of a killed process


Report = Callable[[Event], bool]


def run_trial(
    task: TrialTask, report: Report, should_stop: Callable[[], bool] = lambda: False
) -> TrialEnded:
    """Train one configuration, run your function or program with it, or measure something.

    Args:
        task: The order.
        report: Receives events, such as `TrialReported`, and returns whether the trial should stop.
        should_stop: Returns whether the trial should stop. A program is also asked to stop between
            its reports.

    Returns:
        How the attempt ended: complete, stopped because `report` requested it, or failed with a
        reason. No error of your code leaves this function.
    """
    if task.branches and not task.experiment.trains_model:
        report = BranchKeeper(task, report)
    steps = _StepWatch(report)
    journal: Journal | None = None
    try:
        journal = Journal(task, steps)
        # Only the chosen kind is imported: programs and most functions need no torch.
        if task.measurement is not None:
            run = _measure
        elif task.experiment.command is not None:
            from workbench.training.program_trial import run_program

            run = partial(run_program, should_stop=should_stop)
        elif not task.experiment.trains_model:
            from workbench.training.functions import run_function as run
        elif fitted_of(task.experiment, task.params, loads_code=True) is not None:
            from workbench.training.fitting import fit as run
        elif task.experiment.federated is not None:
            from workbench.training.federated.loop import federate as run
        else:
            from workbench.training.loop import train as run
        known = dataclasses.replace(task, reported=journal.values, reported_step=journal.last_step)
        outcome = run(known, journal)
        journal.close(sends_all=True)
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        reason, message = reason_of(error, task)
        outcome = Outcome("failed", steps.last, reason=reason, message=message)
        text = None
        if not _says_all(error):
            text = _write_traceback(error)
        # The traceback holds frames, and frames hold the model. The next trial needs that memory.
        traceback.clear_frames(error.__traceback__)
        _disconnect()
        if journal is not None:
            journal.close(sends_all=False)
        return _ended(task, outcome, text)
    return _ended(
        task, dataclasses.replace(outcome, step=outcome.step or steps.last), outcome.traceback
    )


def _measure(task: TrialTask, report: Report) -> Outcome:
    """Make the measurement that a task orders, as one worker of the gang."""
    measurement = task.measurement
    # Imports are here because each probe loads torch or starts a program. None needs the others'.
    if isinstance(measurement, NeighbourProbe):
        from workbench.training.probes.plan_probe import measure_neighbours

        return measure_neighbours(task, measurement, report)
    if isinstance(measurement, PowerProbe):
        from workbench.training.probes.plan_probe import measure_power

        return measure_power(task, measurement, report)
    if isinstance(measurement, RateTest):
        from workbench.training.probes.rate_range_test import measure_rates

        return measure_rates(task, measurement, report)
    assert isinstance(measurement, PlanProbe)
    if task.experiment.trains_model:
        from workbench.training.probes.plan_probe import measure_plans

        return measure_plans(task, measurement, report)
    from workbench.training.probes.reported_speed import measure_reported_speed

    return measure_reported_speed(task, measurement, report)


def _disconnect() -> None:
    """Leave the group, so that the other workers of the trial notice the end of this one."""
    # If nobody has imported the module, there is no group to leave.
    group = sys.modules.get("workbench.training.strategies.worker_group")
    if group is not None:
        group.let_go()


class _StepWatch:
    """Passes events on and remembers the last step, which a failed attempt must report."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self.last = 0

    def __call__(self, event: Event) -> bool:
        self.last = getattr(event, "step", self.last)
        return bool(self._report(event))


def _says_all(error: BaseException) -> bool:
    """Return whether the message of an error is enough, because only our own code ran."""
    if (
        not isinstance(error, WorkbenchError)
        or error.__cause__ is not None
        or hasattr(error, "__notes__")
    ):
        return False
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return all(map(_is_ours, frames))


def _write_traceback(error: BaseException) -> str:
    """Return the traceback of an error, without our frames before the first one of your code."""
    text = "".join(traceback.format_exception(error))
    first = error.__traceback__
    while first is not None and _is_ours(first.tb_frame):
        first = first.tb_next
    if first is None or failure_place(text) is None:
        return text
    return "".join(traceback.format_exception(type(error), error, first))


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "workbench"


def _ended(task: TrialTask, outcome: Outcome, text: str | None) -> TrialEnded:
    return TrialEnded(
        trial=task.trial,
        attempt=task.attempt,
        state=outcome.state,
        reason=outcome.reason,
        message=outcome.message,
        traceback=text,
        values=outcome.values,
        step=outcome.step,
        is_unreported=outcome.is_unreported,
        ends_turn=outcome.ends_turn,
    )


def reason_of(error: BaseException, task: TrialTask) -> tuple[Reason, str]:
    """Return why an error ends its trial, and its message.

    Args:
        error: The error that ended the attempt.
        task: The order of the attempt.
    """
    fault = disk_fault(error, task.artifacts, task.checkpoints)
    if fault is not None:
        return "storage", str(fault)
    reason: Reason = "oom" if ran_out_of_memory(error) else "error"
    if isinstance(error, WorkbenchError):
        return reason, str(error)
    return reason, describe(error)
