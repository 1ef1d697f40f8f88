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
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

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
        own_s: How long the process of the link takes by itself for a byte each way. What it carries
            is delayed by that much less.
        ways: Ports to which equal links lead, with the number of the link, instead of `port`. What
            takes the same link shares its bandwidth.
    """

    host: str
    port: int
    bits_per_s: float = math.inf
    rtt_s: float = 0.0
    trace: tuple[tuple[float, float], ...] = ()
    own_s: float = 0.0
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
        self,
        bits_per_s: float,
        rtt_s: float,
        trace: Sequence[tuple[float, float]] = (),
        own_s: float = 0.0,
    ) -> None:
        """Take the values of a `Link`."""
        self._bits_per_s, self._delay_s = bits_per_s, rtt_s / 2 - own_s
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
        return max(now_s, self._free_s + self._delay_s)

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
        self.link = link
        self.up = Direction(link.bits_per_s, link.rtt_s, link.trace, link.own_s)
        self.down = Direction(link.bits_per_s, link.rtt_s, link.trace, link.own_s)
        self.began_s = asyncio.get_running_loop().time()

    def taking(self, port: int) -> Callable[[], asyncio.Protocol]:
        """Return what passes a connection on to a port."""
        return lambda: _Near(self, port)


class _End(asyncio.Protocol):
    """One end of a connection over a link. What it reads leaves at the other end.

    It does not use streams, as each of their turns of the event loop would make the link longer.
    """

    def __init__(self, relay: Relay, direction: Direction) -> None:
        self._relay, self._direction = relay, direction
        self._loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport | None = None
        self.other: _End | None = None
        self._under_way: deque[tuple[float, bytes]] = deque()
        """When each piece arrives at the other end. An empty one is the end."""
        self._num_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_full = self._has_ended = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        at_s = self._loop.time() - self._relay.began_s
        for first in range(0, len(data), _PIECE_BYTES):
            piece = data[first : first + _PIECE_BYTES]
            self._under_way.append((self._direction.arrival_s(at_s, len(piece)), piece))
        self._num_bytes += len(data)
        if self._num_bytes > _MAX_QUEUED_BYTES and self.transport is not None:
            self.transport.pause_reading()
        self._await_next()

    def eof_received(self) -> bool:
        self.connection_lost(None)
        return True  # what comes from the other end may still be under way

    def connection_lost(self, exc: Exception | None) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        # The end also takes half a round trip, and must not overtake the bytes.
        arrival_s = self._direction.arrival_s(self._loop.time() - self._relay.began_s, 0)
        self._under_way.append((arrival_s, b""))
        self._await_next()

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.hold(True)

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.hold(False)

    def hold(self, is_full: bool) -> None:
        """Note whether the other end takes no more for now."""
        self._is_full = is_full
        self._await_next()

    def _await_next(self) -> None:
        if self._timer is None and self._under_way and not self._is_full:
            at_s = self._relay.began_s + self._under_way[0][0]
            self._timer = self._loop.call_at(at_s, self._deliver)

    def _deliver(self) -> None:
        self._timer = None
        now_s = self._loop.time() - self._relay.began_s
        target = None if self.other is None else self.other.transport
        while self._under_way and self._under_way[0][0] <= now_s and not self._is_full:
            _, piece = self._under_way.popleft()
            if not piece or target is None:
                self.close()
                return
            self._num_bytes -= len(piece)
            target.write(piece)
        if self._num_bytes <= _MAX_QUEUED_BYTES and self.transport is not None:
            self.transport.resume_reading()
        self._await_next()

    def close(self) -> None:
        """End both ends, as soon as what was delivered has left."""
        for end in (self, self.other):
            if end is None:
                continue
            end._has_ended = True
            if end._timer is not None:
                end._timer.cancel()
            if end.transport is not None:
                end.transport.close()


class _Near(_End):
    """The end that was connected to. It connects the other one."""

    def __init__(self, relay: Relay, port: int) -> None:
        super().__init__(relay, relay.up)
        self._port = port
        self._connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.pause_reading()
        self._connecting = self._loop.create_task(self._connect(transport))

    async def _connect(self, transport: asyncio.Transport) -> None:
        far = _End(self._relay, self._relay.down)
        far.other = self
        try:
            await self._loop.create_connection(lambda: far, self._relay.link.host, self._port)
        except OSError:
            transport.abort()
            return
        self.other = far
        transport.resume_reading()


async def _run(link: Link) -> None:
    loop = asyncio.get_running_loop()
    relays: dict[int, Relay] = {}
    servers = []
    for port, lane in link.ways or ((link.port, 0),):
        relay = relays.setdefault(lane, Relay(link))
        servers.append(await loop.create_server(relay.taking(port), "127.0.0.1", 0))
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
