"""What all REST routes share: access to the services, threads, validation and responses.

`routes` contains the routes themselves.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from jupyter_server.base.handlers import APIHandler
from pydantic import BaseModel, ValidationError

from workbench.experiment.actions import write_for_panel
from workbench.foundation.errors import (
    ArgumentError,
    ExperimentError,
    Problem,
    RunNotFoundError,
    UnknownNameError,
    WorkbenchError,
)
from workbench.foundation.python_values import plain
from workbench.runs import Run
from workbench.views.live_feed.feed import Feed
from workbench.views.server.actions import ActionRunner
from workbench.views.server.figure_process import FigureRenderer

RESOURCE = "workbench"
MAX_BODY_BYTES = 65_536
_MAX_DIGITS = 16

_Answer = TypeVar("_Answer")
_Model = TypeVar("_Model", bound=BaseModel)


def checked(kind: type[_Model], body: bytes | str) -> _Model:
    """Validate the body of a request.

    Args:
        kind: What it has to be.
        body: JSON.

    Raises:
        ArgumentError: If it is something else. The field is named.
    """
    if len(body) > MAX_BODY_BYTES:
        raise ArgumentError("is too long", field="body", allowed=f"at most {MAX_BODY_BYTES} bytes")
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        raise ArgumentError(
            first["msg"], field=".".join(str(part) for part in first["loc"]) or "body"
        ) from error


class WorkbenchHandler(APIHandler):
    """Base class of all routes."""

    auth_resource = RESOURCE

    @property
    def feed(self) -> Feed:
        """What the server follows."""
        return self.settings["workbench_feed"]

    @property
    def renderer(self) -> FigureRenderer:
        """The process that draws figures."""
        return self.settings["workbench_renderer"]

    @property
    def actions(self) -> ActionRunner:
        """What carries out actions."""
        return self.settings["workbench_actions"]

    async def in_thread(self, work: Callable[..., _Answer], *arguments: Any) -> _Answer:
        """Run a function that reads the store in one of the extension's threads."""
        threads: ThreadPoolExecutor = self.settings["workbench_threads"]
        return await asyncio.get_running_loop().run_in_executor(threads, work, *arguments)

    async def in_slow_thread(self, work: Callable[..., _Answer], *arguments: Any) -> _Answer:
        """Run a function that waits for a driver or a process in a thread for slow work."""
        threads: ThreadPoolExecutor = self.settings["workbench_slow_threads"]
        return await asyncio.get_running_loop().run_in_executor(threads, work, *arguments)

    def answer(self, document: Any) -> None:
        """Respond with a document."""
        if isinstance(document, BaseModel):
            document = document.model_dump()
        self.finish(json.dumps(plain(document), allow_nan=False))

    def refuse(self, error: WorkbenchError) -> None:
        """Respond with an error: the problem and the next step."""
        if isinstance(error, RunNotFoundError | UnknownNameError):
            self.set_status(404)
        elif isinstance(error, ArgumentError | ExperimentError):
            self.set_status(400)
        else:
            self.set_status(409)
        self.answer(error.to_problem(write_for_panel))

    def write_error(self, status_code: int, **_: Any) -> None:
        """Respond to unexpected errors in the same format, without internal details."""
        self.set_header("Content-Type", "application/json")
        self.answer(Problem(problem=self._reason or f"status {status_code}"))

    def whole_number(self, name: str, default: int, most: int) -> int:
        """Return a number from the query, at most `most`."""
        text = self.get_query_argument(name, str(default))
        if (
            not (text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS)
            or int(text) > most
        ):
            raise ArgumentError(f"is {text!r}", field=name, allowed=f"a whole number up to {most}")
        return int(text)


def translated(method: Callable[..., Any]) -> Callable[..., Any]:
    """Make a route respond to `WorkbenchError` with the error as JSON."""

    @functools.wraps(method)
    async def wrapped(self: WorkbenchHandler, *arguments: Any, **options: Any) -> None:
        try:
            await method(self, *arguments, **options)
        except WorkbenchError as error:
            self.refuse(error)

    return wrapped


def find_run(feed: Feed, run_id: str) -> Run:
    """Return a run by its ID.

    Raises:
        RunNotFoundError: If there is no such run.
    """
    return Run(feed.store, feed.store.run(run_id).run_id)
