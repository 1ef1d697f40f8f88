"""The REST routes: runs, and what trials leave, such as logs and attachments to their reports."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jupyter_server.auth.decorator import authorized
from tornado import web

from workbench.foundation.errors import ArgumentError, UnknownNameError, WorkbenchError
from workbench.foundation.events import to_json
from workbench.foundation.formatting import format_duration
from workbench.runs.comparison import find_named
from workbench.runs.event_lines import Narrator
from workbench.runs.plots.run_data import RunData
from workbench.views.forms.kept_draft import read_draft
from workbench.views.live_feed.action_messages import Action, SizeOfRun
from workbench.views.live_feed.feed import Feed
from workbench.views.live_feed.protocol import (
    RunsQuery,
    SubscribeMessage,
    TableQuery,
    TrialDetail,
)
from workbench.views.live_feed.trial_detail import read_attached, trial_detail
from workbench.views.live_feed.trial_log import find_log
from workbench.views.live_feed.trial_table import matching_trials, trials_as_csv
from workbench.views.live_feed.updates import FrameBuilder, run_list
from workbench.views.server.handlers import (
    RESOURCE,
    WorkbenchHandler,
    checked,
    find_run,
    translated,
)

_MAX_EVENTS = 5_000
_CATCH_UP_S = 2.0
_CHUNK_BYTES = 1 << 20
_MAX_RANK = 99_999
_TEXT = "text/plain; charset=utf-8"


class UpdateHandler(WorkbenchHandler):
    """One complete frame, for browsers behind proxies that block WebSockets."""

    @web.authenticated
    @authorized(action="read", resource=RESOURCE)
    @translated
    async def post(self) -> None:
        """Respond to a subscription with a frame."""
        message = checked(SubscribeMessage, self.request.body)
        builder = FrameBuilder(self.feed)
        builder.subscribe(message.number, message.subscription)

        query = message.subscription.compared
        compared = ()
        if query is not None:
            compared = query.runs

        def build() -> bytes | None:
            for run_id in filter(None, (message.subscription.run, *compared)):
                with contextlib.suppress(WorkbenchError):  # the frame contains the error
                    self.feed.tail(run_id).catch_up(_CATCH_UP_S)
            return builder.next_frame()

        frame = await self.in_thread(build)
        await self.finish(frame or b"", set_content_type="application/octet-stream")


class RunsHandler(WorkbenchHandler):
    """The list of runs."""

    @web.authenticated
    @authorized(action="read", resource=RESOURCE)
    @translated
    async def get(self) -> None:
        """Respond with the newest runs."""
        limit = max(1, self.whole_number("limit", 50, 200))
        query = RunsQuery(text=self.get_query_argument("text", "")[:200], limit=limit)
        self.answer(await self.in_thread(run_list, self.feed, query))


class MatchingRunsHandler(WorkbenchHandler):
    """The runs that a name or a pattern matches."""

    @web.authenticated
    @authorized(action="read", resource=RESOURCE)
    @translated
    async def get(self) -> None:
        """Respond with their ids, the newest first."""
        pattern = self.get_query_argument("pattern", "")[:200]
        named = await self.in_thread(lambda: find_named(self.feed.store.runs(), pattern))
        self.answer([row.run_id for row in named])


class RunHandler(WorkbenchHandler):
    """One run."""

    @web.authenticated
    @authorized(action="read", resource=RESOURCE)
    @translated
    async def get(self, run_id: str) -> None:
        """Respond with the output of `workbench show --json` and the experiment."""

        def read() -> dict[str, Any]:
            run = find_run(self.feed, run_id)
            return {**run.to_json(), "experiment": run.experiment.model_dump(mode="json")}

        self.answer(await self.in_thread(read))


class SizeHandler(WorkbenchHandler):
    """What a run takes up."""

    @web.authenticated
    @authorized(action="read", resource=RESOURCE)
    @translated
    async def get(self, run_id: str) -> None:
        """Respond with its size, which deleting it would free."""

        def read() -> SizeOfRun:
            size = find_run(self.feed, run_id).size
            return SizeOfRun(**asdict(size), text=size.describe())

        self.answer(await self.in_slow_thread(read))


class EventsHandler(WorkbenchHandler):
    """The events of a run, without gaps."""

    @web.authenticated
    @authorized(action="read", resource=RESOURCE)
    @translated
    async def get(self, run_id: str) -> None:
        """Respond with the events after a cursor."""
        after, limit = (
            self.whole_number("after", 0, 2**53),
            self.whole_number("limit", 1000, _MAX_EVENTS),
        )

        def read() -> str:
            rows = self.feed.store.events(
                find_run(self.feed, run_id).run_id, after=after, limit=limit
            )
            events = ",".join(f'{{"seq":{row.seq},"event":{to_json(row.event)}}}' for row in rows)
            last_seq = after
            if rows:
                last_seq = rows[-1].seq
            return f'{{"events":[{events}],"last_seq":{last_seq}}}'

        self.finish(await self.in_thread(read))


class TrialHandler(WorkbenchHandler):
    """One trial in full."""

    @web.authenticated
    @authorized(action="read", resource=RESOURCE)
    @translated
    async def get(self, run_id: str, trial: str) -> None:
        """Respond with one trial."""

        def read() -> TrialDetail:
            tail = self.feed.tail(run_id)
            tail.catch_up()
            with tail.lock:
                detail = trial_detail(tail, int(trial))
            if detail is None:
                raise UnknownNameError(f"the run has no trial {trial}", field="trial")
            return detail

        self.answer(await self.in_thread(read))


class TrialsHandler(WorkbenchHandler):
    """The table of trials as a file."""

    @web.authenticated
    @authorized(action="read", resource=RESOURCE)
    @translated
    async def post(self, run_id: str) -> None:
        """Respond with all trials that match a query of the table, as CSV."""
        query = checked(TableQuery, self.request.body)

        def read() -> str:
            tail = self.feed.tail(run_id)
            tail.catch_up()
            with tail.lock:
                return trials_as_csv(tail, query)

        self.finish(await self.in_slow_thread(read), set_content_type="text/csv; charset=utf-8")


class FigureHandler(WorkbenchHandler):
    """An analysis figure."""

    @web.authenticated
    @authorized(action="read", resource=RESOURCE)
    @translated
    async def get(self, run_id: str, figure: str) -> None:
        """Respond with a figure as plotly's JSON, or with status 202 while it is still drawn.

        `filter` limits its trials, and `colour` is the parameter that colours them.
        """
        text, colour = (self.get_query_argument(name, "") for name in ("filter", "colour"))
        row = await self.in_thread(find_run, self.feed, run_id)

        def draw() -> str | None:
            trials = None
            if text.strip():
                tail = self.feed.tail(row.run_id)
                tail.catch_up()
                with tail.lock:
                    trials = matching_trials(tail.data.history, text)
            return self.renderer.figure(row.run_id, figure, trials=trials, colour=colour)

        drawn = await self.in_slow_thread(draw)
        if drawn is None:
            self.set_status(202)
        self.finish(drawn or "null")


class ReportHandler(WorkbenchHandler):
    """The report of a run: a sandboxed page, which may run its own scripts only."""

    @web.authenticated
    @authorized(action="read", resource=RESOURCE)
    @translated
    async def get(self, run_id: str) -> None:
        """Respond with the report."""
        row = await self.in_thread(find_run, self.feed, run_id)
        page = await self.in_slow_thread(self.renderer.report, row.run_id)
        # In a sandbox without an origin, scripts in user-written text cannot reach the server.
        self.set_header("Content-Security-Policy", "sandbox allow-scripts")
        await self.finish(page, set_content_type="text/html; charset=utf-8")


class ExperimentsHandler(WorkbenchHandler):
    """The experiment files that can be started."""

    @web.authenticated
    @authorized(action="read", resource=RESOURCE)
    @translated
    async def get(self) -> None:
        """Respond with their paths."""
        files = await self.in_thread(self.actions.experiments)
        self.answer([file.model_dump() for file in files])


class DraftHandler(WorkbenchHandler):
    """The draft of a form, for a notebook whose kernel is gone."""

    @web.authenticated
    @authorized(action="read", resource=RESOURCE)
    @translated
    async def get(self, key: str) -> None:
        """Respond with its YAML and the run that it started last."""
        draft = await self.in_thread(read_draft, self.feed.store.artifacts, key)
        if draft is None:
            raise UnknownNameError("this form has no kept draft", field="draft")
        self.answer(draft.model_dump(include={"yaml", "run_id", "saved_unix_s"}))


class ActionsHandler(WorkbenchHandler):
    """Actions, which change runs or files."""

    @web.authenticated
    @authorized(action="execute", resource=RESOURCE)
    @translated
    async def post(self) -> None:
        """Carry out an action, and respond with its result."""
        action = checked(Action, self.request.body)
        try:
            self.answer(await self.in_slow_thread(self.actions.do, action))
        except WorkbenchError:
            raise
        except (OSError, ValueError) as error:  # names that no file or process can have
            raise ArgumentError(str(error), field="arguments") from error


class SnippetHandler(WorkbenchHandler):
    """The command and the Python code of an action that is being filled in."""

    @web.authenticated
    @authorized(action="read", resource=RESOURCE)
    @translated
    async def post(self) -> None:
        """Respond with the snippet of an action, without carrying it out."""
        self.answer(self.actions.snippet(checked(Action, self.request.body)))


class MissingHandler(WorkbenchHandler):
    """All other addresses below the API."""

    @web.authenticated
    async def get(self) -> None:
        """Respond with 404."""
        self.refuse(UnknownNameError(f"there is nothing at {self.request.path}"))


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
