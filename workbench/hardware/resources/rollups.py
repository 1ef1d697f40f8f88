"""Merge samples of a machine over time, with the extremes of quantities for which they matter.

Samples become rollups, and short rollups become longer ones. Energies are summed, most other values
are averaged, and rare important values (errors, states other than "ok") are kept. Older rollups are
longer, so their number is bounded.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, TypeVar

from workbench.hardware.resources.gpu_meter import GpuUsage
from workbench.hardware.resources.usage_sampler import NodeSample, WorkerUsage

MAX_WORKERS = 32
"""Number of workers that a rollup keeps: the ones in most of its samples."""
MAX_XIDS = 16
_WORST = ("ok", "silent", "needs reset", "failed", "no driver", "lost", "gone")
_NODE_RANGES = ("cpu_utilisation", "memory_used_bytes")
_GPU_RANGES = ("utilisation", "memory_used_bytes", "power_w", "temperature_c", "clock_mhz")
_SUMMED = frozenset({"elapsed_s", "energy_j", "cpu_energy_j"})
_GREATEST = frozenset({"ecc_corrected", "ecc_uncorrected"})

Kind = TypeVar("Kind", GpuUsage, WorkerUsage, NodeSample)


class Range(NamedTuple):
    """The minimum and maximum of a quantity."""

    least: float
    most: float


@dataclass(frozen=True)
class GpuRanges:
    """The ranges of a GPU's quantities, as in `GpuUsage`. None if not reported."""

    utilisation: Range | None = None
    memory_used_bytes: Range | None = None
    power_w: Range | None = None
    temperature_c: Range | None = None
    clock_mhz: Range | None = None


@dataclass(frozen=True)
class Ranges:
    """The ranges of a machine's quantities, as in `NodeSample`, with GPUs by UUID."""

    gpus: dict[str, GpuRanges]
    cpu_utilisation: Range | None = None
    memory_used_bytes: Range | None = None


@dataclass(frozen=True)
class Rollup:
    """One sample of a machine, or the aggregate of many.

    Attributes:
        mean: The sample, or the mean of the samples.
        num_looks: Number of samples.
        ranges: Their ranges, or None if there is only one sample.
    """

    mean: NodeSample
    num_looks: int = 1
    ranges: Ranges | None = None

    @property
    def extremes(self) -> Ranges:
        """The ranges of the samples."""
        return self.ranges or _ranges_of(self.mean)

    def to_json(self) -> str:
        """Write the rollup as one line of JSON, without default values."""
        return _adapter().dump_json(self, exclude_defaults=True).decode()

    @staticmethod
    def from_json(text: str) -> Rollup:
        """Read the result of `to_json`."""
        return _adapter().validate_json(text)


def merge(spans: Sequence[Rollup]) -> Rollup:
    """Merge rollups of one machine into one.

    Args:
        spans: At least one, oldest first.
    """
    if len(spans) == 1:
        return spans[0]
    last = max(spans, key=lambda span: span.mean.time_unix_s).mean
    weighted = [(span.mean, span.num_looks) for span in spans]
    usages = [
        [
            (usage, weight)
            for node, weight in weighted
            for known, usage in _gpus_of(node)
            if known == gpu.uuid
        ]
        for gpu in last.machine.gpus
    ]
    mean = replace(
        _mean(weighted),
        machine=last.machine,
        time_unix_s=last.time_unix_s,
        gpus=tuple(_mean_of_gpu(usage) if usage else GpuUsage() for usage in usages),
        workers=_workers(weighted),
    )
    return Rollup(
        mean, sum(weight for _, weight in weighted), _widest([span.extremes for span in spans])
    )


def _mean(weighted: Sequence[tuple[Kind, int]]) -> Kind:
    """Merge known values field by field. Texts and lists are taken from the last."""
    last, _ = weighted[-1]
    merged: dict[str, Any] = {}
    for field in fields(last):
        known_values = [(getattr(value, field.name), weight) for value, weight in weighted]
        known_values = [(value, weight) for value, weight in known_values if value is not None]
        if known_values and all(isinstance(value, int | float) for value, _ in known_values):
            merged[field.name] = _number(field.name, known_values)
        elif field.name == "state":
            merged["state"] = max((value for value, _ in known_values), key=_WORST.index)
    return replace(last, **merged)


def _number(name: str, weighted: Sequence[tuple[Any, int]]) -> float:
    values = [value for value, _ in weighted]
    if name in _SUMMED:
        return sum(values)
    if name in _GREATEST:
        return max(values)
    mean = sum(value * weight for value, weight in weighted) / sum(weight for _, weight in weighted)
    mean = min(max(mean, min(values)), max(values))  # rounding may have left this range
    return round(mean) if all(isinstance(value, int) for value in values) else mean


