"""A slow link between two processes of one machine.

Called as `python -m workbench.tiers.processes.relay LINK`, with the link as JSON.

Passes TCP connections on. What passes leaves at the link's bandwidth, one byte after another, and
arrives half a round trip later. It needs no rights, unlike network namespaces, and works on every
system. It shapes what TCP carries: the headers of IP and TCP, a few percent of large frames, are
not part of it.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import json
import math
import selectors
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass

_PIECE_BYTES = 1448
"""What one packet of Ethernet carries: the bandwidth of a trace may change after each."""
_MAX_QUEUED_BYTES = 256 * 1024


@dataclass(frozen=True)
class Link:
    """A link.

    Attributes:
        host: The address to which it leads.
        port: The port there.
        bits_per_s: Its bandwidth in each direction, or infinite for no limit.
        rtt_s: The time that a byte needs there and back.
        trace: (time_s, bits_per_s) from its start on, instead of a bandwidth. It is repeated.
        ways: Ports to which equal links lead, with the number of the link, instead of `port`. What
            takes the same link shares its bandwidth.
    """

    host: str
    port: int
    bits_per_s: float = math.inf
    rtt_s: float = 0.0
    trace: tuple[tuple[float, float], ...] = ()
    ways: tuple[tuple[int, int], ...] = ()

    def words(self) -> list[str]:
        """Return the arguments with which the process of the link is started."""
        return [json.dumps(asdict(self))]


class Direction:
    """When what is sent into one direction of a link arrives at its end.

    Example:
        >>> link = Direction(1e6, 0.02)
        >>> [round(link.arrival_s(0.0, num_bytes), 3) for num_bytes in (125, 125)]
        [0.011, 0.012]
    """

    def __init__(
        self, bits_per_s: float, rtt_s: float, trace: Sequence[tuple[float, float]] = ()
    ) -> None:
        """Take the values of a `Link`."""
        self._bits_per_s, self._delay_s = bits_per_s, rtt_s / 2
        self._trace = tuple(trace)
        self._free_s = 0.0

    def arrival_s(self, now_s: float, num_bytes: int) -> float:
        """Return when bytes that are sent now have arrived. They wait for what was sent before.

        Args:
            now_s: Seconds since the link was made.
            num_bytes: How many.
        """
        self._free_s = max(self._free_s, now_s)
        left = num_bytes
        while left > 0:
            piece = min(left, _PIECE_BYTES)
            self._free_s += piece * 8 / self._rate(self._free_s)
            left -= piece
        return self._free_s + self._delay_s

    def _rate(self, at_s: float) -> float:
        if not self._trace:
            return self._bits_per_s
        length_s = self._trace[-1][0]
        at_s = at_s % length_s if length_s > 0 else 0.0
        place = bisect.bisect_right(self._trace, (at_s, math.inf)) - 1
        return self._trace[max(0, place)][1]


class Relay:
    """A link at work. All its connections share the bandwidth."""

    def __init__(self, link: Link) -> None:
        """Create a link. `taking` passes connections on."""
        self._link = link
        self._up = Direction(link.bits_per_s, link.rtt_s, link.trace)
        self._down = Direction(link.bits_per_s, link.rtt_s, link.trace)
        self._began_s = asyncio.get_running_loop().time()

    def taking(self, port: int) -> Callable[..., Awaitable[None]]:
        """Return what passes a connection on to a port."""

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._take(reader, writer, port)

        return take

    async def _take(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int
    ) -> None:
        """Pass a connection on until one side ends it. Then the other one also ends."""
        try:
            there, back = await asyncio.open_connection(self._link.host, port)
        except OSError:
            writer.transport.abort()
            return
        ways = (
            asyncio.ensure_future(self._carry(reader, back, self._up)),
            asyncio.ensure_future(self._carry(there, writer, self._down)),
        )
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        writer.close()
        back.close()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction
    ) -> None:
        """Carry what is read until its end, and until all of it has arrived."""
        loop = asyncio.get_running_loop()
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(
            _MAX_QUEUED_BYTES // _PIECE_BYTES
        )

        async def deliver() -> None:
            with contextlib.suppress(OSError):
                while True:
                    arrival_s, piece = await under_way.get()
                    await asyncio.sleep(self._began_s + arrival_s - loop.time())
                    if not piece:
                        return
                    writer.write(piece)
                    await writer.drain()

        delivering = asyncio.ensure_future(deliver())
        try:
            with contextlib.suppress(OSError):
                while piece := await reader.read(_PIECE_BYTES):
                    now_s = loop.time() - self._began_s
                    await under_way.put((direction.arrival_s(now_s, len(piece)), piece))
            # The end of the stream also takes half a round trip, and must not overtake the bytes.
            await under_way.put((direction.arrival_s(loop.time() - self._began_s, 0), b""))
            await delivering
        finally:
            delivering.cancel()


async def _run(link: Link) -> None:
    loop = asyncio.get_running_loop()
    relays: dict[int, Relay] = {}
    servers = []
    for port, lane in link.ways or ((link.port, 0),):
        relay = relays.setdefault(lane, Relay(link))
        servers.append(await asyncio.start_server(relay.taking(port), "127.0.0.1", 0))
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    end_with_input(loop, ended)
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    print(json.dumps({"port": ports[0], "ports": ports}), flush=True)
    await ended.wait()
    for server in servers:
        server.close()


def end_with_input(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    """Set an event when the standard input ends: when the process that holds its other end does."""

    def read() -> None:
        while sys.stdin.buffer.read(4096):
            pass
        with contextlib.suppress(RuntimeError):  # the loop has ended for another reason
            loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=read, daemon=True).start()


def main(words: list[str]) -> int:
    """Pass connections on until ended by a signal or by the end of the standard input.

    Args:
        words: The link, as `Link.words` writes it.

    Returns:
        The exit code.
    """
    document = json.loads(words[0])
    pairs = {name: tuple(map(tuple, document[name])) for name in ("trace", "ways")}
    link = Link(**{**document, **pairs})
    # Unlike epoll, select waits for less than a millisecond, too.
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(_run(link))
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
