"""The machines of a tier, as one process acts as all of them.

What the process computes itself takes as long as it takes here. A request then waits until a
machine of the tier would have computed it, after those before it. A machine of the first tier, a
device, serves its own requests in order. The machines of a further tier share one line, and each
takes as many requests at once as its batch allows.

Times follow from when a machine would have begun, not from when this process noticed: a process
that wakes up late does not make later requests late, too.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass

from workbench.tiers.placement.known_queues import Line


@dataclass(frozen=True)
class MachineSettings:
    """The machines of a tier.

    Attributes:
        count: How many there are.
        alone_s: For each stage of the model, the time of a machine for one request, in seconds.
        row_s: For each stage, by how much a request makes the call of a batch longer.
        batch: How many requests a machine computes at once, at most.
        received_s: Time of a machine to read a request with features, in seconds.
        received_raw_s: Likewise with inputs.
        send_s: Time until a request with features has left a machine, in seconds.
        send_raw_s: Likewise with inputs.
    """

    count: int
    alone_s: tuple[float, ...]
    row_s: tuple[float, ...]
    batch: int = 1
    received_s: float = 0.0
    received_raw_s: float = 0.0
    send_s: float = 0.0
    send_raw_s: float = 0.0

    def work_s(self, first: int, last: int) -> tuple[float, float]:
        """Return the time of some stages alone, and what they add to a batch.

        Args:
            first: The first stage.
            last: The last stage.
        """
        alone_s = sum(self.alone_s[first : last + 1])
        rows_s = sum(self.row_s[first : last + 1])
        if not first:
            return alone_s + self.received_raw_s, rows_s + self.received_raw_s
        return alone_s + self.received_s, rows_s + self.received_s


class Turn:
    """The turn of one request at its device, until it is answered or sent on."""

    def __init__(self, devices: Devices, device: int, arrived_s: float) -> None:
        """Do not take the turn yet."""
        self._devices, self._device = devices, device
        self._is_in_line = self._is_taken = False
        self.at_s = arrived_s
        """When the device ends the last work for the request that it has begun."""

    def join(self) -> None:
        """Join the line of the device, unless that is done."""
        if not self._is_in_line:
            self._is_in_line = True
            self._devices.lines[self._device].num_requests += 1

    async def take(self) -> None:
        """Wait for the turn, unless it is taken."""
        self.join()
        if self._is_taken:
            return
        await self._devices.locks[self._device].acquire()
        self._is_taken = True
        self.at_s = max(self.at_s, self._devices.free_s[self._device])
        self._devices.lines[self._device].began_s = self.at_s

    async def spend(self, seconds: float) -> None:
        """Compute for a request whose turn it is.

        Args:
            seconds: For how long.
        """
        self.at_s += seconds
        self._devices.busy_s += seconds
        self._devices.free_s[self._device] = self.at_s
        await wait_until(self.at_s)

    def release(self) -> None:
        """Leave the line, and let the next request begin if the turn is taken."""
        if self._is_in_line:
            self._is_in_line = False
            self._devices.lines[self._device].num_requests -= 1
        if self._is_taken:
            self._is_taken = False
            self._devices.locks[self._device].release()


class Devices:
    """Machines with a line of requests each."""

    def __init__(self) -> None:
        """Start with empty lines."""
        self.locks: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.free_s: defaultdict[int, float] = defaultdict(float)
        self.lines: defaultdict[int, Line] = defaultdict(Line)
        """What is known of the requests of each device."""
        self.busy_s = 0.0
        """Seconds that all of them have computed."""


class Servers:
    """Machines with one line of requests."""

    def __init__(self, count: int, batch: int) -> None:
        """Start with an empty line.

        Args:
            count: Number of machines.
            batch: How many requests one computes at once, at most.
        """
        self._num_idle, self._batch = count, batch
        self._line: deque[tuple[float, float, asyncio.Future[None]]] = deque()
        self.busy_s = 0.0
        """Seconds that all of them have computed."""

    @property
    def num_waiting(self) -> int:
        """Number of requests in the line."""
        return len(self._line)

    async def compute(self, alone_s: float, row_s: float, arrived_s: float) -> None:
        """Wait until a machine has computed a request.

        Args:
            alone_s: The time of a call with this request alone.
            row_s: By how much it makes a call longer.
            arrived_s: When it arrived, by the clock of the event loop.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append((alone_s, row_s, done))
        self._begin(arrived_s)
        await done

    def _begin(self, at_s: float) -> None:
        loop = asyncio.get_running_loop()
        while self._num_idle and self._line:
            num_taken = min(self._batch, len(self._line))
            taken = [self._line.popleft() for _ in range(num_taken)]
            call_s = max(alone_s - row_s for alone_s, row_s, _ in taken)
            call_s += sum(row_s for _, row_s, _ in taken)
            self._num_idle -= 1
            self.busy_s += call_s
            loop.call_at(at_s + call_s, self._end, [done for *_, done in taken], at_s + call_s)

    def _end(self, done: Sequence[asyncio.Future[None]], at_s: float) -> None:
        self._num_idle += 1
        for future in done:
            if not future.done():
                future.set_result(None)
        self._begin(at_s)


async def wait_until(at_s: float) -> None:
    """Wait until a moment, by the clock of the event loop. Return at once if it has passed."""
    left_s = at_s - asyncio.get_running_loop().time()
    if left_s > 0:
        await asyncio.sleep(left_s)
