"""Checks every request of a server, and limits connections, so that no client can block the others.

A client can open a connection without a token and then wait. So its time is limited, and if
connections run out, waiting ones are closed. `app` limits the requests themselves. All responses
get the common headers here.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workbench.deploy.distributions import needs
from workbench.foundation.errors import ArgumentError

if TYPE_CHECKING:  # uvicorn uses another protocol if httptools is installed
    from uvicorn.protocols.http.h11_impl import H11Protocol as AutoHTTPProtocol
else:
    with needs("uvicorn"):
        from uvicorn.protocols.http.auto import AutoHTTPProtocol
from collections.abc import Mapping

from typing_extensions import Self

from workbench.deploy.distributions import needs
from workbench.deploy.serving.access_token import Token, is_loopback_name

HEADERS_S = 10.0
"""The time limit of a request's headers, from the first connection or the first byte on."""
_SHARE_OF_PEER = 0.5
"""The share of all connections that one address may have, unless it is a trusted proxy."""
_RETRY_S = 1

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_OPEN_PATHS = frozenset({"/", "/page.js", "/page.css", "/health", "/ready"})
"""Addresses that need no token, because they show nothing about the models."""
_HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]


def read_networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """Read the addresses of proxies, or networks of them.

    Args:
        texts: Numbers such as `10.0.0.7`, or `10.0.0.0/8`.

    Raises:
        ArgumentError: If one is neither.
    """
    networks = []
    for text in texts:
        try:
            networks.append(ipaddress.ip_network(text))
        except ValueError as error:
            raise ArgumentError(
                f"{text!r} is not an address",
                field="--trusted-proxy",
                allowed="an address or a network, such as 10.0.0.7 or 10.0.0.0/8",
            ) from error
    return tuple(networks)


@dataclass
class Connections:
    """All open connections, by the address of their peer.

    Attributes:
        limit: How many there may be.
        trusted: Proxies. They may have all connections, because each serves many clients.
        headers_s: How long the headers of a request may take, in seconds.
    """

    limit: int
    trusted: tuple[Network, ...] = ()
    headers_s: float = HEADERS_S
    _num_open: int = 0
    _num_by_peer: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _waiting: dict[str, dict[LimitedProtocol, None]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """Connections without a request, by peer. Those that have waited longest come first."""

    def add(self, connection: LimitedProtocol) -> bool:
        """Count a new connection. Another one may be closed for it.

        Returns:
            Whether there is room for it.
        """
        peer = connection.peer
        if self._num_by_peer[peer] >= self._limit_of(peer) and not self._end_waiting(peer):
            return False
        if self._num_open >= self.limit:
            most_waiting = max(
                self._waiting, key=lambda name: len(self._waiting[name]), default=None
            )
            if most_waiting is None or not self._end_waiting(most_waiting):
                return False
        self._num_open += 1
        self._num_by_peer[peer] += 1
        self.wait(connection)
        return True

    def remove(self, connection: LimitedProtocol) -> None:
        """Forget a connection that has been counted."""
        peer = connection.peer
        self.work(connection)
        self._num_open -= 1
        self._num_by_peer[peer] -= 1
        if not self._num_by_peer[peer]:
            del self._num_by_peer[peer]

    def wait(self, connection: LimitedProtocol) -> None:
        """Note that a connection has no request now."""
        self._waiting[connection.peer][connection] = None

    def work(self, connection: LimitedProtocol) -> None:
        """Note that a connection has a request now."""
        waiting = self._waiting.get(connection.peer)
        if waiting is not None:
            waiting.pop(connection, None)
            if not waiting:
                del self._waiting[connection.peer]

    def _limit_of(self, peer: str) -> int:
        return self.limit if self._is_trusted(peer) else max(1, int(self.limit * _SHARE_OF_PEER))

    def _is_trusted(self, peer: str) -> bool:
        if not self.trusted:
            return False
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:  # a socket that has no number
            return False
        return any(address in network for network in self.trusted)

    def _end_waiting(self, peer: str) -> bool:
        oldest = next(iter(self._waiting.get(peer, ())), None)
        if oldest is None:
            return False
        oldest.end()
        return True


class LimitedProtocol(AutoHTTPProtocol):
    """The HTTP protocol of uvicorn, with a limit on the time without a request.

    `of` creates a class for a server, because uvicorn creates the objects itself.
    """

    open_connections: Connections
    peer: str
    _is_counted = False
    _timer: asyncio.TimerHandle | None = None

    @classmethod
    def of(cls, open_connections: Connections) -> type[LimitedProtocol]:
        """Return the protocol of a server with these connections."""
        return type("ServedProtocol", (cls,), {"open_connections": open_connections})

    def connection_made(self, transport: Any) -> None:
        """Accept a new connection, or reject it with a message."""
        address = transport.get_extra_info("peername")
        self.peer = address[0] if isinstance(address, tuple) else ""
        self._is_counted = self.open_connections.add(self)
        if not self._is_counted:
            transport.write(_too_many())
            transport.close()
        super().connection_made(transport)
        if self._is_counted:
            self._limit_time()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._clear_timer()
        if self._is_counted:
            self._is_counted = False
            self.open_connections.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read a part of a request. All parts of its headers must arrive within the limit."""
        if not self._is_counted:
            return
        super().data_received(data)
        if self._has_request:
            self._clear_timer()
            self.open_connections.work(self)
        else:
            self._limit_time()

    def on_response_complete(self) -> None:
        """Wait for the next request. uvicorn limits the time until its first byte."""
        super().on_response_complete()
        if self._is_counted and not self._has_request:
            self.open_connections.wait(self)

    def end(self) -> None:
        """Close the connection, which has no request, and free its slot at once."""
        self._clear_timer()
        if self._is_counted:
            self._is_counted = False
            self.open_connections.remove(self)
        self.transport.abort()

    @property
    def _has_request(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _limit_time(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(
                self.open_connections.headers_s, self.end
            )

    def _clear_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _too_many() -> bytes:
    problem = describe_problem("the server has too many connections", next_step="Try again later.")
    body = json.dumps(problem).encode()
    head = (
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection:"
        f" close\r\nRetry-After: {_RETRY_S}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


with needs("starlette"):
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


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
