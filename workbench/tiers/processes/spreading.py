"""A bundle with early exits, spread over tiers as a file of tiers and a scheduler demand.

This is pure: the settings of each process follow from the file. Starting them is left to
`measured_run`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from workbench.deploy.stages import Evidence, Stages
from workbench.foundation.errors import ExperimentError
from workbench.tiers.placement.labels import Groups
from workbench.tiers.placement.link_queues import num_links
from workbench.tiers.placement.links import (
    ALIVE_BYTES,
    HEADER_BYTES,
    bandwidth_of,
    heartbeat_s,
    occupied_s,
    read_trace,
)
from workbench.tiers.placement.mapping import Mapping, known_of
from workbench.tiers.placement.system import System
from workbench.tiers.placement.tiers_file import HERE, Link, TiersFile
from workbench.tiers.processes.machines import MachineSettings
from workbench.tiers.processes.relay import Link as ShapedLink
from workbench.tiers.processes.requesting import SOURCE
from workbench.tiers.processes.settings import Route, StageSettings, TierSettings

RUNNABLE = ("end", "cloud", "end-cloud", "next-tier", "mapping", "threshold")
"""The schedulers that processes carry out."""
MAX_LANES = 32
"""How many links between two tiers are there for real, at most. Devices take turns at them."""
_NUM_EASED = 20


def name_of(number: int) -> str:
    """Return the name in a tier's certificate, because names in files need not be host names."""
    return f"tier-{number}"


def shaped(
    link: Link, folder: Path, ways: Sequence[tuple[int, int]], *, field: str, own_s: float = 0.0
) -> ShapedLink:
    """Return links of the file that lead to ports of this machine.

    Args:
        link: The link.
        folder: The folder that the path of a trace is relative to.
        ways: The ports, with the number of the link that leads to each.
        field: The dotted field of the link, for errors.
        own_s: How long the process of a link takes by itself for a byte each way.

    Raises:
        ExperimentError: If its trace cannot be read.
    """
    trace = () if link.trace is None else tuple(read_trace(link, folder, field=field))
    bandwidth = bandwidth_of(link, folder, field=field)
    return ShapedLink("127.0.0.1", ways[0][0], bandwidth, link.rtt, trace, own_s, tuple(ways))


def num_lanes(system: System | None, number: int) -> int:
    """Return how many links lead from a tier to the next one for real.

    Args:
        system: What runs, or None for one machine in each tier.
        number: The tier.
    """
    return 1 if system is None else min(MAX_LANES, num_links(system)[number])


def destinations(number: int, num_tiers: int, scheduler: str) -> tuple[int, ...]:
    """Return where a tier sends requests, the preferred tier first.

    The others take over if it is lost.

    Args:
        number: The tier.
        num_tiers: Number of tiers.
        scheduler: The scheduler.
    """
    if scheduler == "next-tier":
        return tuple(range(number + 1, num_tiers))
    if number > 0 or scheduler == "end":
        return ()
    return tuple(range(num_tiers - 1, 0, -1))


