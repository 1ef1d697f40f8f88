"""Writes the reports of a trial next to its checkpoints, so that no checkpoint is ahead of them.

If a driver dies, a report on its way to it is lost. But the trial may continue, and save a
checkpoint after the report. So the next attempt repeats the reports of earlier attempts, up to the
step where it continues. The driver skips the reports that it has already stored. A trial without
checkpoints starts again, so it needs no journal.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

from workbench.foundation.errors import StoreError
from workbench.foundation.events import Event, TrialReported, from_json, to_json
from workbench.training.task import TrialTask

MAX_BYTES = 2**20
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
            if self._file is None or self._bytes > MAX_BYTES:
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
