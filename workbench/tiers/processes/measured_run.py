"""Tiers started on this machine, samples sent through them as requests, and what was measured.

One process acts as all machines of a tier. Links are slowed down by a relay. Everything that was
started is ended by its process id, whatever happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from workbench.deploy.stages import read_evidence
from workbench.foundation.errors import ArgumentError, RunError
from workbench.tiers.placement.assembly import stages_of
from workbench.tiers.placement.class_groups import Groups, group_numbers
from workbench.tiers.placement.system import System
from workbench.tiers.placement.tiers_file import TiersFile
from workbench.tiers.processes.certificates import Authority
from workbench.tiers.processes.next_tier import NOBODY, STATUS
from workbench.tiers.processes.relay import Link as ShapedLink
from workbench.tiers.processes.requesting import (
    SOURCE,
    OnStatus,
    Reply,
    follow_status,
    measure_hops_s,
    read_status,
    send_requests,
)
from workbench.tiers.processes.spreading import (
    destinations,
    empty_frame_s,
    name_of,
    num_lanes,
    route_to,
    settings_of,
    shaped,
)
from workbench.tiers.processes.starting import (
    StartedProcess,
    processor_wait_s,
    start_link,
    start_tier,
)
from workbench.tiers.processes.tier_settings import Route
from workbench.tiers.processes.transport import Identity

MIN_REQUESTS = 20
"""Fewer say nothing of a 95th percentile."""
_NUM_WARM_UP = 20
_PROBE_GAP_S, _MIN_ALONE_GAP_S, _MIN_PROBES = 0.2, 0.05, 20
"""A process that computes seldom wakes up slowly.

