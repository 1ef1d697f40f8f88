"""Keeps a part of the parameters on the worker that serves it, and connects the other workers.

`parameter_server` decides which part is where, and when updates are made.

Source: Ho et al. 2013, "More Effective Distributed ML via a Stale Synchronous Parallel Parameter
Server".
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import struct
import threading
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

CONNECT_TIMEOUT_S = 120.0
_KEY_BYTES = 32
_REQUEST = struct.Struct("!q?")
"""How many steps of every replica the values must contain, and whether an update follows."""
_GREETING = struct.Struct(f"!{_KEY_BYTES}sI")
"""The key of the server, and the rank of the replica that connects."""


class ServerLeft(RuntimeError):
    """A part of the parameters cannot be used any more, because a replica failed or has left."""


class Address(NamedTuple):
    """The address of a served part.

    Attributes:
        host: Host of the worker that serves it.
        port: Port on which it listens.
        key: A secret of the trial's replicas.
    """

    host: str
    port: int
    key: bytes


class Served(Protocol):
    """A part of the parameters, on this worker or on another one."""

    def begin(self, update: Tensor | None, num_steps: int) -> None:
        """Start to add an update to the values and to read them. `finish` completes it.

        Args:
            update: A tensor of the same shape as the values, or None to read only.
            num_steps: Number of updates of every replica that the values must contain.
        """
        ...

    def finish(self, values: Tensor) -> None:
        """Write the served values into `values` as soon as they contain the updates of `begin`.

        Raises:
            ServerLeft: If the server has left, or a replica whose update is missing.
        """
        ...

    def close(self) -> None:
        """Leave. Others stop waiting for an update of this replica, and fail."""
        ...


class OwnPart:
    """A part of the parameters that this worker keeps."""

    def __init__(self, values: Tensor, num_replicas: int, *, in_order: bool) -> None:
        """Serve a copy of `values`.

        Args:
            values: A one-dimensional tensor.
            num_replicas: How many replicas send updates.
            in_order: Whether updates are added step by step in the order of the ranks, so that
                rounding is the same in each run. Possible only if no replica is ever a step ahead.
        """
        self._num_replicas, self._in_order = num_replicas, in_order
        self._has_left = False
        self._changed = threading.Condition()
        self.restart(values)

    def restart(self, values: Tensor) -> None:
        """Serve a copy of other values, without any update so far.

        No replica may use the part in the meantime.
        """
        self._values = values.clone()
        self._num_steps = [0] * self._num_replicas
        self._waiting: dict[int, Tensor] = {}

    def empty(self) -> Tensor:
        """Return a tensor that an update fits in."""
        return torch.empty_like(self._values)

    def add(self, rank: int, update: Tensor) -> None:
        """Add the next update of a replica.

        Args:
            rank: Rank of the replica.
            update: A tensor of the same shape as the values.
        """
        with self._changed:
            self._waiting[rank] = update
            if not self._in_order or len(self._waiting) == self._num_replicas:
                for rank_waiting in sorted(self._waiting):
                    self._values += self._waiting.pop(rank_waiting)
                    self._num_steps[rank_waiting] += 1
            self._changed.notify_all()

    def read(self, num_steps: int) -> Tensor:
        """Return a copy of the values as soon as they contain enough updates of every replica.

        Args:
            num_steps: How many updates of each replica are enough.

        Raises:
            ServerLeft: If that cannot happen any more, because a replica has left.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._has_left or min(self._num_steps) >= num_steps)
            # A replica that leaves does not matter if all its needed updates are there.
            if min(self._num_steps) < num_steps:
                raise ServerLeft("another replica has ended, and its update was needed")
            return self._values.clone()

    def leave(self) -> None:
        """Take note that some replica sends no more updates."""
        with self._changed:
            self._has_left = True
            self._changed.notify_all()


class Own:
    """Access to the part on this worker, without a connection."""

    def __init__(self, part: OwnPart, rank: int) -> None:
        self._part, self._rank, self._num_steps = part, rank, 0

    def begin(self, update: Tensor | None, num_steps: int) -> None:
        """Add an update. See Served.begin."""
        self._num_steps = num_steps
        if update is not None:
            self._part.add(self._rank, update)

    def finish(self, values: Tensor) -> None:
        """Read the values. See Served.finish."""
        values.copy_(self._part.read(self._num_steps))

    def close(self) -> None:
        """Leave. See Served.close."""
        self._part.leave()


