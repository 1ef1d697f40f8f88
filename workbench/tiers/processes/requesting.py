"""Send samples to the first tier as requests at given times, and collect the results."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.tiers.processes.frames import Frame, Kind
from workbench.tiers.processes.next_tier import NOBODY, STATUS, NextTier, NotAnsweredError
from workbench.tiers.processes.tier_settings import Route
from workbench.tiers.processes.transport import Connection, Identity, connect

SOURCE = "source"
"""The name in the certificate of what sends the samples."""
_CONNECT_S = 10.0

OnStatus = Callable[[list[dict[str, float]]], bool]
"""Receives the reports of each tier, and returns whether it wants more."""


@dataclass(frozen=True)
class Reply:
    """What came of a request.

    Attributes:
        sample: The number of the sample.
        sent_s: When it was sent, in seconds from the start.
        took_s: Until its answer came, or it was given up.
        probabilities: The answer, or None if there was none.
        tier: The number of the tier that answered, or -1 for none.
        stage: The number of the stage that answered, or -1 for none.
        groups: The probabilities of groups of classes that came before the answer, or None if none
            did.
        groups_s: Until they came.
    """

    sample: int
    sent_s: float
    took_s: float
    probabilities: np.ndarray | None
    tier: int = -1
    stage: int = -1
    groups: np.ndarray | None = None
    groups_s: float = 0.0


async def send_requests(
    devices: Sequence[Route],
    samples: np.ndarray,
    moments_s: Sequence[float],
    *,
    identity: Identity | None,
    timeout_s: float,
    is_scene: bool = False,
    patience_s: float = 1.0,
    senders: Sequence[int] = (0,),
    missing: Collection[int] = (),
    first_number: int = 0,
    stage: int = 0,
) -> list[Reply]:
    """Send requests without waiting for earlier answers, and return their outcomes in order.

    Args:
        devices: The machines of the first tier.
        samples: (samples, ...), which take turns. For a scene, (samples, devices, ...).
        moments_s: When to send each request, in seconds from the start.
        identity: Who sends, or None for unencrypted connections.
        timeout_s: How long an answer is waited for.
        is_scene: Whether all devices see each sample. The answer of a further tier counts, which
            has joined their views. Without one, the most confident device answers.
        senders: The number of the device that has each request, which take turns. Machines that a
            process acts as do not compute what `NOBODY` sends. For a scene, it is the number of the
            first device that sees it.
        patience_s: How long to wait for another answer after that of a device, as long as a tier
            waits for the next one.
        missing: The devices that do not see the scenes, by their places.
        first_number: The number of the first request. A tier that joins views knows scenes by it.
        stage: The stage that takes the samples.

    Raises:
        OSError: If a device cannot be reached at the start.
    """
    early: dict[int, tuple[float, np.ndarray]] = {}

    def note(frame: Frame) -> None:
        early.setdefault(frame.request, (loop.time(), frame.tensor))

    links = [
        NextTier(device, identity=identity, heartbeat_s=None, max_bytes=2**24, on_early=note)
        for device in devices
    ]
    running = [asyncio.ensure_future(link.run()) for link in links]
    loop = asyncio.get_running_loop()
    try:
        await asyncio.wait_for(_connected(links), _CONNECT_S)
        began_s = loop.time()

        async def ask(number: int) -> Reply:
            sample = number % len(samples)
            await asyncio.sleep(began_s + moments_s[number] - loop.time())
            # Not the planned moment: a late timer of this process is no delay of the tiers.
            sent_s = loop.time()
            if is_scene:
                first = senders[number % len(senders)]
                requests = [
                    link.request(
                        Frame(Kind.REQUEST, first_number + number, view, first + place, stage),
                        timeout_s=timeout_s,
                    )
                    for place, (link, view) in enumerate(zip(links, samples[sample], strict=True))
                    if place not in missing
                ]
                answer = await _first(requests, patience_s)
            else:
                sender = senders[number % len(senders)]
                request = Frame(Kind.REQUEST, first_number + number, samples[sample], sender, stage)
                answer = await _answer_of(links[number % len(links)], request, timeout_s)
            took_s = loop.time() - sent_s
            if answer is None:
                return Reply(sample, sent_s - began_s, took_s, None)
            at_s, groups = early.get(first_number + number, (sent_s, None))
            return Reply(
                sample=sample,
                sent_s=sent_s - began_s,
                took_s=took_s,
                probabilities=answer.tensor,
                tier=answer.sender,
                stage=answer.stage,
                groups=groups,
                groups_s=at_s - sent_s,
            )

        return list(await asyncio.gather(*(ask(number) for number in range(len(moments_s)))))
    except asyncio.TimeoutError as error:
        raise ConnectionError(f"{devices[0].name} cannot be reached") from error
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _answer_of(link: NextTier, request: Frame, timeout_s: float) -> Frame | None:
    try:
        return await link.request(request, timeout_s=timeout_s)
    except NotAnsweredError:
        return None


async def _first(requests: Sequence[Coroutine[Any, Any, Frame]], patience_s: float) -> Frame | None:
    """Return the answer to a scene of several requests, or None if there is none."""
    tasks = {asyncio.ensure_future(task) for task in requests}
    running, alone = tasks, None
    until_s = math.inf
    loop = asyncio.get_running_loop()
    try:
        while running and (left_s := until_s - loop.time()) > 0:
            done, running = await asyncio.wait(
                running,
                timeout=None if alone is None else left_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            answers = [
                task.result() for task in done if not isinstance(task.exception(), NotAnsweredError)
            ]
            for answer in answers:
                if answer.kind is Kind.ANSWER and answer.sender:
                    return answer
            # Another device may still reach the next tier, whose answer is better.
            if alone is None and answers:
                until_s = loop.time() + patience_s
            given = answers if alone is None else [alone, *answers]
            alone = max(given, key=lambda answer: float(answer.tensor.max()), default=None)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return alone


async def _connected(links: Sequence[NextTier]) -> None:
    while not all(link.is_alive for link in links):
        await asyncio.sleep(0.005)


async def measure_hops_s(
    route: Route | None, moments_s: Sequence[float], *, identity: Identity | None
) -> list[float]:
    """Return the round-trip times of empty frames to a tier, until its connection ends.

    Args:
        route: The tier, or None for none, which takes no times.
        moments_s: When to send each frame, in seconds from the start. It is sent later if the one
            before has no answer yet.
        identity: Who measures, or None for an unencrypted connection.

    Raises:
        OSError: If it cannot be reached at the start.
    """
    if route is None:
        return []
    connection = await connect(route.host, route.port, identity=identity, name=route.name)
    loop = asyncio.get_running_loop()
    start_s, times_s = loop.time(), []
    try:
        for moment_s in moments_s:
            await asyncio.sleep(start_s + moment_s - loop.time())
            began_s = loop.time()
            connection.send(Frame(Kind.HEARTBEAT, sender=NOBODY))
            await _receive(connection)
            times_s.append(loop.time() - began_s)
    except OSError:
        return times_s
    finally:
        connection.close()
    return times_s


async def read_status(route: Route, *, identity: Identity | None) -> np.ndarray:
    """Return what a tier reports of itself, in the order of `tier.STATUS`.

    Args:
        route: The tier.
        identity: Who reads it, or None for an unencrypted connection.

    Raises:
        OSError: If it cannot be reached.
    """
    connection = await connect(route.host, route.port, identity=identity, name=route.name)
    try:
        connection.send(Frame(Kind.HEARTBEAT, sender=NOBODY))
        return (await _receive(connection)).tensor
    finally:
        connection.close()


async def follow_status(
    routes: Sequence[Route], on_status: OnStatus, *, identity: Identity | None, period_s: float
) -> None:
    """Pass on the status of tiers, by the names of `STATUS`, until the receiver has enough.

    Args:
        routes: The tiers.
        on_status: Receives it.
        identity: Who reads it, or None for unencrypted connections.
        period_s: How often.

    Raises:
        OSError: If one cannot be reached.
    """
    connections = [
        await connect(route.host, route.port, identity=identity, name=route.name)
        for route in routes
    ]
    try:
        while True:
            for connection in connections:
                connection.send(Frame(Kind.HEARTBEAT, sender=NOBODY))
            frames = [await _receive(connection) for connection in connections]
            if not on_status(
                [dict(zip(STATUS, frame.tensor.tolist(), strict=True)) for frame in frames]
            ):
                return
            await asyncio.sleep(period_s)
    finally:
        for connection in connections:
            connection.close()


async def _receive(connection: Connection) -> Frame:
    """Return the next frame.

    Unlike `asyncio.wait_for`, this never takes a cancellation for an answer.

    Raises:
        OSError: If none comes in time, or the connection ends.
    """
    receiving = asyncio.ensure_future(connection.receive())
    try:
        await asyncio.wait({receiving}, timeout=_CONNECT_S)
        if not receiving.done():
            raise TimeoutError(f"no answer within {_CONNECT_S:g} s")
        return receiving.result()
    except asyncio.IncompleteReadError as error:
        raise ConnectionError("the connection has ended") from error
    finally:
        receiving.cancel()