The last tier answers as often as the first, up to this.
"""
_NUM_LINK_PROBES, _LINK_PROBE_GAP_S = 40, 0.01
_SETTLE_S = 0.3
_REQUEST_TIMEOUT_S = 60.0
_NUM_RESAMPLED = 400
_STATUS_PERIOD_S = 0.25

_Steps = tuple[list[Reply], list[Reply], list[float], list[float]]


@dataclass(frozen=True)
class Probes:
    """Times of single steps, measured under the same load, while requests were sent.

    Attributes:
        hops_s: Times of empty frames from this process to the first tier and back.
        alone: The last stage and the time, in seconds, of each of some requests that were sent
            straight to the last tier, over no link.
        links_s: How much longer than the links take by themselves empty frames took over all of
            them to the last tier and back, or none if the scheduler uses no link.
        samples: The number of the sample of each request, or none if all samples are expected
            equally often.
        processor_wait_s: For how long processes waited for a processor of this machine, for each
            request.
    """

    hops_s: tuple[float, ...]
    alone: tuple[tuple[int, float], ...]
    links_s: tuple[float, ...] = ()
    samples: tuple[int, ...] = ()
    processor_wait_s: float = 0.0


@dataclass(frozen=True)
class GroupsMeasured:
    """What came of answers by groups of classes.

    Attributes:
        accuracy: Share of the requests whose final answer is in the right group.
        early_share: Share of the requests whose group was answered before.
        early_accuracy: Share of these in which it was right, or None without any.
        early_mean_s: Mean time until it came, or None without any.
    """

    accuracy: float
    early_share: float
    early_accuracy: float | None
    early_mean_s: float | None


@dataclass(frozen=True)
class Measured:
    """What was measured with one scheduler.

    Attributes:
        scheduler: The scheduler.
        accuracy: Share of the requests whose answer was right.
        mean_s: Mean time from sending a request to its answer.
        p50_s: Half of the requests were answered within this time.
        p95_s: 95 of 100 were.
        low: Lower end of the interval of `p95_s`, which has it with a probability of 0.95.
        high: Upper end of it.
        bytes_per_sample: Bytes of frames that left the first tier for a request, headers included.
        load: For each tier, the share of the time that its process computed for the requests.
        num_requests: Number of requests.
        num_unanswered: Number of them without an answer.
        num_fallbacks: Number of them that a tier answered itself because the next one did not
            answer.
        answered_by: For each tier, the share of the answers that it gave.
        refused: Connections and frames that a tier refused.
        probes: Measurements in addition to the requests.
        groups: What came of groups of classes, or None if the file has none.
        ended: The processes that ended by themselves, such as `the tier cloud`.
    """

    scheduler: str
    accuracy: float
    mean_s: float
    p50_s: float
    p95_s: float
    low: float
    high: float
    bytes_per_sample: float
    load: dict[str, float]
    num_requests: int
    num_unanswered: int
    num_fallbacks: int
    answered_by: dict[str, float]
    refused: int
    probes: Probes
    groups: GroupsMeasured | None = None
    ended: tuple[str, ...] = ()


@dataclass
class _Running:
    """The processes of one measurement, and how they are reached."""

    file: TiersFile
    folder: Path
    bundle: Path
    scheduler: str
    system: System | None = None
    routes: dict[int, Route] = field(default_factory=dict)
    far: Route | None = None
    """The tier that the first one sends to, as it is reached over links."""
    num_far_links: int = 0
    """How many links are on the way to it."""
    link_s: float | None = None
    """How long the process of a link takes by itself for a byte each way, or None if that was not
    measured yet.
    """
    identity: Identity | None = None
    processes: list[StartedProcess] = field(default_factory=list)

    @property
    def num_views(self) -> int:
        """Number of devices that see each scene."""
        return 1 if self.system is None else self.system.num_views

    @property
    def ended(self) -> tuple[str, ...]:
        """The processes that are gone."""
        return tuple(process.what for process in self.processes if process.has_ended)

    def joined_views(self) -> np.ndarray:
        """Return what the tier that joins views computes with, (1, ...)."""
        stage = stages_of(self.file, self.bundle).stages[1]
        shape = (1, *stage.input_shape)
        return np.random.default_rng(0).normal(size=shape).astype(stage.input_dtype)

    @contextlib.contextmanager
    def started(self, temporary: Path, *, groups: Groups | None) -> Iterator[None]:
        """Run all processes inside the `with` block, the last tier first."""
        names = list(self.file.tiers)
        is_encrypted = self.file.privacy.transport == "mtls"
        if is_encrypted:
            authority = Authority.create()
            for name in (SOURCE, *map(name_of, range(len(names)))):
                authority.issue(name, temporary)
            self.identity = Identity.in_folder(temporary, SOURCE)
        all_settings = settings_of(
            self.file,
            stages_of(self.file, self.bundle),
            read_evidence(self.bundle),
            self.bundle,
            folder=self.folder,
            scheduler=self.scheduler,
            identity=temporary if is_encrypted else None,
            system=self.system,
            groups=groups,
        )
        try:
            for number, settings in reversed(list(enumerate(all_settings))):
                further = self._start_links(number)
                process = start_tier(replace(settings, routes=further), temporary)
                process.what = f"the tier {names[number]}"
                self._wait(process)
                self.routes[number] = Route(settings.name, "127.0.0.1", process.port)
            yield
        finally:
            for process in self.processes:
                process.kill()

    def _start_links(self, number: int) -> tuple[Route, ...]:
        """Start the links from a tier to the tiers it sends to, and return how they are reached.

        There is one process for all links between two tiers: what takes the same link shares it.
        """
        file, folder = self.file, self.folder
        links = list(zip(pairwise(file.tiers), file.links_in_order(), strict=True))
        to = destinations(number, len(file.tiers), self.scheduler, num_views=self.num_views)
        num_sources = num_lanes(self.system, number) if to else 0
        if to and self.link_s is None:
            self.link_s = self._link_s()
        # By the tier to reach and the link that a request takes first: the port that leads there.
        ports = {
            (further, source): self.routes[further].port
            for further in to
            for source in range(num_sources)
        }
        for link in range(max(to, default=0) - 1, number - 1, -1):
            (first, second), given = links[link]
            over = [way for way in ports if way[0] > link]
            lanes = num_lanes(self.system, link)
            ways = [(ports[way], way[1] % lanes) for way in over]
            between = f"{first}-{second}"
            link_s = self.link_s or 0.0
            process = start_link(
                between, shaped(given, folder, ways, field=f"links.{between}", own_s=link_s)
            )
            self._wait(process)
            ports |= dict(zip(over, process.ports, strict=True))
        routes = [
            route_to(further, [ports[further, source] for source in range(num_sources)])
            for further in to
        ]
        if number == 0 and routes:
            self.far, self.num_far_links = routes[0], to[0]
        return tuple(routes)

    def _link_s(self) -> float:
        """Return how long the process of a link takes by itself for a byte each way.

        It is what the fastest frame to the last tier takes longer through a link without delay.
        Others also wait for a processor of this machine.
        """
        last = self.routes[max(self.routes)]
        process = start_link("a free link", ShapedLink(last.host, last.port))
        self._wait(process)
        moments_s = (np.arange(_NUM_LINK_PROBES) * _LINK_PROBE_GAP_S).tolist()

        async def fastest_s() -> list[float]:
            routes = (last, replace(last, port=process.port))
            return [
                min(await measure_hops_s(route, moments_s, identity=self.identity))
                for route in routes
            ]

        direct_s, over_link_s = asyncio.run(fastest_s())
        process.kill()
        self.processes.remove(process)
        return max(0.0, (over_link_s - direct_s) / 2)

    def _wait(self, process: StartedProcess) -> None:
        self.processes.append(process)
        process.wait()


def _unreachable(running: _Running, why: object) -> RunError:
    ended = f"{' and '.join(running.ended)} ended while it was measured" if running.ended else ""
    return RunError(ended or f"the tiers cannot be reached: {why}", next_step="Try again.")


def poisson_moments_s(rate_per_s: float, time_s: float, *, seed: int = 0) -> list[float]:
    """Return moments at which requests arrive, in seconds.

    Args:
        rate_per_s: Requests per second.
        time_s: For how long.
        seed: Seed of the draws.

    Raises:
        ArgumentError: If these are too few to measure anything.
    """
    gaps_s = np.random.default_rng(seed).exponential(
        1 / rate_per_s, int(2 * rate_per_s * time_s) + 50
    )
    moments_s = np.cumsum(gaps_s)
    kept_s = moments_s[moments_s < time_s].tolist()
    if len(kept_s) < MIN_REQUESTS:
        raise ArgumentError(
            f"{rate_per_s:g} requests per second give {len(kept_s)} in {time_s:g} s, which is too"
            " few",
            field="--duration",
            allowed=f"at least {MIN_REQUESTS} requests",
            next_step="Measure for longer, or with more requests: --duration 60s --rate 10.",
        )
    return kept_s


def measure_tiers(
    file: TiersFile,
    folder: Path,
    bundle: Path,
    samples: np.ndarray,
    targets: np.ndarray,
    *,
    scheduler: str,
    moments_s: Sequence[float],
    on_status: OnStatus | None = None,
    system: System | None = None,
    groups: Groups | None = None,
) -> Measured:
    """Run tiers on this machine and measure them.

    Args:
        file: The file of tiers.
        folder: The folder of the file, which its paths are relative to.
        bundle: The bundle whose stages are spread.
        samples: (samples, ...) of the validation split, as the first stage takes them.
        targets: (samples,): the right classes.
        scheduler: The scheduler.
        moments_s: When requests are sent, in seconds.
        on_status: Receives, four times a second while requests are sent, what each tier reports of
            itself, by the names of `STATUS`. The measurement ends if it returns False.
        system: What runs, with the machines of each tier: their processes take as long as these
            would. None if this machine is the only one of each tier.
        groups: Groups of classes that the first exit answers early.

    Raises:
        ExperimentError: If the file cannot be carried out.
        RunError: If a process does not start, nothing is answered, or `on_status` has ended it.
    """
    with tempfile.TemporaryDirectory(prefix="workbench-tiers-") as temporary:
        running = _Running(file, folder, bundle, scheduler, system)
        with running.started(Path(temporary), groups=groups):
            try:
                results = asyncio.run(_measure(running, samples, moments_s, on_status))
            except OSError as error:
                raise _unreachable(running, error) from error
            ended = running.ended
            if not results[2].alone or not results[2].hops_s:
                raise _unreachable(running, "too early to measure anything")
        summary = _summary(*results, file=file, scheduler=scheduler, targets=targets)
        by_group = None if groups is None else _by_group(results[0], targets, groups)
        return replace(summary, ended=ended, groups=by_group)


async def _measure(
    running: _Running,
    samples: np.ndarray,
    moments_s: Sequence[float],
    on_status: OnStatus | None,
) -> tuple[list[Reply], list[dict[str, float]], Probes]:
    """Return the results of requests, the reports of tiers, and the times of single steps."""
    tiers = [running.routes[number] for number in sorted(running.routes)]
    warm_up = np.linspace(0.0, 1.0, _NUM_WARM_UP).tolist()
    await asyncio.sleep(_SETTLE_S)  # the first tier connects to the others meanwhile

    num_views = running.num_views

    async def send(
        sent_s: Sequence[float], senders: Sequence[int] = (NOBODY,), *, first_number: int = 0
    ) -> list[Reply]:
        return await send_requests(
            [tiers[0]] * num_views,
            samples,
            sent_s,
            identity=running.identity,
            timeout_s=_REQUEST_TIMEOUT_S,
            senders=senders,
            is_scene=num_views > 1,
            patience_s=running.file.place.timeout,
            missing=running.file.place.missing_views,
            first_number=first_number,
        )

    async def send_to_last(sent_s: Sequence[float]) -> list[Reply]:
        return await send_requests(
            [tiers[-1]],
            samples if num_views == 1 else running.joined_views(),
            sent_s,
            identity=running.identity,
            timeout_s=_REQUEST_TIMEOUT_S,
            senders=(NOBODY,),
            stage=0 if num_views == 1 else 1,
        )

    devices = [0]
    if running.system is not None:
        drawn = np.random.default_rng(0).integers(running.system.counts[0], size=len(moments_s))
        devices = (num_views * (drawn % (NOBODY // num_views))).tolist()
    first_devices = (NOBODY,) if num_views == 1 else devices
    await asyncio.gather(send(warm_up, first_devices), send_to_last(warm_up))
    before = [await read_status(tier, identity=running.identity) for tier in tiers]
    num_probes = max(_MIN_PROBES, int(moments_s[-1] / _PROBE_GAP_S))
    num_alone = max(num_probes, min(len(moments_s), int(moments_s[-1] / _MIN_ALONE_GAP_S)))
    # At random moments, as requests come: what comes at regular ones finds processes idle more
    # often.
    drawn_s = np.random.default_rng(0).uniform(0.0, moments_s[-1], num_alone + 2 * num_probes)
    alone_s, near_s, far_s = (
        np.sort(values).tolist()
        for values in np.split(drawn_s, [num_alone, num_alone + num_probes])
    )
    waited_s = _processor_wait_s(running)
    steps = asyncio.gather(
        send(moments_s, devices, first_number=len(warm_up)),
        send_to_last(alone_s),
        measure_hops_s(tiers[0], near_s, identity=running.identity),
        measure_hops_s(running.far, far_s, identity=running.identity),
    )
    if on_status is not None:
        steps = _watched(steps, tiers, running.identity, on_status)
    replies, alone, hops_s, over_links_s = await steps
    waited_s = _processor_wait_s(running) - waited_s
    after = [
        await _status_after(tier, early, running) for tier, early in zip(tiers, before, strict=True)
    ]
    changes = [(late - early).tolist() for early, late in zip(before, after, strict=True)]
    reports: list[dict[str, float]] = [dict(zip(STATUS, values, strict=True)) for values in changes]
    last = reports[-1]
    if running.system is None:  # less that of the probes, which machines that are acted do not do
        last["busy_s"] *= 1.0 - min(1.0, num_alone / max(1.0, last["num_requests"]))
    answered = tuple(
        (reply.stage, reply.took_s) for reply in alone if reply.probabilities is not None
    )
    empty_s = empty_frame_s(running.file, running.folder, running.num_far_links)
    links_s = tuple(hop_s - empty_s for hop_s in over_links_s)
    probes = Probes(
        tuple(hops_s),
        answered,
        links_s,
        tuple(reply.sample for reply in replies),
        waited_s / len(moments_s),
    )
    return replies, reports, probes


async def _status_after(tier: Route, early: np.ndarray, running: _Running) -> np.ndarray:
    """Return a tier's report of itself, or its earlier one if it has ended."""
    try:
        return await read_status(tier, identity=running.identity)
    except OSError:
        if not running.ended:
            raise
        return early


