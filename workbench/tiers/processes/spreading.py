"""A bundle with early exits, spread over tiers as a file of tiers and a scheduler demand.

This is pure: the settings of each process follow from the file. Starting them is left to
`measured_run`.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from workbench.deploy.stages import Evidence, Stages
from workbench.foundation.errors import ExperimentError
from workbench.tiers.placement.labels import Groups
from workbench.tiers.placement.links import (
    ALIVE_BYTES,
    bandwidth_of,
    heartbeat_s,
    occupied_s,
    read_trace,
)
from workbench.tiers.placement.tiers_file import Link, TiersFile
from workbench.tiers.processes.frames import HEADER_BYTES
from workbench.tiers.processes.relay import Link as ShapedLink
from workbench.tiers.processes.requesting import SOURCE
from workbench.tiers.processes.settings import Route, StageSettings, TierSettings

RUNNABLE = ("end", "cloud", "end-cloud", "mapping", "threshold")
"""The schedulers that processes carry out."""
_NUM_EASED = 20
_ANSWER_BYTES = 64


def name_of(number: int) -> str:
    """Return the name in a tier's certificate, because names in files need not be host names."""
    return f"tier-{number}"


def shaped(link: Link, folder: Path, port: int, *, field: str) -> ShapedLink:
    """Return a link of the file that leads to a port of this machine.

    Args:
        link: The link.
        folder: The folder that the path of a trace is relative to.
        port: The port.
        field: The dotted field of the link, for errors.

    Raises:
        ExperimentError: If its trace cannot be read.
    """
    trace = () if link.trace is None else tuple(read_trace(link, folder, field=field))
    return ShapedLink("127.0.0.1", port, bandwidth_of(link, folder, field=field), link.rtt, trace)


def destinations(number: int, num_tiers: int, scheduler: str) -> tuple[int, ...]:
    """Return where a tier sends requests, the preferred tier first.

    The others take over if it is lost.

    Args:
        number: The tier.
        num_tiers: Number of tiers.
        scheduler: The scheduler.
    """
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
    charge_s: float = 0.0,
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
        charge_s: By how much `mapping` demands that a request ends earlier where it began, to stay
            there.
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
    alone = [1] * len(names)
    period_s = heartbeat_s(file, folder, alone, [0.0] * len(names))
    return [
        TierSettings(
            name_of(number),
            number,
            stages=_own(parts, number, len(names)) if file.place.models else parts,
            has_own_model=bool(file.place.models),
            batch=tier.batch,
            busy=file.place.busy,
            keeps=0 if destinations(number, len(file.tiers), scheduler) else None,
            maps=scheduler == "mapping",
            charge_s=charge_s,
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


def _own(
    parts: tuple[StageSettings, ...], number: int, num_tiers: int
) -> tuple[StageSettings, ...]:
    """Return the model of a tier if the first and the last tier have one each."""
    if number == 0:
        return parts[:1]
    return parts[1:] if number == num_tiers - 1 else ()


def route_to(
    file: TiersFile, stages: Stages, folder: Path, number: int, port: int, *, sends_all: bool
) -> Route:
    """Return how the first tier reaches another one.

    Args:
        file: The file of tiers.
        stages: The stages of the bundle.
        folder: The folder of the file.
        number: The tier to reach.
        port: The port of the first link on the way.
        sends_all: Whether inputs are sent rather than features.
    """
    sent = stages.stages[0 if sends_all or len(stages.stages) == 1 else 1]
    dtype = np.dtype(sent.wire_dtype)
    # Tokens are never quantised: a neighbouring number is another word.
    item_bytes = 1 if file.privacy.features == "uint8" and dtype.kind == "f" else dtype.itemsize
    num_bytes = int(np.prod(sent.input_shape, dtype=np.int64)) * item_bytes + HEADER_BYTES
    away_s = 0.0
    names = list(file.tiers)
    for (first, second), link in list(zip(pairwise(names), file.links_in_order(), strict=True))[
        :number
    ]:
        bandwidth = bandwidth_of(link, folder, field=f"links.{first}-{second}")
        away_s += link.rtt + (num_bytes + HEADER_BYTES + _ANSWER_BYTES) * 8 / bandwidth
    return Route(name_of(number), "127.0.0.1", port, away_s)


def empty_frame_s(file: TiersFile, folder: Path) -> float:
    """Return how long links take for a heartbeat to the last tier and its answer, by themselves.

    Args:
        file: The file of tiers.
        folder: The folder of the file.
    """
    there_and_back_s = sum(
        occupied_s(num_bytes, file, folder).sum() for num_bytes in (HEADER_BYTES, ALIVE_BYTES)
    )
    return float(there_and_back_s) + sum(link.rtt for link in file.links_in_order())


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
