"""A TCP proxy that keeps what passes, and can change a byte of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable


class RecordedLink:
    """What has passed, and how the next piece towards the server is changed."""

    def __init__(self) -> None:
        self.captured = bytearray()
        self.change: Callable[[bytes], bytes] | None = None
        self.port = 0

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, up: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while piece := await reader.read(65536):
                self.captured += piece
                if up and (change := self.change) is not None:
                    piece, self.change = change(piece), None
                writer.write(piece)
                await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def recorded_link(port: int) -> AsyncIterator[RecordedLink]:
    """Pass on to a port of this machine."""
    link = RecordedLink()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(
            link._carry(reader, back, up=True), link._carry(there, writer, up=False)
        )

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    link.port = server.sockets[0].getsockname()[1]
    try:
        yield link
    finally:
        server.close()