def _processor_wait_s(running: _Running) -> float:
    """Return for how long this process and those that it started have waited for a processor."""
    return sum(
        map(processor_wait_s, [os.getpid(), *(process.pid for process in running.processes)])
    )


async def _watched(
    steps: asyncio.Future[_Steps],
    tiers: Sequence[Route],
    identity: Identity | None,
    on_status: OnStatus,
) -> _Steps:
    """Return what the steps return, and report the status of the tiers meanwhile."""
    following = asyncio.ensure_future(
        follow_status(tiers, on_status, identity=identity, period_s=_STATUS_PERIOD_S)
    )
    try:
        await asyncio.wait({steps, following}, return_when=asyncio.FIRST_COMPLETED)
        if not steps.done() and not isinstance(following.exception(), OSError):  # a tier has ended
            following.result()
            raise RunError("the measurement was stopped")
        return await steps
    finally:
        for future in (steps, following):
            future.cancel()
        await asyncio.gather(steps, following, return_exceptions=True)


def _by_group(replies: Sequence[Reply], targets: np.ndarray, groups: Groups) -> GroupsMeasured:
    numbers = group_numbers(groups.classes)
    final = [
        reply.probabilities is not None
        and numbers[reply.probabilities.argmax()] == numbers[targets[reply.sample]]
        for reply in replies
    ]
    early = [reply for reply in replies if reply.groups is not None]
    right = [
        reply.groups.argmax() == numbers[targets[reply.sample]]
        for reply in early
        if reply.groups is not None
    ]
    times_s = [reply.groups_s for reply in early]
    return GroupsMeasured(
        float(np.mean(final)),
        len(early) / len(replies),
        float(np.mean(right)) if early else None,
        float(np.mean(times_s)) if early else None,
    )


