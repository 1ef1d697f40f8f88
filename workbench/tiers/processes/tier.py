"""One tier at work: answers requests itself where it is confident, and sends the others further.

No request that was accepted stays unanswered: where no further tier answers, the tier's own answer
is given, however unsure. If it has no answer, the sender is notified and gives its own. Connections
are left to `transport` and `next_tier`, computing to `stage_model`, the process to `tier_process`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from workbench.deploy.serving.batching import BatchQueue, BatchTimes, measure_batches
from workbench.tiers.placement.known_queues import Board, Booking, Known
from workbench.tiers.processes.features import Outgoing, restore, smallest
from workbench.tiers.processes.frames import Frame, Kind
from workbench.tiers.processes.machines import Devices, Servers, Turn, wait_until
from workbench.tiers.processes.next_tier import (
    MISSED,
    NOBODY,
    STATUS,
    NextTier,
    NotAnsweredError,
)
from workbench.tiers.processes.scenes import Scenes
from workbench.tiers.processes.stage_model import Result, StageModels
from workbench.tiers.processes.tier_settings import TierSettings
from workbench.tiers.processes.transport import Connection, Listener

_LONGEST_PERIODS = 1.5
"""A period that takes longer counts as this many."""
_BATCH_S = 1.0
"""How long a batch may take, which limits its size on slow machines."""
_EASE = 0.9
_HEARTBEATS_PER_LEVEL = 5
"""Thresholds wait for the effect of their last change."""


class Tier:
    """One tier. It belongs to one event loop."""

    def __init__(self, settings: TierSettings) -> None:
        """Load its stages and measure them.

        Args:
            settings: The settings of the tier.

        Raises:
            ValueError: If a graph is not a stage.
        """
        self.settings = settings
        self.counts: Counter[str] = Counter()
        self._busy_s = 0.0
        self._level = 0
        self._time = OwnTime(settings.heartbeat_s)
        self._seen_s: dict[int, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._outgoing = Outgoing(settings.features, settings.noise)
        identity = settings.known_as()
        heartbeat_s = settings.heartbeat_s if settings.monitoring == "heartbeat" else None
        self._routes = [
            [
                NextTier(
                    lane,
                    identity=identity,
                    heartbeat_s=heartbeat_s,
                    max_bytes=settings.max_bytes,
                    device=self._heard_as(number),
                    on_wrong=lambda reason: self.listener.refused.update([reason]),
                    clock=self._time.now_s,
                )
                for number, lane in enumerate(route.per_lane())
            ]
            for route in settings.routes
        ]
        self._board = None if settings.known is None else Board(settings.known.places)
        self._devices, self._servers = self._machines()
        self.listener = Listener(
            self._serve, identity=identity, accepts=settings.accepts, max_bytes=settings.max_bytes
        )
        self._models = StageModels(settings.stages, threads=settings.threads)
        self._queue = BatchQueue(
            self._models.predict,
            self._measure(),
            max_batch=settings.batch,
            latency_s=_BATCH_S,
            limit_rows=settings.queue,
            on_batch=self._count_batch,
        )
        self._scenes = Scenes(
            settings.num_views,
            settings.aggregate,
            patience_s=settings.patience_s,
            alive=self._alive,
            answer=self._answer_scene,
        )

    async def run(self) -> None:
        """Compute, connect and probe until cancelled."""
        work = [
            self._queue.run(),
            *(lane.run() for lanes in self._routes for lane in lanes),
            self._watch(),
            self._time.run(),
        ]
        tasks = [asyncio.ensure_future(task) for task in work]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            self._queue.close()

    def status(self) -> dict[str, float]:
        """Return what the tier reports of itself, by the names of `STATUS`."""
        further = [lane for lanes in self._routes for lane in lanes]
        num_waiting = self._queue.num_waiting + sum(lane.num_waiting for lane in further)
        busy_s = self._busy_s
        if self.settings.machines is not None:
            machines = self._servers or self._devices
            assert machines is not None
            busy_s = machines.busy_s / self.settings.machines.count
        if self._servers is not None:
            num_waiting += self._servers.num_waiting
        status = {
            **self.counts,
            "now_s": time.monotonic(),
            "busy_s": busy_s,
            "sent_bytes": sum(lane.sent_bytes for lane in further),
            "num_waiting": num_waiting,
            "num_refused": self.listener.refused.total(),
            "num_masked": self._scenes.num_masked,
        }
        return {name: float(status.get(name, 0.0)) for name in STATUS}

    def _heard_as(self, lane: int) -> int:
        """Return the device whose heartbeats a lane sends: each lane is one where views are joined.

        Views of a scene go over different lanes, so what joins them knows which are there.
        """
        if self.settings.machines is None:
            return self.settings.device
        return NOBODY if lane in self.settings.silent_lanes else self.settings.device + lane

    def _machines(self) -> tuple[Devices | None, Servers | None]:
        """Return the machines that this process acts as: devices in the first tier, or servers."""
        machines = self.settings.machines
        if machines is None:
            return None, None
        if self.settings.number == 0:
            return Devices(), None
        return None, Servers(machines.count, machines.batch)

    def _measure(self) -> BatchTimes:
        if not self.settings.stages:
            return BatchTimes(0.0, 0.0)
        example = self._models.example()
        return measure_batches(
            self._models.predict, example, max_batch=self.settings.batch, latency_s=_BATCH_S
        )

    def _count_batch(self, num_rows: int, seconds: float) -> None:
        self._busy_s += seconds

    async def _serve(self, connection: Connection) -> None:
        devices: set[int] = set()
        try:
            while True:
                frame = await connection.receive()
                devices.add(frame.sender)
                self._seen_s[frame.sender] = self._time.now_s()
                if frame.kind is Kind.HEARTBEAT:
                    values = np.array(list(self.status().values()))
                    connection.send(Frame(Kind.ALIVE, frame.request, values))
                elif frame.kind is Kind.REQUEST:
                    task = asyncio.ensure_future(self._reply(connection, frame))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
                await connection.drain()
        finally:
            for device in devices:
                self._seen_s.pop(device, None)
            self._scenes.recount()

    async def _reply(self, connection: Connection, frame: Frame) -> None:
        self.counts["num_requests"] += 1
        try:
            # What measures this tier by itself sends what has been joined.
            if self.settings.num_views and frame.sender != NOBODY:
                answer = await self._scenes.add(frame, restore(frame))
            else:
                answer = await self._answer(frame, restore(frame), early=connection.send)
        except Exception:  # also those of ONNX Runtime, whose errors have no common base class
            answer = Frame(Kind.FAILURE)
        self.counts["num_failed"] += answer.kind is Kind.FAILURE
        with contextlib.suppress(OSError):
            connection.send(replace(answer, request=frame.request))

    async def _answer_scene(self, frame: Frame, values: np.ndarray, mask: np.ndarray) -> Frame:
        return await self._answer(frame, values, mask)

    async def _answer(
        self,
        frame: Frame,
        values: np.ndarray,
        mask: np.ndarray | None = None,
        *,
        early: Callable[[Frame], None] | None = None,
    ) -> Frame:
        """Answer a request here or further on.

        `early` sends what is known of the answer before the request is sent on.

        Raises:
            NotAnsweredError: If neither can be.
            Exception: What computing raises.
        """
        if self.settings.has_own_model:
            frame = replace(frame, stage=max(frame.stage, self._models.first))
        turn = None
        if self._devices is not None:
            turn = Turn(self._devices, frame.sender, asyncio.get_running_loop().time())
        try:
            return await self._answer_in(_Work(frame, values, mask, turn, early))
        finally:
            if turn is not None:
                turn.release()

    async def _answer_in(self, work: _Work) -> Frame:
        """Answer a request, whose device is at its service until it is sent on."""
        frame = work.frame
        further = self._plan(frame)
        # Both mean that the answer could have been better, so it counts as a fallback.
        is_cut_off = bool(self._routes) and further is None
        answer, is_left = await self._answer_whole(work, further)
        if answer is not None:
            return answer
        if not self._models.can_begin(frame.stage):
            raise NotAnsweredError(f"stage {frame.stage} is not computed here")
        if is_left or self._places_whole:
            further = None  # it is computed here until its end
        result = await self._compute(work, frame.stage, work.values, further)
        if not result.is_final and further is not None:
            if work.early is not None and result.groups is not None:
                with contextlib.suppress(OSError):
                    work.early(self._frame(Kind.EARLY, frame, result.groups, result.stage))
            answer, is_left = await self._answer_rest(work, result, further)
            if answer is not None:
                return answer
            if self._models.can_begin(result.stage + 1):
                result = await self._compute(work, result.stage + 1, result.onward, None)
        return self._own_answer(frame, result, is_left=is_left, is_cut_off=is_cut_off)

    async def _answer_whole(
        self, work: _Work, further: NextTier | None
    ) -> tuple[Frame | None, bool]:
        """Return the answer of a further tier to a request, and whether none came.

        There is neither if it is not sent before anything is computed.
        """
        can_begin = self._models.can_begin(work.frame.stage)
        if further is None:
            return None, False
        if can_begin and not self.settings.sends_all:
            return await self._send_whole(work), False
        try:
            return await self._send(further, work, work.values, work.frame.stage), False
        except NotAnsweredError:
            if not can_begin:
                raise
            return None, True

    async def _answer_rest(
        self, work: _Work, result: Result, further: NextTier
    ) -> tuple[Frame | None, bool]:
        """Return the answer of a further tier to the rest of a request, and whether none came.

        There is neither if the rest is expected to end earlier here.
        """
        booking = None
        # Only now is it known that the request does not leave at the first exit.
        if self._board is not None:
            chosen = self._book(work, self._known.stay_s + work.now_s())
            if chosen is None:
                return None, False
            booking, further = chosen
        try:
            answer = await self._send(further, work, result.onward, result.stage + 1)
        except NotAnsweredError:
            return None, True
        self._correct(booking)
        return answer, False

    async def _send_whole(self, work: _Work) -> Frame | None:
        """Send a request before anything is computed, if it is expected to end earlier so."""
        if self._board is None or not self._places_whole or self._devices is None:
            return None
        assert work.turn is not None
        mean_s = self._known.stay_s
        stay_s = self._devices.lines[work.frame.sender].free_s(work.now_s(), mean_s) + mean_s
        chosen = self._book(work, stay_s)
        if chosen is None:
            work.turn.join()
            return None
        booking, further = chosen
        try:
            answer = await self._send(further, work, work.values, work.frame.stage)
        except NotAnsweredError:
            return None
        self._correct(booking)
        return answer

    @property
    def _known(self) -> Known:
        assert self.settings.known is not None
        return self.settings.known

    @property
    def _places_whole(self) -> bool:
        return self.settings.known is not None and self.settings.known.sends_inputs

    def _book(self, work: _Work, stay_s: float) -> tuple[Booking, NextTier] | None:
        """Return where a request is expected to end first, or None for here."""
        assert self._board is not None
        device, lanes = self._device_of(work.frame), {}
        for number, place in enumerate(self._board.places):
            for route in self._routes:
                lane = route[device % len(route)]
                if lane.route.name == f"tier-{place.tier}" and lane.is_alive:
                    lanes[number] = lane
        lost = set(range(len(self._board.places))) - lanes.keys()
        chosen = self._board.best(device, work.now_s(), stay_s=stay_s, lost=lost)
        if chosen is None:
            return None
        return self._board.book(chosen, device, work.now_s()), lanes[chosen]

    def _correct(self, booking: Booking | None) -> None:
        """Note that a request has been answered."""
        if booking is not None and self._board is not None:
            back_s = self._board.places[booking.place].back_s
            self._board.correct(booking, asyncio.get_running_loop().time() - back_s)

    def _own_answer(
        self, frame: Frame, result: Result, *, is_left: bool, is_cut_off: bool
    ) -> Frame:
        """Return the answer of this tier to a request.

        Args:
            frame: The request.
            result: What was computed here.
            is_left: Whether a further tier was asked and did not answer.
            is_cut_off: Whether no further tier was there to ask.
        """
        if result.probabilities is None:
            raise NotAnsweredError(f"stage {result.stage} has no exit")
        self.counts["num_answered"] += 1
        self.counts["num_fallbacks"] += is_left or (is_cut_off and self._sends(result))
        kind = Kind.ANSWER
        if (is_left or is_cut_off) and not result.is_final:
            kind = Kind.FALLBACK
        return self._frame(kind, frame, result.probabilities, result.stage)

    def _frame(self, kind: Kind, request: Frame, values: np.ndarray, stage: int) -> Frame:
        return Frame(kind, request.request, values, self.settings.number, stage)

    def _sends(self, result: Result) -> bool:
        """Return whether a request that ended here would be sent if there were a further tier."""
        keeps = self.settings.keeps
        return (
            self.settings.sends_all
            or not result.is_final
            or (keeps is not None and result.stage > keeps)
        )

    async def _compute(
        self, work: _Work, stage: int, values: np.ndarray, further: NextTier | None
    ) -> Result:
        last = None if further is None else self.settings.keeps
        arrived_s = asyncio.get_running_loop().time()
        if work.turn is not None:
            await work.turn.take()
        (result,) = await self._queue.answer([(stage, values, work.mask, self._level, last)])
        assert isinstance(result, Result)
        machines = self.settings.machines
        if machines is not None and work.frame.sender != NOBODY:
            alone_s, row_s = machines.work_s(stage, result.stage)
            if work.turn is not None:
                await work.turn.spend(alone_s)
            elif self._servers is not None:
                await self._servers.compute(alone_s, row_s, arrived_s)
        return result

    def _device_of(self, frame: Frame) -> int:
        """Return the number of the device that has a request."""
        is_one = self.settings.number == 0 and self.settings.machines is None
        return self.settings.device if is_one else frame.sender

    async def _send(self, further: NextTier, work: _Work, values: np.ndarray, stage: int) -> Frame:
        """Send a request further.

        Raises:
            NotAnsweredError: If it is not answered there.
        """
        if work.turn is not None:
            work.turn.release()
        # There it would only wait until its timeout, and then be answered here after all.
        if further.num_waiting >= self.settings.queue:
            raise NotAnsweredError(f"the queue of {further.route.name} is full")
        self.counts["num_sent"] += 1
        if (machines := self.settings.machines) is not None:
            send_s = machines.send_s if stage else machines.send_raw_s
            await wait_until(work.now_s() + send_s)
        values = smallest(values, self.settings.sent_dtypes[stage : stage + 1])
        request = self._outgoing.request(
            work.frame.request, values, sender=self._device_of(work.frame), stage=stage
        )
        return await further.request(request, timeout_s=self.settings.timeout_s)

    def _plan(self, frame: Frame) -> NextTier | None:
        """Return where a request is sent while the present tiers are alive.

        None to answer it here.
        """
        device = self._device_of(frame)
        alive = [
            lanes[device % len(lanes)]
            for lanes in self._routes
            if lanes[device % len(lanes)].is_alive
        ]
        return alive[0] if alive else None

    def _alive(self) -> set[int]:
        """Return the views whose devices are alive, or all if nothing tells."""
        num_views = self.settings.num_views
        if self.settings.monitoring != "heartbeat":
            return set(range(num_views))
        limit_s = self._time.now_s() - MISSED * self.settings.heartbeat_s
        return {
            device % num_views
            for device, seen_s in self._seen_s.items()
            if num_views and device != NOBODY and seen_s >= limit_s
        }

    async def _watch(self) -> None:
        """Follow the load of the next tier, and which devices are alive."""
        most = max((len(stage.eased) for stage in self.settings.stages), default=0)
        for number in itertools.count(1):
            await asyncio.sleep(self.settings.heartbeat_s)
            self._scenes.recount()
            if number % _HEARTBEATS_PER_LEVEL:
                continue
            further = self._plan(Frame(Kind.HEARTBEAT))
            load = 0.0 if further is None else further.load
            # Between the two limits nothing changes, so that the level does not swing.
            if load > self.settings.busy:
                self._level = min(self._level + 1, most)
            elif load < _EASE * self.settings.busy:
                self._level = max(self._level - 1, 0)


@dataclass(frozen=True)
class _Work:
    """A request that a tier works on.

    Attributes:
        frame: The request.
        values: What it holds.
        mask: Which of several devices see it, or None if only one does.
        turn: Its turn at its device, or None if this process is one machine or one of servers.
        early: Sends what is known of the answer before the request is sent on.
    """

    frame: Frame
    values: np.ndarray
    mask: np.ndarray | None
    turn: Turn | None
    early: Callable[[Frame], None] | None

    def now_s(self) -> float:
        """Return when the device ends the last work for the request it has begun, in seconds."""
        return asyncio.get_running_loop().time() if self.turn is None else self.turn.at_s


class OwnTime:
    """A clock that stops while its event loop is blocked, so that others do not seem silent.

    A process that is frozen, or waits for a processor, reads what others sent meanwhile only after
    it continues. By the time of the machine they would have been silent since the pause began.

    Example:
        >>> moments = iter([0.0, 0.1, 0.2, 5.2, 5.2, 5.2])
        >>> clock = OwnTime(0.1, clock=lambda: next(moments))
        >>> clock.tick()
        >>> clock.tick()
        >>> clock.tick()  # 5 s later
        >>> round(clock.now_s(), 2)
        0.35
    """

    def __init__(self, period_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Start at 0.

        Args:
            period_s: How often it reads the time by itself. Longer pauses are skipped.
            clock: The time of the machine, in seconds.
        """
        self._period_s, self._clock = period_s, clock
        self._until_s, self._ticked_s = 0.0, clock()

    def now_s(self) -> float:
        """Return the seconds that count."""
        return self._until_s + min(
            self._clock() - self._ticked_s, _LONGEST_PERIODS * self._period_s
        )

    def tick(self) -> None:
        """Count the time since the last tick, or as much of it as counts."""
        self._until_s, self._ticked_s = self.now_s(), self._clock()

    async def run(self) -> None:
        """Tick once a period until cancelled."""
        while True:
            self.tick()
            await asyncio.sleep(self._period_s)
