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

from workbench.foundation.errors import ArgumentError
from workbench.views.live_feed.feed import Feed
from workbench.views.live_feed.updates import MAX_MESSAGE_BYTES, TICK_S, Session
from workbench.views.server.handlers import RESOURCE

_PATIENCE_S = 120.0
_GOING_AWAY = 1001
_POLICY_VIOLATION = 1008
_INTERNAL_ERROR = 1011


class AuthorizedSocket(WebSocketMixin, WebSocketHandler, JupyterHandler):  # pyright: ignore[reportIncompatibleMethodOverride]
    """A connection of a user who may do `action`."""

    auth_resource = RESOURCE
    action = "read"

    @property
    def max_message_size(self) -> int:
        """The largest accepted message. Messages of browsers are short."""
        return MAX_MESSAGE_BYTES

    def set_default_headers(self) -> None:
        """Set no headers. They only apply to pages."""

    @ws_authenticated
    async def get(self, *arguments: Any, **options: Any) -> None:
        """Accept the connection if the user is authorized."""
        allowed = self.authorizer.is_authorized(self, self.current_user, self.action, RESOURCE)
        if not (await allowed if asyncio.iscoroutine(allowed) else allowed):
            raise web.HTTPError(403)
        await super().get(*arguments, **options)


class LiveSocket(AuthorizedSocket):
    """One browser's connection."""

    def initialize(self) -> None:
        """Create a connection that has no session yet."""
        self._sockets: set[LiveSocket] = self.settings["workbench_live"]
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._end_listening: Any = None

    def open(self, *_: Any, **__: Any) -> None:
        """Start the session, and listen for changes."""
        super().open()
        feed: Feed = self.settings["workbench_feed"]
        loop = IOLoop.current()
        self._session = Session(feed)
        self._end_listening = feed.listen(lambda: loop.add_callback(self._woken.set))
        self._task = asyncio.create_task(self._send_what_changes())
        self._sockets.add(self)
        # Not when the browser disconnects, because its task has yet to end.
        self._task.add_done_callback(lambda _: self._sockets.discard(self))

    def on_message(self, message: str | bytes) -> None:
        """Handle a message of the browser."""
        try:
            self._session.receive(message)
        except ArgumentError as error:
            self.close(_POLICY_VIOLATION, error.problem)
            return
        self._woken.set()

    def on_close(self) -> None:
        """Stop listening for changes."""
        super().on_close()
        if self._end_listening is not None:
            self._end_listening()
        if self._task is not None:
            self._task.cancel()

    async def end(self) -> None:
        """Close the connection, and return when its tasks have ended."""
        self.close(_GOING_AWAY, "the server is shutting down")
        if self._end_listening is not None:
            self._end_listening()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _send_what_changes(self) -> None:
        threads: ThreadPoolExecutor = self.settings["workbench_threads"]
        loop = asyncio.get_running_loop()
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._woken.wait(), TICK_S)
            self._woken.clear()
            if self._session.unread_s > _PATIENCE_S:
                self.close(_POLICY_VIOLATION, "the browser did not read for too long")
                return
            if self._session.unread_s:
                continue
            await asyncio.sleep(self._session.wait_s())
            try:
                frame = await loop.run_in_executor(threads, self._session.next_frame)
            except Exception:
                # The page reconnects by itself, with a new session.
                self.log.exception("a frame could not be built")
                self.close(_INTERNAL_ERROR, "a frame could not be built")
                return
            if frame is not None:
                try:
                    await self.write_message(frame, binary=True)
                except WebSocketClosedError:
                    return
