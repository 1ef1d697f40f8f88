"""Tiers in a browser: one process per shown file of tiers, and the connections of its views.

`workbench.views.live_feed.tiers_picture` defines the messages, which are passed on as they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tornado.ioloop import IOLoop
from tornado.websocket import WebSocketClosedError

from workbench.experiment.actions import write_for_panel
from workbench.foundation.errors import ArgumentError, Problem, WorkbenchError
from workbench.views.live_feed.tiers_picture import TiersRun, read_tiers_request
from workbench.views.server.actions import ActionRunner
from workbench.views.server.live import AuthorizedSocket

_IDLE_S = 60.0
"""How long a process waits for another view. A user may come back, and measuring takes long."""
_END_S = 15.0
_MAX_LINE_BYTES = 2**24
_ENDED = TiersRun(
    state="idle",
    problem=Problem(
        problem="the process that measured the tiers has ended",
        next_step="Open them again. The log of the server says why it ended.",
    ),
)


class _TiersProcess:
    """The process of one file, and the views of it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.views: set[Callable[[str], None]] = set()
        self.pumping = asyncio.create_task(self._pump())

    def send(self, message: str) -> None:
        if self._process.stdin is not None and not self._process.stdin.is_closing():
            self._process.stdin.write(message.encode() + b"\n")

    async def end(self) -> None:
        """End it in order: its input ends, and then those that it has started do."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), _END_S)
        except asyncio.TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        await self.pumping

    async def _pump(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            for view in list(self.views):
                view(line.decode().strip())
        for view in list(self.views):
            view(_ENDED.model_dump_json())


class TiersProcesses:
    """The processes of all files of tiers that are shown. Belongs to one event loop."""

    def __init__(self, actions: ActionRunner) -> None:
        """Start with none.

        Args:
            actions: Knows the server's folder and store.
        """
        self._actions = actions
        self._processes: dict[tuple[Path, int], _TiersProcess] = {}
        self._starting = asyncio.Lock()

    async def show(self, given: str, view: Callable[[str], None]) -> tuple[Path, int]:
        """Let a view follow a file, whose process is started if none runs.

        Args:
            given: The path of the file, relative to the server's folder.
            view: Takes messages.

        Returns:
            The key of the process for `send` and `leave`: the file, and when it was changed.

        Raises:
            ArgumentError: If there is no such file.
        """
        path = self._actions.file(given)
        key = path, path.stat().st_mtime_ns  # a file that has changed gets another process
        async with self._starting:
            process_of_file = self._processes.get(key)
            if process_of_file is None or process_of_file.pumping.done():
                loop = asyncio.get_running_loop()
                environment = await loop.run_in_executor(
                    None, self._actions.environment
                )  # opens the store
                words = [sys.executable, "-m", "workbench.views.live_feed.tiers_session", str(path)]
                process = await asyncio.create_subprocess_exec(
                    *words,
                    stdin=PIPE,
                    stdout=PIPE,
                    limit=_MAX_LINE_BYTES,
                    cwd=path.parent,
                    env=environment,
                    start_new_session=True,
                )
                process_of_file = self._processes[key] = _TiersProcess(process)
            process_of_file.views.add(view)
        return key

    def send(self, key: tuple[Path, int], message: str) -> None:
        """Pass a message of a view on."""
        if (process_of_file := self._processes.get(key)) is not None:
            process_of_file.send(message)

    def leave(self, key: tuple[Path, int], view: Callable[[str], None]) -> None:
        """Forget a view. A process without views ends after a while."""
        if (process_of_file := self._processes.get(key)) is None:
            return
        process_of_file.views.discard(view)
        IOLoop.current().call_later(_IDLE_S, self._end_if_idle, key)

    def _end_if_idle(self, key: tuple[Path, int]) -> None:
        process_of_file = self._processes.get(key)
        if process_of_file is not None and not process_of_file.views:
            del self._processes[key]
            IOLoop.current().add_callback(process_of_file.end)

    async def close(self) -> None:
        """End all processes."""
        ending, self._processes = list(self._processes.values()), {}
        await asyncio.gather(*(process.end() for process in ending))


class TiersSocket(AuthorizedSocket):
    """One view of a file of tiers. It may start processes, which is more than to read."""

    action = "execute"

    def initialize(self) -> None:
        """Create a connection that shows no file yet."""
        self._processes: TiersProcesses = self.settings["workbench_tiers"]
        self._key: tuple[Path, int] | None = None

    async def open(self, *_: Any, **__: Any) -> None:
        """Follow the file that the query names."""
        super().open()
        try:
            self._key = await self._processes.show(self.get_query_argument("path", ""), self._show)
        except WorkbenchError as error:
            self._show(
                TiersRun(state="idle", problem=error.to_problem(write_for_panel)).model_dump_json()
            )
        except OSError as error:  # a name that no file can have
            problem = ArgumentError(str(error), field="path").to_problem()
            self._show(TiersRun(state="idle", problem=problem).model_dump_json())
        else:
            self._processes.send(self._key, '{"type": "hello"}')

    def on_message(self, message: str | bytes) -> None:
        """Pass on what belongs to the protocol."""
        with contextlib.suppress(ValueError):
            content = json.loads(message)
            if (
                self._key is not None
                and isinstance(content, dict)
                and read_tiers_request(content) is not None
            ):
                self._processes.send(self._key, json.dumps(content))

    def on_close(self) -> None:
        """Leave the file."""
        super().on_close()
        if self._key is not None:
            self._processes.leave(self._key, self._show)

    def _show(self, message: str) -> None:
        with contextlib.suppress(WebSocketClosedError):
            self.write_message(message)
