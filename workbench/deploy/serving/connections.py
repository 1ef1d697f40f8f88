"""Limits connections and their time without a request, so that no client can block the others.

A client can open a connection without a token and then wait. So its time is limited, and if
connections run out, waiting ones are closed. `app` limits the requests themselves.
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
from workbench.deploy.serving.guard import describe_problem
from workbench.foundation.errors import ArgumentError

if TYPE_CHECKING:  # uvicorn uses another protocol if httptools is installed
    from uvicorn.protocols.http.h11_impl import H11Protocol as AutoHTTPProtocol
else:
    with needs("uvicorn"):
        from uvicorn.protocols.http.auto import AutoHTTPProtocol

HEADERS_S = 10.0
"""The time limit of a request's headers, from the first connection or the first byte on."""
_SHARE_OF_PEER = 0.5
"""The share of all connections that one address may have, unless it is a trusted proxy."""
_RETRY_S = 1

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


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
