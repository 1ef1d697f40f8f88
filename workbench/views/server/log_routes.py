"""The REST routes of what trials leave.

Logs, whole and as text, and what they attached to their reports.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

from jupyter_server.auth.decorator import authorized
from tornado import web

from workbench.foundation.errors import UnknownNameError
from workbench.foundation.formatting import format_duration
from workbench.runs.event_lines import Narrator
from workbench.runs.plots.run_data import RunData
from workbench.views.live_feed.feed import Feed
from workbench.views.live_feed.trial_detail import read_attached
from workbench.views.live_feed.trial_log import find_log
from workbench.views.server.handlers import RESOURCE, WorkbenchHandler, find_run, translated

_CHUNK_BYTES = 1 << 20
_MAX_RANK = 99_999
_TEXT = "text/plain; charset=utf-8"


class _LogHandler(WorkbenchHandler):
    """Responds with text of any length, a part at a time."""

    async def send(self, parts: Iterator[bytes]) -> None:
        """Respond with all parts. The next is made when the one before has been sent."""
        self.set_header("Content-Type", _TEXT)
        while (part := await self.in_slow_thread(lambda: next(parts, None))) is not None:
            self.write(part)
            await self.flush()
        await self.finish(set_content_type=_TEXT)


class TrialLogHandler(_LogHandler):
    """The whole log of a trial."""

    @web.authenticated
    @authorized(action="read", resource=RESOURCE)
    @translated
    async def get(self, run_id: str, trial: str) -> None:
        """Respond with what a worker of a trial printed."""
        rank = self.whole_number("rank", 0, _MAX_RANK)

        def find() -> Path | bytes:
            log = find_log(self.feed.store.artifacts_of(run_id), int(trial), rank)
            if log is None:
                raise UnknownNameError(f"worker {rank} of trial {trial} has no log", field="trial")
            return log

        log = await self.in_slow_thread(find)
        if isinstance(log, bytes):
            await self.send(iter([log]))
        else:
            await self.send(_read(log))


class AttachmentHandler(WorkbenchHandler):
    """A picture, a table or a text that a trial reported."""

    @web.authenticated
    @authorized(action="read", resource=RESOURCE)
    @translated
    async def get(self, run_id: str, trial: str, file: str) -> None:
        """Respond with its file."""
        artifacts = self.feed.store.artifacts_of(find_run(self.feed, run_id).run_id)
        media_type, content = await self.in_slow_thread(read_attached, artifacts, int(trial), file)
        # If a picture is opened as a page, it must not run scripts or read from this server.
        self.set_header(
            "Content-Security-Policy", "sandbox; default-src 'none'; style-src 'unsafe-inline'"
        )
        self.set_header("X-Content-Type-Options", "nosniff")
        await self.finish(content, set_content_type=media_type)


class RunLogHandler(_LogHandler):
    """All that happened in a run, in words."""

    @web.authenticated
    @authorized(action="read", resource=RESOURCE)
    @translated
    async def get(self, run_id: str) -> None:
        """Respond with a line for each change of state."""
        run = await self.in_thread(find_run, self.feed, run_id)
        await self.send(_narrate(self.feed, run.run_id, RunData(run.experiment)))


def _read(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while part := file.read(_CHUNK_BYTES):
            yield part


def _narrate(feed: Feed, run_id: str, data: RunData) -> Iterator[bytes]:
    narrator = Narrator(data.history)
    for rows in feed.store.event_rows(run_id):
        lines = [
            (event.time_unix_s, data.history.clock.at(event.time_unix_s), text)
            for _, event in data.add_rows(rows)
            if (text := narrator.line_of(event)) is not None
        ]
        # What workers report arrives a little later than it happened.
        yield "".join(_line(*line) for line in sorted(lines, key=lambda line: line[0])).encode()


def _line(time_unix_s: float, run_time_s: float, text: str) -> str:
    """Return a line with the run time, the date and time, and what happened."""
    at = datetime.datetime.fromtimestamp(time_unix_s, datetime.timezone.utc)
    return f"{format_duration(round(run_time_s, 3)):>11} {at:%Y-%m-%dT%H:%M:%SZ} {text}\n"
