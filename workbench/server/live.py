"""The live connection of a browser: a session over a WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from jupyter_server.auth.decorator import ws_authenticated
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from tornado import web
from tornado.ioloop import IOLoop
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from workbench.errors import ExperimentError
from workbench.server.requests import RESOURCE
from workbench.watch.session import MAX_MESSAGE_BYTES, TICK_S, Session
from workbench.watch.watch import Watch

_PATIENCE_S = 120.0
_GOING_AWAY = 1001
_POLICY_VIOLATION = 1008
_INTERNAL_ERROR = 1011


class LiveSocket(WebSocketMixin, WebSocketHandler, JupyterHandler):  # pyright: ignore[reportIncompatibleMethodOverride]
    """One browser's connection."""

    auth_resource = RESOURCE

    def initialize(self) -> None:
        """Begin without anybody to send to."""
        self._sockets: set[LiveSocket] = self.settings["workbench_live"]
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._end_listening: Any = None

    @property
    def max_message_size(self) -> int:
        """What a browser says is short."""
        return MAX_MESSAGE_BYTES

    def set_default_headers(self) -> None:
        """Set none: they are for pages."""

    @ws_authenticated
    async def get(self, *arguments: Any, **options: Any) -> None:
        """Take the connection, if this person may look."""
        allowed = self.authorizer.is_authorized(self, self.current_user, "read", RESOURCE)
        if not (await allowed if asyncio.iscoroutine(allowed) else allowed):
            raise web.HTTPError(403)
        await super().get(*arguments, **options)

    def open(self, *_: Any, **__: Any) -> None:
        """Begin to listen to what changes."""
        super().open()
        watch: Watch = self.settings["workbench_watch"]
        loop = IOLoop.current()
        self._session = Session(watch)
        self._end_listening = watch.listen(lambda: loop.add_callback(self._woken.set))
        self._task = asyncio.create_task(self._send_what_changes())
        self._sockets.add(self)
        # Not when the browser goes: its task has then still to end.
        self._task.add_done_callback(lambda _: self._sockets.discard(self))

    def on_message(self, message: str | bytes) -> None:
        """Take in what the browser says."""
        try:
            self._session.hear(message)
        except ExperimentError as error:
            self.close(_POLICY_VIOLATION, error.problem)
            return
        self._woken.set()

    def on_close(self) -> None:
        """Listen no more."""
        super().on_close()
        if self._end_listening is not None:
            self._end_listening()
        if self._task is not None:
            self._task.cancel()

    async def end(self) -> None:
        """Close the connection, and return when nothing of it runs any more."""
        self.close(_GOING_AWAY, "the server ends")
        if self._end_listening is not None:
            self._end_listening()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _send_what_changes(self) -> None:
        threads: ThreadPoolExecutor = self.settings["workbench_threads"]
        loop = asyncio.get_running_loop()
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), TICK_S)
            self._woken.clear()
            if self._session.unread_s > _PATIENCE_S:
                self.close(_POLICY_VIOLATION, "nothing was read for too long")
                return
            if self._session.unread_s:
                continue
            await asyncio.sleep(self._session.wait_s())
            try:
                frame = await loop.run_in_executor(threads, self._session.next_frame)
            except Exception:
                # The page comes back by itself, with a session that knows nothing of what went wrong.
                self.log.exception("a frame could not be painted")
                self.close(_INTERNAL_ERROR, "a frame could not be painted")
                return
            if frame is not None:
                try:
                    await self.write_message(frame, binary=True)
                except WebSocketClosedError:
                    return
