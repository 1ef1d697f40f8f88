"""Connections between tiers.

Mutual TLS 1.3 with the tiers' own authority, and what is rejected, counted.

Both sides show a certificate of the same authority and are known by the name in it. Unencrypted
connections are made only where no identity is given. Frames are left to `frames`, certificates to
`certificates`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from workbench.tiers.processes.frames import (
    MAX_PAYLOAD_BYTES,
    Frame,
    FrameError,
    encode,
    read_frame,
)

HANDSHAKE_S = 5.0
_BACKLOG = 512
MAX_CONNECTIONS = 512


@dataclass(frozen=True)
class Identity:
    """The files by which a tier is known.

    Attributes:
        certificate: Its certificate.
        key: The key of it.
        authority: The certificate of the authority that must have issued the other side's
            certificate.
    """

    certificate: Path
    key: Path
    authority: Path

    @classmethod
    def in_folder(cls, folder: Path, name: str) -> Identity:
        """Return the identity that `Authority.issue` wrote."""
        return cls(folder / f"{name}.pem", folder / f"{name}.key", folder / "authority.pem")

    def context(self, *, is_server: bool) -> ssl.SSLContext:
        """Return what makes TLS connections: of version 1.3 only, and only with a known other side.

        Args:
            is_server: Whether this side is connected to.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(self.authority)
        context.load_cert_chain(self.certificate, self.key)
        if is_server:
            context.num_tickets = 0  # a connection is kept, so no session is ever resumed
        return context


class Connection:
    """Frames to and from one other process."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        max_bytes: int,
        peer: str | None,
    ) -> None:
        """Hold an open connection. `connect` and `Listener` create them."""
        self._reader, self._writer, self._max_bytes = reader, writer, max_bytes
        self.peer = peer
        """The name in the certificate of the other side, or None if there is none."""
        self.sent_bytes = 0
        """Bytes of the frames that were sent, without what TLS adds."""

    async def receive(self) -> Frame:
        """Return the next frame.

        Errors as of `read_frame`, and `ssl.SSLError` for one that was changed.
        """
        return await read_frame(self._reader, max_bytes=self._max_bytes)

    def send(self, frame: Frame) -> None:
        """Send a frame. It is on its way when `drain` returns, or later."""
        content = encode(frame)
        self.sent_bytes += len(content)
        self._writer.write(content)

    async def drain(self) -> None:
        """Wait while more is to be sent than the other side takes."""
        await self._writer.drain()

    def close(self) -> None:
        """End the connection at once."""
        transport = self._writer.transport
        if transport is not None:
            transport.abort()


async def connect(
    host: str,
    port: int,
    *,
    identity: Identity | None,
    name: str,
    max_bytes: int = MAX_PAYLOAD_BYTES,
) -> Connection:
    """Connect to a tier.

    Args:
        host: Its address.
        port: Its port.
        identity: Who this side is, or None for an unencrypted connection.
        name: The name that the certificate of the other side must have.
        max_bytes: How large a tensor may be that is received.

    Raises:
        OSError: If it cannot be reached, or is not who it should be (`ssl.SSLError`).
    """
    if identity is None:
        reader, writer = await asyncio.open_connection(host, port)
    else:
        reader, writer = await asyncio.open_connection(
            host,
            port,
            ssl=identity.context(is_server=False),
            server_hostname=name,
            ssl_handshake_timeout=HANDSHAKE_S,
        )
    return Connection(reader, writer, max_bytes, _peer_of(writer))


class Listener:
    """Accepts connections of known tiers, and counts what it refuses."""

    def __init__(
        self,
        serve: Callable[[Connection], Awaitable[None]],
        *,
        identity: Identity | None,
        accepts: Collection[str],
        max_bytes: int = MAX_PAYLOAD_BYTES,
    ) -> None:
        """Prepare to listen.

        Args:
            serve: Reads the frames of a connection until it ends. What it raises closes the
                connection.
            identity: Who this side is, or None for unencrypted connections, whose other side is
                unknown.
            accepts: The names that certificates of the other side may have.
            max_bytes: How large a tensor may be that is received.
        """
        self._serve, self._accepts, self._max_bytes = serve, frozenset(accepts), max_bytes
        self._context = None if identity is None else identity.context(is_server=True)
        self._tasks: set[asyncio.Task[None]] = set()
        self.refused: Counter[str] = Counter()
        """What was refused, by reason.

        Certificate, handshake, tier, connections, malformed, too_large, tampered, cut.
        """

    async def listen(self, listener: socket.socket) -> None:
        """Accept connections until cancelled, then close all.

        Args:
            listener: A socket that is bound.
        """
        loop = asyncio.get_running_loop()
        listener.setblocking(False)
        listener.listen(_BACKLOG)
        try:
            while True:
                accepted, _ = await loop.sock_accept(listener)
                if len(self._tasks) >= MAX_CONNECTIONS:
                    self.refused["connections"] += 1
                    accepted.close()
                    continue
                task = loop.create_task(self._take(accepted))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        finally:
            for task in self._tasks:
                task.cancel()

    async def _take(self, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        timeout_s = None if self._context is None else HANDSHAKE_S
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol, accepted, ssl=self._context, ssl_handshake_timeout=timeout_s
            )
        except (OSError, asyncio.TimeoutError) as error:
            accepted.close()
            self.refused[_reason_of(error)] += 1
            return
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        peer = _peer_of(writer)
        connection = Connection(reader, writer, self._max_bytes, peer)
        try:
            if self._context is not None and peer not in self._accepts:
                self.refused["tier"] += 1
                return
            await self._serve(connection)
        except FrameError as error:
            self.refused[error.reason] += 1
        except ssl.SSLError:
            self.refused["tampered"] += 1
        except asyncio.IncompleteReadError as error:
            if error.partial:
                self.refused["cut"] += 1
        except OSError:
            pass  # the other side is gone
        finally:
            with contextlib.suppress(OSError):
                connection.close()


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that is bound. It listens as soon as a `Listener` has it.

    Args:
        host: An address of this machine.
        port: The port, or 0 for any that is free.

    Raises:
        OSError: If it cannot be bound.
    """
    family, kind, number, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    bound = socket.socket(family, kind, number)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError:
        bound.close()
        raise
    return bound


def _reason_of(error: Exception) -> str:
    # A certificate is missing, expired, or issued by somebody else.
    is_certificate = isinstance(error, ssl.SSLCertVerificationError) or "CERTIFICATE" in str(error)
    return "certificate" if is_certificate else "handshake"


def _peer_of(writer: asyncio.StreamWriter) -> str | None:
    certificate = writer.get_extra_info("peercert") or {}
    names = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]
    return names[0] if names else None