def _summary(
    replies: Sequence[Reply],
    reports: Sequence[dict[str, float]],
    probes: Probes,
    *,
    file: TiersFile,
    scheduler: str,
    targets: np.ndarray,
) -> Measured:
    answered = [reply for reply in replies if reply.probabilities is not None]
    if not answered:
        raise RunError("no request was answered", next_step="Try `--scheduler end` first.")
    times_s = np.array([reply.took_s for reply in answered])
    right = sum(
        reply.probabilities is not None
        and int(reply.probabilities.argmax()) == int(targets[reply.sample])
        for reply in answered
    )
    drawn = np.random.default_rng(0).choice(times_s, (_NUM_RESAMPLED, len(times_s)))
    low, high = np.quantile(np.quantile(drawn, 0.95, axis=1), [0.025, 0.975])
    return Measured(
        scheduler=scheduler,
        accuracy=right / len(replies),
        mean_s=float(times_s.mean()),
        p50_s=float(np.quantile(times_s, 0.5)),
        p95_s=float(np.quantile(times_s, 0.95)),
        low=float(low),
        high=float(high),
        bytes_per_sample=reports[0]["sent_bytes"] / len(replies),
        load={
            name: report["busy_s"] / report["now_s"] if report["now_s"] else 0.0
            for name, report in zip(file.tiers, reports, strict=True)
        },
        num_requests=len(replies),
        num_unanswered=len(replies) - len(answered),
        num_fallbacks=int(sum(report["num_fallbacks"] for report in reports)),
        answered_by={
            name: sum(reply.tier == number for reply in answered) / len(answered)
            for number, name in enumerate(file.tiers)
        },
        refused=int(sum(report["num_refused"] for report in reports)),
        probes=probes,
    )