class Remote:
    """Access to a part on another worker."""

    def __init__(self, address: Address, rank: int) -> None:
        """Connect to the worker that serves a part.

        Args:
            address: The address of the part.
            rank: Rank of this replica.

        Raises:
            ServerLeft: If nobody listens there.
        """
        try:
            self._connection = socket.create_connection(address[:2], timeout=CONNECT_TIMEOUT_S)
            self._connection.settimeout(None)
            # Without this, a small request waits for the acknowledgement of the previous one.
            self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connection.sendall(_GREETING.pack(address.key, rank))
        except OSError as error:
            raise ServerLeft(f"the parameter server at {address.host} cannot be reached") from error

    def begin(self, update: Tensor | None, num_steps: int) -> None:
        """Send an update. See Served.begin."""
        try:
            self._connection.sendall(_REQUEST.pack(num_steps, update is not None))
            if update is not None:
                self._connection.sendall(_bytes_of(update))
        except OSError as error:
            raise ServerLeft("a parameter server has ended") from error

    def finish(self, values: Tensor) -> None:
        """Receive the values. See Served.finish."""
        try:
            _receive(self._connection, _bytes_of(values))
        except OSError as error:
            raise ServerLeft(
                "a parameter server has ended, or a replica whose update it needed"
            ) from error

    def close(self) -> None:
        """Leave. See Served.close."""
        _end(self._connection)


class Server:
    """Lets the other replicas use this worker's part, with one thread per replica."""

    def __init__(self, part: OwnPart, host: str, num_others: int) -> None:
        """Listen for the other replicas.

        Args:
            part: The served part.
            host: The address of this machine, as the others see it.
            num_others: How many replicas will connect.
        """
        self._part = part
        self._connections: list[socket.socket] = []
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=num_others)
        self.address = Address(
            host, self._listener.getsockname()[1], secrets.token_bytes(_KEY_BYTES)
        )
        threading.Thread(target=self._accept, args=(num_others,), daemon=True).start()

    def close(self) -> None:
        """End all connections. Replicas that still use the part fail."""
        for connection in (self._listener, *self._connections):
            _end(connection)

    def _accept(self, num_others: int) -> None:
        with contextlib.suppress(OSError):  # raised by `accept` when the listener is closed
            # A port can be reached by anybody. Only connections that know the key count.
            while num_others:
                connection, _ = self._listener.accept()
                rank = self._rank_of(connection)
                if rank is None:
                    connection.close()
                    continue
                num_others -= 1
                self._connections.append(connection)
                threading.Thread(target=self._serve, args=(connection, rank), daemon=True).start()
        self._listener.close()

    def _rank_of(self, connection: socket.socket) -> int | None:
        """Return the rank of the replica that has connected, or None if it is not a replica."""
        greeting = bytearray(_GREETING.size)
        try:
            connection.settimeout(CONNECT_TIMEOUT_S)
            _receive(connection, memoryview(greeting))
            connection.settimeout(None)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            return None
        key, rank = _GREETING.unpack(greeting)
        if not hmac.compare_digest(key, self.address.key):
            return None
        return rank

    def _serve(self, connection: socket.socket, rank: int) -> None:
        request = bytearray(_REQUEST.size)
        try:
            while True:
                _receive(connection, memoryview(request))
                num_steps, has_update = _REQUEST.unpack(request)
                if has_update:
                    update = self._part.empty()
                    _receive(connection, _bytes_of(update))
                    self._part.add(rank, update)
                connection.sendall(_bytes_of(self._part.read(num_steps)))
        except (OSError, ServerLeft):
            self._part.leave()
            _end(connection)


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it may have ended already
        connection.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in `recv`
    connection.close()


def _bytes_of(values: Tensor) -> memoryview:
    array: Any = values.numpy()
    return memoryview(array).cast("B")


def _receive(connection: socket.socket, content: memoryview) -> None:
    """Fill `content` with the next bytes.

    Raises:
        ConnectionError: If the other side has ended the connection.
    """
    while content:
        num_bytes = connection.recv_into(content)
        if num_bytes == 0:
            raise ConnectionError("the other side has closed the connection")
        content = content[num_bytes:]
