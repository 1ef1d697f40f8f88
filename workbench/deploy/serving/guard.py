"""Checks every request of a server, and adds the common headers to all responses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from typing_extensions import Self

from workbench.deploy.distributions import needs
from workbench.deploy.serving.tokens import Token, is_loopback_name

with needs("starlette"):
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_OPEN_PATHS = frozenset({"/", "/page.js", "/page.css", "/health", "/ready"})
"""Addresses that need no token, because they show nothing about the models."""
_HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]


class Guard:
    """Only passes on requests with the token, and adds the common headers to all responses."""

    def __init__(self, app: ASGIApp, token: Token | None) -> None:
        """Guard an application. Without a token, requests must go to a name of this machine."""
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one connection, as an ASGI application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        answer: ASGIApp = self._app
        if self._token is None:
            # DNS rebinding: a foreign page may point its own name at this machine.
            if not is_loopback_name(headers.get(b"host", "")):
                answer = respond(
                    describe_problem("the server only answers to a name of this machine"), 421
                )
        elif scope["path"] not in _OPEN_PATHS and not self._token.allows(
            headers.get(b"authorization")
        ):
            next_step = "Send the header: Authorization: Bearer TOKEN."
            problem = describe_problem("the token is missing or wrong", next_step=next_step)
            answer = respond(problem, 401, {"WWW-Authenticate": "Bearer"})
        await answer(scope, receive, send_with_headers)


def respond(
    content: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a response in JSON."""
    body = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return Response(body, status, headers, media_type="application/json")


def describe_problem(
    problem: str,
    *,
    field: str | None = None,
    allowed: str | None = None,
    next_step: str | None = None,
) -> dict[str, Any]:
    """Return a problem as clients receive it. Arguments as in `WorkbenchError`."""
    return {"problem": problem, "field": field, "allowed": allowed, "next_step": next_step}


class time_limit:  # noqa: N801 (used like a function)
    """Interrupts the code inside the `with` block at a time limit. It is faster than `wait_for`."""

    def __init__(self, limit_s: float) -> None:
        """Set the limit in seconds. `is_over` shows whether it was reached."""
        self.is_over = False
        self._limit_s = limit_s

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        self._timer = asyncio.get_running_loop().call_later(self._limit_s, self._end)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        self._timer.cancel()
        return self.is_over and kind is asyncio.CancelledError

    def _end(self) -> None:
        self.is_over = True
        assert self._task is not None
        self._task.cancel()
