"""The output of a trial, for front ends: the end of its log as it grows, or lines with a text.

Only new bytes are read, and few at a time, so that a log of any size can be searched. The worker
writes the log. If no worker writes it to this machine, it is read from the artifacts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from workbench.foundation.artifacts import Artifacts
from workbench.foundation.formatting import without_escapes
from workbench.runs.descriptions import log_file
from workbench.views.live_feed.action_messages import Name

MAX_LINES = 400
MAX_LINE_CHARS = 2_000
MAX_SHOWN_CHARS = 64_000
_CHUNK_BYTES = 2 << 20
_END_BYTES = 128 << 10


class TrialLogQuery(BaseModel):
    """The log of the trial that is shown in detail."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rank: Annotated[int, Field(ge=0, le=99_999)] = Field(
        default=0, description="The worker that printed it."
    )
    text: Name = Field(
        default="", description="Only lines that contain it, in any case. If empty, the end."
    )


class TrialLog(BaseModel):
    """Lines of the log of a trial, the oldest first."""

    model_config = ConfigDict(frozen=True)

    trial: int
    rank: int
    text: str = Field(description="The text that all lines contain.")
    ranks: tuple[int, ...] = Field(description="Workers with a log.")
    lines: tuple[str, ...]
    num_bytes: int = Field(description="Size of the whole log.")
    num_found: int | None = Field(description="Lines that contain the text, or None without text.")
    searched: float = Field(description="Share of the log that was searched so far.")


class TrialLogReader:
    """Follows the log of one trial, through one query."""

    def __init__(self, folder: Path, trial: int, query: TrialLogQuery) -> None:
        """Start to read.

        Args:
            folder: The folder of the run's files on this machine.
            trial: Number of the trial.
            query: The worker, and what to look for.
        """
        self.trial = trial
        self.query = query
        self._folder = folder
        self._path = log_file(folder, trial, query.rank)
        self._begin()

    def _begin(self) -> None:
        self._position: int | None = None  # None before the first byte was read
        self._rest = b""  # of a line that has no end yet
        self._lines: deque[str] = deque(maxlen=MAX_LINES)
        self._num_found = 0

    def read(self) -> TrialLog:
        """Read what is new, at most a few megabytes, and return the lines that are shown."""
        size = self._advance()
        position = self._position or 0
        lines = [*self._lines]
        if self._rest:
            lines += self._matching([self._rest])
        num_found = None
        if self.query.text:
            num_found = self._num_found + len(lines) - len(self._lines)
        searched = 1.0
        if position < size:
            searched = position / size
        return TrialLog(
            trial=self.trial,
            rank=self.query.rank,
            text=self.query.text,
            lines=_newest(lines),
            ranks=_ranks(log_file(self._folder, self.trial, 0).parent),
            num_bytes=size,
            num_found=num_found,
            searched=searched,
        )

    def _advance(self) -> int:
        """Read a chunk. Return the size of the file, 0 if there is none on this machine."""
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, 2)
                if (
                    self._position is not None and size < self._position
                ):  # replaced by a shorter one
                    self._begin()
                starts_inside = False
                if self._position is None:
                    self._position = 0 if self.query.text else max(0, size - _END_BYTES)
                    starts_inside = self._position > 0
                file.seek(self._position)
                content = file.read(_CHUNK_BYTES)
        except OSError:
            self._begin()
            return 0
        self._position += len(content)
        if starts_inside:
            content = content.partition(b"\n")[2]
        *complete, self._rest = (self._rest + content).split(b"\n")
        if len(self._rest) > _END_BYTES:  # a line without an end is cut
            complete, self._rest = [*complete, self._rest], b""
        matches = list(self._matching(complete))
        self._lines.extend(matches)
        self._num_found += len(matches)
        return size

    def _matching(self, lines: list[bytes]) -> Iterator[str]:
        text = self.query.text.casefold()
        for line in lines:
            # A progress bar writes over itself. Its last state is shown.
            shown = without_escapes(line.decode(errors="replace").rstrip("\r").rpartition("\r")[2])
            if text in shown.casefold():
                yield shown[:MAX_LINE_CHARS]


def find_log(artifacts: Artifacts, trial: int, rank: int) -> Path | bytes | None:
    """Return the file of a log on this machine, its content from the artifacts, or None without
    either.

    Args:
        artifacts: The artifacts of the run.
        trial: Number of the trial.
        rank: The worker.

    Raises:
        ArtifactsError: If the artifacts do not respond.
    """
    path = log_file(artifacts.working_folder, trial, rank)
    if path.is_file():
        return path
    name = str(path.relative_to(artifacts.working_folder))
    if artifacts.is_local or not artifacts.exists(name):
        return None
    return artifacts.read(name)


def _newest(lines: list[str]) -> tuple[str, ...]:
    left = MAX_SHOWN_CHARS
    kept: deque[str] = deque()
    for line in reversed(lines[-MAX_LINES:]):
        left -= len(line)
        if left < 0:
            break
        kept.appendleft(line)
    return tuple(kept)


def _ranks(folder: Path) -> tuple[int, ...]:
    names = (path.stem.partition("-")[2] or "0" for path in folder.glob("log*.txt"))
    return tuple(sorted(int(name) for name in names if name.isascii() and name.isdecimal()))
