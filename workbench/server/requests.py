"""The routes: who may, what is asked, what is answered. Nothing here waits on the loop of the server."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from pydantic import BaseModel, ValidationError
from tornado import web

from workbench.errors import ExperimentError, RunNotFoundError, UnknownNameError, WorkbenchError
from workbench.events import to_json
from workbench.run import Run
from workbench.run.words import plain
from workbench.server.asking import Asker
from workbench.server.drawing import Drawer
from workbench.watch.one_trial import trial_picture
from workbench.watch.painter import Painter, problem_of, runs_picture
from workbench.watch.protocol import Action, LookMessage, Problem, RunsLook, TrialPicture
from workbench.watch.watch import Watch

RESOURCE = "workbench"
MAX_BODY_BYTES = 65_536
_MAX_EVENTS = 5_000
_CATCH_UP_S = 2.0
_MAX_DIGITS = 16

_Answer = TypeVar("_Answer")
_Model = TypeVar("_Model", bound=BaseModel)


def checked(kind: type[_Model], body: bytes | str) -> _Model:
    """Read what a browser sent.

    Args:
        kind: What it has to be.
        body: JSON.

    Raises:
        ExperimentError: If it is something else; the field is named.
    """
    if len(body) > MAX_BODY_BYTES:
        raise ExperimentError("is too long", field="body", allowed=f"at most {MAX_BODY_BYTES} bytes")
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        raise ExperimentError(
            first["msg"], field=".".join(str(part) for part in first["loc"]) or "body"
        ) from error


class _WorkbenchHandler(APIHandler):
    """What all routes share."""

    auth_resource = RESOURCE

    @property
    def watch(self) -> Watch:
        return self.settings["workbench_watch"]

    @property
    def drawer(self) -> Drawer:
        return self.settings["workbench_drawer"]

    @property
    def asker(self) -> Asker:
        return self.settings["workbench_asker"]

    async def in_thread(self, work: Callable[..., _Answer], *arguments: Any) -> _Answer:
        """Do what reads the store in a thread of our own."""
        threads: ThreadPoolExecutor = self.settings["workbench_threads"]
        return await asyncio.get_running_loop().run_in_executor(threads, work, *arguments)

    async def in_slow_thread(self, work: Callable[..., _Answer], *arguments: Any) -> _Answer:
        """Do what waits for a driver or a process, where it holds up nothing that is quick."""
        threads: ThreadPoolExecutor = self.settings["workbench_slow_threads"]
        return await asyncio.get_running_loop().run_in_executor(threads, work, *arguments)

    def answer(self, document: Any) -> None:
        """Answer with a document."""
        if isinstance(document, BaseModel):
            document = document.model_dump()
        self.finish(json.dumps(plain(document), allow_nan=False))

    def refuse(self, error: WorkbenchError) -> None:
        """Answer with what is wrong and what to do about it."""
        missing = isinstance(error, RunNotFoundError | UnknownNameError)
        self.set_status(404 if missing else 400 if isinstance(error, ExperimentError) else 409)
        self.answer(problem_of(error))

    def write_error(self, status_code: int, **_: Any) -> None:
        """Answer what went wrong elsewhere in the same form, without what it was inside."""
        self.set_header("Content-Type", "application/json")
        self.answer(Problem(problem=self._reason or f"status {status_code}"))

    def _whole(self, name: str, default: int, most: int) -> int:
        text = self.get_query_argument(name, str(default))
        if not (text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS) or int(text) > most:
            raise ExperimentError(f"is {text!r}", field=name, allowed=f"a whole number up to {most}")
        return int(text)


def translated(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let a route answer errors on purpose as problems."""

    @functools.wraps(method)
    async def wrapped(self: _WorkbenchHandler, *arguments: Any, **options: Any) -> None:
        try:
            await method(self, *arguments, **options)
        except WorkbenchError as error:
            self.refuse(error)

    return wrapped


class LookHandler(_WorkbenchHandler):
    """One complete picture: for browsers behind proxies that let no WebSocket through."""

    @web.authenticated
    @authorized(action="read", resource=RESOURCE)
    @translated
    async def post(self) -> None:
        """Answer a look with a frame."""
        message = checked(LookMessage, self.request.body)
        painter = Painter(self.watch)
        painter.show(message.number, message.look)

        def paint() -> bytes | None:
            for run_id in filter(None, (message.look.run, *message.look.compared)):
                with contextlib.suppress(WorkbenchError):  # the picture tells
                    self.watch.tail(run_id).catch_up(_CATCH_UP_S)
            return painter.paint()

        frame = await self.in_thread(paint)
        await self.finish(frame or b"", set_content_type="application/octet-stream")


