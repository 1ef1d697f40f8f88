"""What rules want to know of a node at a moment; who reads it is left to the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class GpuReading:
    """One GPU: whether it is there still, and how hot it is where it tells."""

    uuid: str
    state: Literal["well", "lost"] = "well"
    temperature_c: float | None = None


@dataclass(frozen=True)
class NodeReading:
    """One node, by the name that people know it by.

    Attributes:
        node: Its host name.
        disks_used: Part of a disk that is in use, from 0 to 1, by a place on it.
        gpus: Its GPUs, also those that have fallen off.
    """

    node: str
    disks_used: Mapping[str, float] = field(default_factory=dict)
    gpus: tuple[GpuReading, ...] = ()
