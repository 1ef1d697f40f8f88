"""The readings of nodes and served models that alert rules use; drivers and servers take them."""

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


@dataclass(frozen=True)
class ServedReading:
    """What has become of the data of one served model.

    Attributes:
        model: The name under which it is served, and its version.
        drifted: The columns that have drifted from the training data, `answers` among them.
        num_rows: Number of rows that were compared.
    """

    model: str
    drifted: tuple[str, ...]
    num_rows: int
