"""The readings of a node that alert rules use; taking them is left to the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class GpuReading:
    """One GPU: whether it is still present, and its temperature where it reports one."""

    uuid: str
    state: Literal["well", "lost"] = "well"
    temperature_c: float | None = None


@dataclass(frozen=True)
class NodeReading:
    """The readings of one node.

    Attributes:
        node: Its host name.
        disks_used: Fraction of each disk in use, from 0 to 1, by a path on the disk.
        gpus: Its GPUs, including lost ones.
    """

    node: str
    disks_used: Mapping[str, float] = field(default_factory=dict)
    gpus: tuple[GpuReading, ...] = ()