class RunsHandler(_WorkbenchHandler):
    """The list of runs."""

    @web.authenticated
    @authorized(action="read", resource=RESOURCE)
    @translated
    async def get(self) -> None:
        """Answer the newest runs."""
        limit = max(1, self._whole("limit", 50, 200))
        look = RunsLook(text=self.get_query_argument("text", "")[:200], limit=limit)
        self.answer(await self.in_thread(runs_picture, self.watch, look))


class RunHandler(_WorkbenchHandler):
    """One run."""

    @web.authenticated
    @authorized(action="read", resource=RESOURCE)
    @translated
    async def get(self, run_id: str) -> None:
        """Answer what `workbench show --json` prints, and the experiment."""

        def read() -> dict[str, Any]:
            run = _run(self.watch, run_id)
            return {**run.to_json(), "experiment": run.experiment.model_dump(mode="json")}

        self.answer(await self.in_thread(read))


class EventsHandler(_WorkbenchHandler):
    """The events of a run, without gaps."""

    @web.authenticated
    @authorized(action="read", resource=RESOURCE)
    @translated
    async def get(self, run_id: str) -> None:
        """Answer the events after a cursor."""
        after, limit = self._whole("after", 0, 2**53), self._whole("limit", 1000, _MAX_EVENTS)

        def read() -> str:
            found = self.watch.store.events(_run(self.watch, run_id).run_id, after=after, limit=limit)
            events = ",".join(f'{{"seq":{stored.seq},"event":{to_json(stored.event)}}}' for stored in found)
            return f'{{"events":[{events}],"last_seq":{found[-1].seq if found else after}}}'

        self.finish(await self.in_thread(read))


class TrialHandler(_WorkbenchHandler):
    """One trial in full."""

    @web.authenticated
    @authorized(action="read", resource=RESOURCE)
    @translated
    async def get(self, run_id: str, trial: str) -> None:
        """Answer one trial."""

        def read() -> TrialPicture:
            tail = self.watch.tail(run_id)
            tail.catch_up()
            with tail.lock:
                found = trial_picture(tail, int(trial), tail.folder)
            if found is None:
                raise UnknownNameError(f"run {tail.run_id} has no trial {trial}", field="trial")
            return found

        self.answer(await self.in_thread(read))


class FigureHandler(_WorkbenchHandler):
    """An analysis figure."""

    @web.authenticated
    @authorized(action="read", resource=RESOURCE)
    @translated
    async def get(self, run_id: str, figure: str) -> None:
        """Answer a figure as plotly's JSON."""
        found = await self.in_thread(_run, self.watch, run_id)
        self.finish(await self.in_slow_thread(self.drawer.figure, found.run_id, figure))


class ReportHandler(_WorkbenchHandler):
    """The report of a run: a page of its own, which may run its own script and nothing else."""

    @web.authenticated
    @authorized(action="read", resource=RESOURCE)
    @translated
    async def get(self, run_id: str) -> None:
        """Answer the report."""
        found = await self.in_thread(_run, self.watch, run_id)
        page = await self.in_slow_thread(self.drawer.report, found.run_id)
        # In a sandbox without an origin: what people wrote into a run cannot reach the server from there.
        self.set_header("Content-Security-Policy", "sandbox allow-scripts")
        await self.finish(page, set_content_type="text/html; charset=utf-8")


class ExperimentsHandler(_WorkbenchHandler):
    """The experiment files that can be started."""

    @web.authenticated
    @authorized(action="read", resource=RESOURCE)
    @translated
    async def get(self) -> None:
        """Answer their paths."""
        found = await self.in_thread(self.asker.experiments)
        self.answer([file.model_dump() for file in found])


class ActionsHandler(_WorkbenchHandler):
    """Everything that changes something."""

    @web.authenticated
    @authorized(action="execute", resource=RESOURCE)
    @translated
    async def post(self) -> None:
        """Do what is asked, and answer what came of it."""
        action = checked(Action, self.request.body)
        try:
            self.answer(await self.in_slow_thread(self.asker.do, action))
        except WorkbenchError:
            raise
        except (OSError, ValueError) as error:  # what no file and no process can be called
            raise ExperimentError(str(error), field="arguments") from error


class MissingHandler(_WorkbenchHandler):
    """What there is not."""

    @web.authenticated
    async def get(self) -> None:
        """Refuse."""
        self.refuse(UnknownNameError(f"there is nothing at {self.request.path}"))


def _run(watch: Watch, run_id: str) -> Run:
    return Run(watch.store, watch.store.run(run_id).run_id)