def _mean_of_gpu(weighted: Sequence[tuple[GpuUsage, int]]) -> GpuUsage:
    usages = [usage for usage, _ in weighted]
    return replace(
        _mean(weighted),
        slowed_by=tuple(dict.fromkeys(word for usage in usages for word in usage.slowed_by)),
        xids=tuple(xid for usage in usages for xid in usage.xids)[:MAX_XIDS],
    )


def _workers(weighted: Sequence[tuple[NodeSample, int]]) -> tuple[WorkerUsage, ...]:
    usages: dict[tuple[int, int, int], list[tuple[WorkerUsage, int]]] = {}
    for node, weight in weighted:
        for worker in node.workers:
            usages.setdefault((worker.trial, worker.rank, worker.pid), []).append((worker, weight))
    longest = sorted(usages, key=lambda key: sum(weight for _, weight in usages[key]), reverse=True)
    return tuple(
        replace(_mean(usages[key]), trial=key[0], rank=key[1], pid=key[2])
        for key in sorted(longest[:MAX_WORKERS])
    )


def _gpus_of(node: NodeSample) -> Iterable[tuple[str, GpuUsage]]:
    # A silent node has GPUs, but no usage of them.
    return ((gpu.uuid, usage) for gpu, usage in zip(node.machine.gpus, node.gpus, strict=False))


def _ranges_of(node: NodeSample) -> Ranges:
    def read(usage: NodeSample | GpuUsage, names: Sequence[str]) -> dict[str, Range | None]:
        values = {name: getattr(usage, name) for name in names}
        return {
            name: None if value is None else Range(value, value) for name, value in values.items()
        }

    gpus = {uuid: GpuRanges(**read(usage, _GPU_RANGES)) for uuid, usage in _gpus_of(node)}
    return Ranges(gpus, **read(node, _NODE_RANGES))


def _widest(parts: Sequence[Ranges]) -> Ranges:
    def widest(ranges: Sequence[Any], names: Sequence[str]) -> dict[str, Range | None]:
        merged: dict[str, Range | None] = {}
        for name in names:
            values = [value for item in ranges if (value := getattr(item, name)) is not None]
            merged[name] = None
            if values:
                merged[name] = Range(
                    min(value.least for value in values), max(value.most for value in values)
                )
        return merged

    by_uuid: dict[str, list[GpuRanges]] = {}
    for ranges in parts:
        for uuid, gpu_ranges in ranges.gpus.items():
            by_uuid.setdefault(uuid, []).append(gpu_ranges)
    gpus = {uuid: GpuRanges(**widest(ranges, _GPU_RANGES)) for uuid, ranges in by_uuid.items()}
    return Ranges(gpus, **widest(parts, _NODE_RANGES))


@functools.cache
def _adapter() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(Rollup)


class Level(NamedTuple):
    """How long rollups of one length are kept."""

    span_s: int
    """Their length in seconds, or 0 for single samples."""
    kept_s: float
    """The age in seconds at which they are merged into longer ones or deleted."""


LEVELS = (
    Level(0, 600.0),
    Level(10, 2 * 3600.0),
    Level(60, 24 * 3600.0),
    Level(600, 14 * 24 * 3600.0),
    Level(3600, 90 * 24 * 3600.0),
)


class Moment(NamedTuple):
    """The node of a rollup and its start (for a single sample, the time at which it was taken)."""

    node: str
    time_unix_s: float


def outdated_before(level: Level, now_unix_s: float) -> float:
    """Return the time before which rollups of a level must be merged into longer ones.

    It is a boundary between two longer rollups, so none of them is merged from incomplete parts.
    """
    longer = _longer(level)
    before = now_unix_s - level.kept_s
    return before if longer is None else math.floor(before / longer.span_s) * longer.span_s


def aggregate(level: Level, spans: Iterable[tuple[Moment, Rollup]]) -> dict[Moment, Rollup]:
    """Merge outdated rollups into longer ones, if there is a longer level.

    Args:
        level: Their level.
        spans: All rollups before `outdated_before`, and the existing longer ones that they become
            part of.
    """
    longer = _longer(level)
    if longer is None:
        return {}
    gathered: dict[Moment, list[tuple[float, Rollup]]] = {}
    for moment, span in spans:
        start = math.floor(moment.time_unix_s / longer.span_s) * longer.span_s
        gathered.setdefault(Moment(moment.node, float(start)), []).append(
            (moment.time_unix_s, span)
        )
    return {
        moment: merge([span for _, span in sorted(parts, key=lambda part: part[0])])
        for moment, parts in gathered.items()
    }


def next_span_s(level: Level) -> int | None:
    """Return the length of the next longer rollups, or None if this level is the longest."""
    longer = _longer(level)
    return None if longer is None else longer.span_s


def _longer(level: Level) -> Level | None:
    index = LEVELS.index(level) + 1
    return LEVELS[index] if index < len(LEVELS) else None