def settings_of(
    file: TiersFile,
    stages: Stages,
    evidence: Evidence,
    bundle: Path,
    *,
    folder: Path,
    scheduler: str,
    identity: Path | None,
    system: System | None = None,
    groups: Groups | None = None,
) -> list[TierSettings]:
    """Return what the process of each tier is started with, without its routes.

    Args:
        file: The file of tiers.
        stages: The stages of the bundle.
        evidence: How the exits did on the validation split.
        bundle: The folder of the bundle.
        folder: The folder of the file.
        scheduler: The scheduler.
        identity: The folder of the certificates, or None for unencrypted connections.
        system: What runs, with the machines of each tier, or None if this machine is the only one
            of each tier.
        groups: Groups of classes that the first exit answers early.

    Raises:
        ExperimentError: If processes cannot carry out the scheduler.
    """
    if scheduler not in RUNNABLE:
        raise ExperimentError(
            f"{scheduler!r} can be planned and simulated, but not run",
            field="place.scheduler",
            allowed=RUNNABLE,
        )
    eased = _eased(stages, evidence) if scheduler == "threshold" else ()
    parts = tuple(
        StageSettings(
            number, str(bundle / stage.file), stage.threshold, eased if number == 0 else ()
        )
        for number, stage in enumerate(stages.stages)
    )
    if groups is not None:
        early = replace(parts[0], groups=groups.classes, group_threshold=groups.threshold)
        parts = (early, *parts[1:])
    names = tuple(map(name_of, range(len(file.tiers))))
    counts = [1] * len(names) if system is None else system.counts
    period_s = heartbeat_s(file, folder, counts, [0.0] * len(names))
    known = None
    if scheduler == "mapping" and system is not None:
        placing = Mapping().settled(system).placing
        assert placing is not None
        known = known_of(system, placing)
    return [
        TierSettings(
            name_of(number),
            number,
            stages=_held(file, parts, system, number),
            has_own_model=bool(file.place.models),
            batch=tier.batch,
            busy=file.place.busy,
            keeps=_last_kept(system, number, len(file.tiers), scheduler),
            known=known if number == 0 else None,
            machines=None if system is None else machines_of(file, system, number),
            sends_all=scheduler == "cloud" and number == 0,
            features=file.privacy.features,
            noise=file.privacy.noise,
            sent_dtypes=tuple(stage.wire_dtype for stage in stages.stages),
            monitoring=file.place.monitoring,
            heartbeat_s=period_s,
            timeout_s=file.place.timeout,
            identity=None if identity is None else str(identity),
            accepts=(SOURCE, *names),
        )
        for number, tier in enumerate(file.tiers.values())
    ]


def _held(
    file: TiersFile, parts: tuple[StageSettings, ...], system: System | None, number: int
) -> tuple[StageSettings, ...]:
    """Return the stages that a tier has the memory for. Of models of their own, only one is."""
    if own := list(file.tier_models()):
        name = list(file.tiers)[number]
        return (parts[own.index(name)],) if name in own else ()
    if system is None:
        return parts
    times_s = system.stage_s[number]
    return tuple(part for part, time_s in zip(parts, times_s, strict=True) if 0 < time_s < np.inf)


def _last_kept(system: System | None, number: int, num_tiers: int, scheduler: str) -> int | None:
    """Return the last stage that a tier computes while a further tier is alive."""
    if not destinations(number, num_tiers, scheduler):
        return None
    if scheduler == "next-tier" and system is not None:
        part = system.parts[number]
        return part[-1] if part else None
    return 0


def machines_of(file: TiersFile, system: System, number: int) -> MachineSettings:
    """Return the machines of a tier, as one process acts as them.

    Args:
        file: The file of tiers.
        system: What runs.
        number: The tier.
    """
    is_here = list(file.tiers.values())[number].machine == HERE
    alone_s, row_s = (
        tuple(float(time_s) if np.isfinite(time_s) else 0.0 for time_s in times_s[number])
        for times_s in (system.stage_s, system.added_s)
    )
    machines = MachineSettings(system.counts[number], alone_s, row_s, system.batch(number))
    if is_here:  # what it reads and sends takes as long as it takes
        return machines
    return replace(
        machines,
        received_s=float(system.received_s[number]),
        received_raw_s=float(system.received_raw_s[number]),
    )


def route_to(number: int, ports: Sequence[int]) -> Route:
    """Return how a tier reaches a further one.

    Args:
        number: The further tier.
        ports: The port of each link that leads there.
    """
    return Route(name_of(number), "127.0.0.1", ports[0], tuple(ports))


def empty_frame_s(file: TiersFile, folder: Path, num_links: int) -> float:
    """Return how long links take for a heartbeat over them and its answer, by themselves.

    Args:
        file: The file of tiers.
        folder: The folder of the file.
        num_links: How many links, from the first one on.
    """
    there_and_back_s = sum(
        occupied_s(num_bytes, file, folder)[:num_links].sum()
        for num_bytes in (HEADER_BYTES, ALIVE_BYTES)
    )
    return float(there_and_back_s) + sum(link.rtt for link in file.links_in_order()[:num_links])


def _eased(stages: Stages, evidence: Evidence) -> tuple[float, ...]:
    """Return thresholds of the first exit below the chosen one, until every answer leaves."""
    confidence = evidence.confidence[:, 0]
    below = confidence[confidence < stages.stages[0].threshold]
    if not below.size:
        return ()
    return tuple(
        float(threshold)
        for threshold in np.quantile(below, np.linspace(1.0, 0.0, _NUM_EASED + 1)[1:])
    )
