"""Connections without a request cannot keep others out, from whatever address they come."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import uvicorn

from workbench.deploy.serving.connections import Connections, LimitedProtocol, read_networks
from workbench.foundation.errors import ArgumentError

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def answer(scope: Any, receive: Any, send: Any) -> None:
    if scope["path"] == "/slow":
        await asyncio.sleep(60)
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]}
    )
    await send({"type": "http.response.body", "body": b"ok"})


@contextlib.asynccontextmanager
async def served(connections: Connections) -> AsyncIterator[int]:
    config = uvicorn.Config(
        answer,
        log_level="critical",
        http=LimitedProtocol.of(connections),
        lifespan="off",
        timeout_graceful_shutdown=1,
    )
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = server.force_exit = True
        await task


async def connect(
    port: int, peer: str = "127.0.0.1"
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port, local_addr=(peer, 0))


async def ask(port: int, peer: str = "127.0.0.1") -> bytes:
    reader, writer = await connect(port, peer)
    writer.write(REQUEST)
    head = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    return head.splitlines()[0]


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(test(), 120)

    asyncio.run(limited())


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: lo"])
def test_half_open_connections_lock_nobody_out(sent: bytes) -> None:
    async def test() -> None:
        async with served(Connections(20)) as port:
            held = []
            for number in range(60):
                reader, writer = await connect(port, f"127.0.0.{2 + number % 3}")
                writer.write(sent)
                held.append((reader, writer))
            assert await ask(port, "127.0.0.9") == b"HTTP/1.1 200 OK"
            # From an address of theirs, too: the one that has waited longest makes room.
            assert await ask(port, "127.0.0.2") == b"HTTP/1.1 200 OK"
            for _, writer in held:
                writer.close()

    run(test)


def test_headers_that_come_bit_by_bit_do_not_extend_their_time() -> None:
    async def test() -> None:
        async with served(Connections(20, headers_s=0.5)) as port:
            first, writer = await connect(port)
            writer.write(REQUEST)
            await first.readuntil(b"ok")  # also on a connection that has been used
            with contextlib.suppress(ConnectionError):
                while not first.at_eof():
                    writer.write(b"G")
                    await asyncio.sleep(0.05)
            assert first.at_eof()

    run(test)


def test_one_address_has_half_of_the_connections_and_a_trusted_proxy_all() -> None:
    async def test() -> None:
        async with served(Connections(8, read_networks(["127.0.1.0/24"]))) as port:
            busy = []
            for peer, num in (("127.0.0.2", 4), ("127.0.1.7", 4)):
                for _ in range(num):
                    _, writer = await connect(port, peer)
                    writer.write(REQUEST.replace(b"GET /", b"GET /slow"))
                    busy.append(writer)
            await asyncio.sleep(0.2)
            for writer in busy[4:6]:
                writer.close()
            await asyncio.sleep(0.2)
            # Its four are at work, so none of them can make room.
            assert await ask(port, "127.0.0.2") == b"HTTP/1.1 503 Service Unavailable"
            assert await ask(port, "127.0.0.3") == b"HTTP/1.1 200 OK"
            assert await ask(port, "127.0.1.7") == b"HTTP/1.1 200 OK"
            for writer in busy:
                writer.close()

    run(test)


def test_a_connection_that_answers_is_not_closed_to_make_room() -> None:
    async def test() -> None:
        connections = Connections(4)
        async with served(connections) as port:
            reader, writer = await connect(port, "127.0.0.2")
            writer.write(REQUEST.replace(b"GET /", b"GET /slow"))
            await asyncio.sleep(0.2)
            for number in range(10):
                await connect(port, f"127.0.0.{3 + number}")
            await asyncio.sleep(0.2)
            assert not reader.at_eof()
            writer.close()

    run(test)


@pytest.mark.parametrize("text", ["", "proxy.example.org", "10.0.0.0/33", "10.0.0.1/8"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ArgumentError, match=r"--trusted-proxy: .* is not an address"):
        read_networks([text])
