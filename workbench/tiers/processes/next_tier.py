"""A further tier as the tier before it sees it.

One connection, answers by number, and whether it is alive.

Every request that is sent ends: with an answer, with a refusal, or with an error at the latest
after its timeout. `tier` decides what follows.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable
from dataclasses import replace

from workbench.tiers.processes.frames import Frame, FrameError, Kind
from workbench.tiers.processes.tier_settings import Route
from workbench.tiers.processes.transport import Connection, Identity, connect

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 1.0
MISSED = 3
"""A tier is given up after this many heartbeats without an answer."""
_LOAD_MEMORY = 0.5
STATUS = (
    "now_s",
    "busy_s",
    "num_requests",
    "num_answered",
    "num_sent",
    "num_fallbacks",
    "num_failed",
    "sent_bytes",
    "num_waiting",
    "num_refused",
    "num_masked",
)
"""The counts since its start that a tier reports when it is probed, in this order."""
NOBODY = 2**16 - 1
"""The sender of a heartbeat that is not a device."""
_FIRST_FREE_NUMBER = 2**63


class NotAnsweredError(Exception):
    """The further tier did not answer: it is gone, silent or late, or it rejected the request."""


class NextTier:
    """A further tier."""

    def __init__(
        self,
        route: Route,
        *,
        identity: Identity | None,
        heartbeat_s: float | None,
        max_bytes: int,
        device: int = NOBODY,
        on_wrong: Callable[[str], None] = lambda reason: None,
        on_early: Callable[[Frame], None] = lambda frame: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Describe the tier. `run` connects to it.

        Args:
            route: Which one.
            identity: Who this side is, or None for an unencrypted connection.
            heartbeat_s: How often it is probed, or None for never, so that only a timeout shows its
                silence.
            max_bytes: How large a tensor of an answer may be.
            device: The number of this device, by which the other side knows that it is alive.
            on_wrong: Receives the reason where its certificate or one of its frames is rejected.
            on_early: Receives what it answers before the answer.
            clock: The time, in seconds, by which it is silent.
        """
        self.route = route
        self._identity, self._heartbeat_s, self._max_bytes = identity, heartbeat_s, max_bytes
        self._device, self._on_wrong, self._clock = device, on_wrong, clock
        self._on_early = on_early
        self._connection: Connection | None = None
        self._waiting: dict[int, asyncio.Future[Frame]] = {}
        self._numbers = itertools.count(_FIRST_FREE_NUMBER)
        self._seen_s = 0.0
        self._status: dict[str, float] | None = None
        self.load = 0.0
        """Share of the time that it computes, of late, or 0 if it is not probed."""
        self.sent_bytes = 0
        """Bytes of all frames of requests that were sent."""

    @property
    def is_alive(self) -> bool:
        """Whether there is a connection, and it answered lately if it is probed."""
        if self._connection is None:
            return False
        if self._heartbeat_s is None:
            return True
        return self._clock() - self._seen_s < MISSED * self._heartbeat_s

    @property
    def num_waiting(self) -> int:
        """Number of requests that it has not answered yet."""
        return len(self._waiting)

    async def request(self, frame: Frame, *, timeout_s: float) -> Frame:
        """Send a request and return its answer.

        Args:
            frame: The request. Its answer has the same number.
            timeout_s: How long the answer is waited for.

        Raises:
            NotAnsweredError: If it is not answered.
        """
        connection = self._connection
        if connection is None:
            raise NotAnsweredError(f"{self.route.name} cannot be reached")
        # The number is that of a scene where several devices see it; of strangers, two may be the
        # same.
        number = frame.request if frame.request not in self._waiting else next(self._numbers)
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Frame] = loop.create_future()
        self._waiting[number] = answered
        # Unlike `asyncio.wait_for`, a separate timer costs no further turn of the loop for each
        # answer.
        timer = loop.call_later(timeout_s, _give_up, answered)
        before = connection.sent_bytes
        try:
            connection.send(replace(frame, request=number))
            self.sent_bytes += connection.sent_bytes - before
            answer = await answered
        except asyncio.TimeoutError as error:
            raise NotAnsweredError(
                f"{self.route.name} did not answer in {timeout_s:g} s"
            ) from error
        except OSError as error:
            raise NotAnsweredError(f"{self.route.name}: {error}") from error
        finally:
            timer.cancel()
            self._waiting.pop(number, None)
        if answer.kind not in (Kind.ANSWER, Kind.FALLBACK):
            raise NotAnsweredError(f"{self.route.name} has rejected the request")
        return replace(answer, request=frame.request)

    async def run(self) -> None:
        """Keep the connection until cancelled. A lost one is made again."""
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                self._connection = await connect(
                    self.route.host,
                    self.route.port,
                    identity=self._identity,
                    name=self.route.name,
                    max_bytes=self._max_bytes,
                )
                self._seen_s, pause_s = self._clock(), _FIRST_PAUSE_S
                await self._hold(self._connection)
            except FrameError as error:
                self._on_wrong(error.reason)
            except OSError as error:
                if "CERTIFICATE" in str(error):
                    self._on_wrong("certificate")
            except asyncio.IncompleteReadError:
                pass  # it has ended
            finally:
                self._lose()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _hold(self, connection: Connection) -> None:
        reading = asyncio.ensure_future(self._read(connection))
        probing = asyncio.ensure_future(self._probe(connection))
        try:
            await asyncio.wait({reading, probing}, return_when=asyncio.FIRST_COMPLETED)
            for future in (reading, probing):
                if future.done():
                    future.result()
        finally:
            for future in (reading, probing):
                future.cancel()
            with contextlib.suppress(Exception):
                await asyncio.gather(reading, probing, return_exceptions=True)

    async def _read(self, connection: Connection) -> None:
        while True:
            frame = await connection.receive()
            self._seen_s = self._clock()
            if frame.kind is Kind.ALIVE:
                self._note_load(frame)
            elif frame.kind is Kind.EARLY:
                self._on_early(frame)
            elif (answered := self._waiting.get(frame.request)) is not None and not answered.done():
                answered.set_result(frame)

    async def _probe(self, connection: Connection) -> None:
        if self._heartbeat_s is None:
            await asyncio.Event().wait()
        while self._heartbeat_s is not None:
            connection.send(Frame(Kind.HEARTBEAT, sender=self._device))
            await asyncio.sleep(self._heartbeat_s)
            if not self.is_alive:
                return  # silent: the connection is given up, and its requests end

    def _note_load(self, frame: Frame) -> None:
        if frame.tensor.shape != (len(STATUS),):
            return
        status: dict[str, float] = dict(zip(STATUS, frame.tensor.tolist(), strict=True))
        before, self._status = self._status, status
        if before is None or status["now_s"] <= before["now_s"]:
            return
        busy_s = status["busy_s"] - before["busy_s"]
        self.load += (busy_s / (status["now_s"] - before["now_s"]) - self.load) * _LOAD_MEMORY

    def _lose(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection, self._status, self.load = None, None, 0.0
        for answered in self._waiting.values():
            if not answered.done():
                answered.set_exception(ConnectionError("the connection was lost"))


def _give_up(answered: asyncio.Future[Frame]) -> None:
    if not answered.done():
        answered.set_exception(asyncio.TimeoutError())
