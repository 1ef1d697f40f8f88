"""What one tier's process is started with, as a JSON file.

Plain types, so that it needs no other library.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from workbench.foundation.files import write_atomically
from workbench.tiers.placement.known_queues import Known, Place
from workbench.tiers.processes.machines import MachineSettings
from workbench.tiers.processes.transport import Identity

How = Literal["mean", "max", "concatenation"]


@dataclass(frozen=True)
class StageSettings:
    """A stage that a tier computes.

    Attributes:
        number: Its number, from 0. The next stage takes what it sends.
        path: Its graph.
        threshold: The probability from which its answer is final. None means only if no further
            tier can answer.
        eased: Lower thresholds, in order, which hold in turn while the next tier is busy.
        groups: The numbers of the classes of each group that is answered before a request is sent
            on.
        group_threshold: The probability from which it is.
    """

    number: int
    path: str
    threshold: float | None = None
    eased: tuple[float, ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()
    group_threshold: float = 1.0


@dataclass(frozen=True)
class Route:
    """A further tier.

    Attributes:
        name: Its name, which its certificate must have.
        host: Its address.
        port: Its port.
        lanes: The port of each link to it if there are several, of which each device uses one. The
            first one is `port`.
    """

    name: str
    host: str
    port: int
    lanes: tuple[int, ...] = ()

    def per_lane(self) -> list[Route]:
        """Return the tier as it is reached over each link."""
        return [replace(self, port=port, lanes=()) for port in self.lanes or (self.port,)]


@dataclass(frozen=True)
class TierSettings:
    """A tier.

    Attributes:
        name: Its name, as in its certificate.
        number: Its place from the first tier, 0, on.
        device: The number of this machine in its tier.
        host: The address on which it listens.
        port: The port, or 0 for any that is free.
        stages: The stages that it computes, in order.
        routes: Further tiers, the preferred one first: the first that is alive is the plan.
        keeps: The last stage that is computed here while a further tier is alive, or None for all.
        known: What is known of further tiers if each request goes where it is expected to end
            first, or None if all go to the first route.
        machines: The machines that this process acts as, or None for this one.
        has_own_model: Whether its stages are its own model, which uses the inputs of requests.
        sends_all: Whether every request is sent further before this tier computes anything itself.
        batch: Largest number of requests that are computed at once.
        queue: Number of requests that may wait. Further ones fail.
        threads: Threads that compute a batch.
        timeout_s: How long an answer of a further tier is waited for.
        monitoring: With `heartbeat`, a silent further tier is given up at once, with `none` after
            the timeout.
        heartbeat_s: How often a further tier is probed. After three probes without an answer it is
            given up.
        busy: The load of a further tier from which thresholds are lowered. Below nine tenths of it,
            they are restored.
        features: How values are sent: float32 or uint8.
        sent_dtypes: The type in which what each stage takes is sent where it is a whole number.
        noise: Standard deviation of added noise, relative to the standard deviation of the values.
        identity: The folder of its certificate, or None for unencrypted connections.
        accepts: The names of those that may connect.
        num_views: Number of devices that see the same scene, if their views become one here, or 0.
            Of the devices 0, 1, 2, ..., so many successive ones see the same scene.
        aggregate: How their views become one.
        patience_s: How long the views of a scene are waited for.
        silent_lanes: The links on which no device sends heartbeats, because it is missing.
        max_bytes: How large a tensor may be.
        ends_with_input: Whether it ends when its standard input does, which is when its parent
            ends.
    """

    name: str
    number: int = 0
    device: int = 0
    host: str = "127.0.0.1"
    port: int = 0
    stages: tuple[StageSettings, ...] = ()
    routes: tuple[Route, ...] = ()
    keeps: int | None = None
    known: Known | None = None
    machines: MachineSettings | None = None
    has_own_model: bool = False
    sends_all: bool = False
    batch: int = 1
    queue: int = 256
    threads: int = 1
    timeout_s: float = 1.0
    monitoring: str = "heartbeat"
    heartbeat_s: float = 0.1
    busy: float = 0.7
    features: str = "float32"
    noise: float = 0.0
    sent_dtypes: tuple[str, ...] = ()
    identity: str | None = None
    accepts: tuple[str, ...] = ()
    num_views: int = 0
    aggregate: How = "mean"
    patience_s: float = 0.5
    silent_lanes: tuple[int, ...] = ()
    max_bytes: int = 16 * 2**20
    ends_with_input: bool = False

    def known_as(self) -> Identity | None:
        """Return the certificate, or None for unencrypted connections."""
        return None if self.identity is None else Identity.in_folder(Path(self.identity), self.name)

    def write(self, path: Path) -> None:
        """Write them as JSON, all or nothing."""
        write_atomically(path, json.dumps(asdict(self), indent=2) + "\n")


def read_settings(path: Path) -> TierSettings:
    """Read what `TierSettings.write` wrote.

    Args:
        path: The file.

    Raises:
        ValueError: If it holds anything else.
    """
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    try:
        return TierSettings(
            **{
                **document,
                "stages": tuple(
                    StageSettings(
                        **{
                            **item,
                            "eased": tuple(item["eased"]),
                            "groups": tuple(map(tuple, item["groups"])),
                        }
                    )
                    for item in document["stages"]
                ),
                "routes": tuple(
                    Route(**{**item, "lanes": tuple(item["lanes"])}) for item in document["routes"]
                ),
                "known": _known(document["known"]),
                "machines": _machines(document["machines"]),
                **{
                    name: tuple(document[name])
                    for name in ("accepts", "silent_lanes", "sent_dtypes")
                },
            }
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} does not contain the settings of a tier: {error}") from error


def _known(document: dict[str, Any] | None) -> Known | None:
    if document is None:
        return None
    places = tuple(
        Place(**{**place, "links": tuple(map(tuple, place["links"]))})
        for place in document["places"]
    )
    return Known(**{**document, "places": places})


def _machines(document: dict[str, Any] | None) -> MachineSettings | None:
    if document is None:
        return None
    lists = {name: tuple(document[name]) for name in ("alone_s", "row_s")}
    return MachineSettings(**{**document, **lists})
