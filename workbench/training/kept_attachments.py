"""Keeps the attachments of a trial's reports in the trial's folder.

The newest attachment of each name is kept, and some others that are spread evenly over the
training. If an attachment is too large, or there are too many, it is dropped with a note. That
never fails a trial.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from workbench.foundation.attachments import Attachment
from workbench.foundation.events import AttachmentSaved, Event, Noted
from workbench.foundation.formatting import format_bytes
from workbench.training.worker_task import TrialTask

FOLDER = "attachments"
MAX_KEPT = 20
"""Maximum number of attachments that are kept for each name."""
MAX_NAMES = 20
MAX_BYTES = 64 * 2**20
"""Maximum size of all attachments of an attempt."""
INTERVAL_S = 1.0
"""After the first few, attachments of one name are written at most this often."""


@dataclass
class _Series:
    """The attachments of one name, numbered in the order of reports."""

    files: dict[int, tuple[str, int]] = field(default_factory=dict)
    """File and size of each kept attachment, by its number."""
    count: int = 0
    stride: int = 1
    written_s: float = 0.0
    waiting: tuple[int, int, Attachment] | None = None
    """The newest attachment, if it is not written yet: its number, its step, and itself."""


class KeptAttachments:
    """The attachments of one attempt."""

    def __init__(
        self,
        task: TrialTask,
        report: Callable[[Event], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start without attachments.

        Args:
            task: The trial. Only its rank 0 keeps attachments.
            report: Receives events.
            clock: Returns the time in seconds.
        """
        self._task = task
        self._report = report
        self._clock = clock
        self._series: dict[str, _Series] = {}
        self._num_files = 0
        self._num_bytes = 0
        self._noted: set[str] = set()
        self._refused: set[str] = set()

    def take(self, step: int, attachment: Attachment) -> None:
        """Keep an attachment, or drop it.

        Args:
            step: The step at which it was reported.
            attachment: The attachment.

        Raises:
            ArtifactsError: If the folder of the trial cannot be written.
        """
        if self._task.rank:
            return
        series = self._series.get(attachment.name)
        if series is None:
            if len(self._series) >= MAX_NAMES:
                self.note(
                    "names",
                    f"pictures, tables and texts are kept for at most {MAX_NAMES} names",
                )
                return
            series = self._series[attachment.name] = _Series()
        place, series.count = series.count, series.count + 1
        series.waiting = (place, step, attachment)
        if place < MAX_KEPT or self._clock() - series.written_s >= INTERVAL_S:
            self._write(series)

    def refuse(self, name: str, problem: str) -> None:
        """Report that something cannot be kept, once per name and for a limited number of names."""
        if name not in self._refused and len(self._refused) >= MAX_NAMES:
            self.note("many refused", f"{name!r} and others are not kept: {problem}")
            return
        self._refused.add(name)
        self.note(f"refused {name}", f"{name!r} is not kept: {problem}")

    def close(self) -> None:
        """Write the newest attachment of each name, if it is not written yet."""
        for series in self._series.values():
            self._write(series)

    def note(self, kind: str, message: str) -> None:
        """Report a message, but only the first of each kind."""
        if kind not in self._noted and not self._task.rank:
            self._noted.add(kind)
            self._report(Noted(level="warning", message=message, trial=self._task.trial))

    def _write(self, series: _Series) -> None:
        if series.waiting is None:
            return
        (place, step, attachment), series.waiting = series.waiting, None
        series.written_s = self._clock()
        size = len(attachment.content)
        if self._num_bytes + size > MAX_BYTES:
            most = format_bytes(MAX_BYTES)
            self.note("size", f"at most {most} of pictures, tables and texts are kept per trial")
            return
        gone = self._thin(series)
        slug = re.sub(r"[^A-Za-z0-9_-]+", "-", attachment.name)[:40]
        file = f"{FOLDER}/{self._task.attempt}-{self._num_files:05d}-{slug}.{attachment.suffix}"
        self._num_files += 1
        self._num_bytes += size
        folder = self._task.artifacts
        folder.write(file, attachment.content)
        series.files[place] = (file, size)
        self._report(
            AttachmentSaved(
                trial=self._task.trial,
                attempt=self._task.attempt,
                step=step,
                name=attachment.name,
                kind=attachment.kind,
                file=file,
                size_bytes=size,
                replaces=gone,
            )
        )
        for name in gone:
            folder.delete(name)

    def _thin(self, series: _Series) -> list[str]:
        """Remove files from the series to make room for another one, and return them."""
        while sum(place % series.stride == 0 for place in series.files) >= MAX_KEPT:
            series.stride *= 2
        removed = []
        for place in [place for place in series.files if place % series.stride]:
            file, size = series.files.pop(place)
            self._num_bytes -= size
            removed.append(file)
        return removed
