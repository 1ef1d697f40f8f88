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
from workbench.tiers.placement.class_groups import Groups
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
from workbench.tiers.placement.tiers_file import HERE, Link, Scene, TiersFile
from workbench.tiers.processes.machines import MachineSettings
from workbench.tiers.processes.relay import Link as ShapedLink
from workbench.tiers.processes.requesting import SOURCE
from workbench.tiers.processes.tier_settings import Route, StageSettings, TierSettings

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
    return ShapedLink(
        host="127.0.0.1",
        port=ways[0][0],
        bits_per_s=bandwidth,
        rtt_s=link.rtt,
        trace=trace,
        own_s=own_s,
        ways=tuple(ways),
    )


def num_lanes(system: System | None, number: int) -> int:
    """Return how many links lead from a tier to the next one for real.

    Args:
        system: What runs, or None for one machine in each tier.
        number: The tier.
    """
    if system is None:
        return 1
    if number or system.num_views == 1:
        return min(MAX_LANES, num_links(system)[number])
    # Views of one scene go over different links.
    num_scenes = max(1, min(MAX_LANES // system.num_views, system.counts[0]))
    return num_scenes * system.num_views


def destinations(
    number: int, num_tiers: int, scheduler: str, *, num_views: int = 1
) -> tuple[int, ...]:
    """Return where a tier sends requests, the preferred tier first.

    The others take over if it is lost. Views of a scene are joined by the second tier only.

    Args:
        number: The tier.
        num_tiers: Number of tiers.
        scheduler: The scheduler.
        num_views: Number of devices that see each scene.
    """
    if num_views > 1 and number == 0 and scheduler != "end":
        return (1,)
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
    counts = [1] * len(names) if system is None else _num_machines(system)
    period_s = heartbeat_s(file, folder, counts, [0.0] * len(names))
    known = None
    if scheduler == "mapping" and system is not None:
        placing = Mapping().settled(system).placing
        assert placing is not None
        known = known_of(system, placing)
    scene = None if system is None else stages.scene
    if scene is not None:
        parts = (replace(parts[0], threshold=None), *parts[1:])
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
            num_views=scene.num_views if scene is not None and number == 1 else 0,
            aggregate="mean" if scene is None else scene.aggregate,
            patience_s=(file.place.scene or Scene()).patience,
            silent_lanes=_silent_lanes(file, system) if number == 0 else (),
        )
        for number, tier in enumerate(file.tiers.values())
    ]


def _num_machines(system: System) -> list[int]:
    """Return the number of machines of each tier, where several of the first see one scene."""
    return [system.counts[0] * system.num_views, *system.counts[1:]]


def _silent_lanes(file: TiersFile, system: System | None) -> tuple[int, ...]:
    """Return the links of the first tier whose devices are missing."""
    if system is None or not file.place.missing_views:
        return ()
    lanes = range(num_lanes(system, 0))
    return tuple(lane for lane in lanes if lane % system.num_views in file.place.missing_views)


def _held(
    file: TiersFile, parts: tuple[StageSettings, ...], system: System | None, number: int
) -> tuple[StageSettings, ...]:
    """Return the stages that a tier has the memory for. Of models of their own, only one is."""
    if own := list(file.tier_models()):
        name = list(file.tiers)[number]
        return (parts[own.index(name)],) if name in own else ()
    if system is None:
        return parts
    if number and system.num_views > 1:
        parts = parts[1:]  # the first stage takes one view, which only devices have
    times_s = system.stage_s[number][len(system.stage_s[number]) - len(parts) :]
    return tuple(part for part, time_s in zip(parts, times_s, strict=True) if 0 < time_s < np.inf)


def _last_kept(system: System | None, number: int, num_tiers: int, scheduler: str) -> int | None:
    """Return the last stage that a tier computes while a further tier is alive."""
    num_views = 1 if system is None else system.num_views
    if not destinations(number, num_tiers, scheduler, num_views=num_views):
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
    machines = MachineSettings(_num_machines(system)[number], alone_s, row_s, system.batch(number))
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
