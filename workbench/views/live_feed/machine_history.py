"""The machines of a run over time, with the trials that ran on each.

Samples are read from the store as they come: single ones of the last minutes, and longer and longer
rollups before. How long which are kept is left to `resources.thinning`, the newest alone to
`machines`.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from workbench.foundation.errors import RunNotFoundError
from workbench.foundation.events import TrialState
from workbench.hardware.resources import NodeSample, Rollup
from workbench.hardware.resources.rollups import LEVELS
from workbench.store.database import Store
from workbench.store.database.samples import read_samples
from workbench.store.history import Trial
from workbench.store.history.run_clock import RunClock

MAX_NUMBERS = 24_000
"""How many numbers the series of all machines have together."""
MAX_POINTS = 400
MIN_POINTS = 60
MAX_TRIALS = 400
"""How many trials are laid over one machine: the last to start."""


class _Response(BaseModel):
    model_config = ConfigDict(frozen=True)


class GpuSeries(_Response):
    """One GPU over time, or None if it did not report."""

    index: int
    utilisation: tuple[float | None, ...] = Field(description="From 0 to 1.")
    memory: tuple[float | None, ...] = Field(description="From 0 to 1.")


class TrialSpan(_Response):
    """When a trial ran."""

    trial: int
    state: TrialState
    begin_s: float = Field(description="In run time.")
    end_s: float | None = Field(description="None while it runs.")
    lane: int = Field(description="Trials that ran at the same time have different ones.")


class NodeSeries(_Response):
    """One machine over time: means of as many equal parts as there are points."""

    node: str
    host: str
    time_s: tuple[float, ...] = Field(description="In run time.")
    cpu: tuple[float | None, ...] = Field(description="From 0 to 1.")
    memory: tuple[float | None, ...] = Field(description="From 0 to 1.")
    gpus: tuple[GpuSeries, ...]
    trials: tuple[TrialSpan, ...]
    num_lanes: int


class MachinesHistory(_Response):
    """All machines of a run over time, or empty if none was sampled."""

    nodes: tuple[NodeSeries, ...]


class _Key(NamedTuple):
    node: str
    span_s: int
    time_unix_s: float


class _Point(NamedTuple):
    host: str
    gpus: tuple[int, ...]
    """Their indices."""
    values: tuple[float | None, ...]
    """CPU, memory, and of each GPU utilisation and memory."""


class MachineHistory:
    """Follows the samples of one run. May be read from several threads."""

    def __init__(self, store: Store, run_id: str) -> None:
        """Start before the first sample."""
        self._store = store
        self._run_id = run_id
        self._lock = threading.Lock()
        self._points: dict[_Key, _Point] = {}
        self._read_until: dict[int, float] = {}

    def series(self, clock: RunClock, trials: Iterable[Trial]) -> MachinesHistory:
        """Return the machines from the start of the run until now.

        Args:
            clock: The clock of the run, which stops while nobody drives the run.
            trials: Its trials.

        Raises:
            StoreUnavailableError: If the store cannot be read just now.
        """
        with self._lock:
            self._read()
            by_node: dict[str, list[tuple[float, _Point]]] = {}
            for key in sorted(self._points, key=lambda key: key.time_unix_s):
                by_node.setdefault(key.node, []).append((key.time_unix_s, self._points[key]))
        num_series = sum(len(points[-1][1].values) + 1 for points in by_node.values())
        max_points = min(MAX_POINTS, max(MIN_POINTS, MAX_NUMBERS // max(1, num_series)))
        started = [trial for trial in trials if trial.started_unix_s is not None]
        nodes = [
            _node_series(node, points, clock, max_points, _on(points[-1][1].host, started, by_node))
            for node, points in by_node.items()
        ]
        return MachinesHistory(nodes=tuple(sorted(nodes, key=lambda node: (node.host, node.node))))

    def _read(self) -> None:
        """Read what is new on every level, and forget samples that have become part of a rollup."""
        ends: dict[str, float] = {}
        try:
            for level in reversed(LEVELS):
                since = self._read_until.get(level.span_s, 0.0)
                rows = read_samples(
                    self._store, self._run_id, span_s=level.span_s, since_unix_s=since
                )
                for row in rows:
                    key = _Key(row.node, row.span_s, row.time_unix_s)
                    self._points[key] = _point(Rollup.from_json(row.payload).mean)
                    self._read_until[level.span_s] = row.time_unix_s
        except RunNotFoundError:  # reported with the run itself
            return
        for level in reversed(LEVELS):
            of_level = [key for key in self._points if key.span_s == level.span_s]
            for key in of_level:
                if key.time_unix_s < ends.get(key.node, 0.0):
                    del self._points[key]
            for key in of_level:
                ends[key.node] = max(ends.get(key.node, 0.0), key.time_unix_s + level.span_s)


def _point(sample: NodeSample) -> _Point:
    machine = sample.machine
    values: list[float | None] = [
        sample.cpu_utilisation,
        _share(sample.memory_used_bytes, machine.memory_bytes),
    ]
    for at, gpu in enumerate(machine.gpus):
        used = memory_share = None
        if at < len(sample.gpus):
            usage = sample.gpus[at]
            used = usage.utilisation
            memory_share = _share(usage.memory_used_bytes, gpu.memory_bytes)
        values += (used, memory_share)
    return _Point(machine.host, tuple(gpu.index for gpu in machine.gpus), tuple(values))


def _share(used: float | None, whole: float | None) -> float | None:
    if used is None or not whole:
        return None
    return used / whole


def _node_series(
    node: str,
    points: Sequence[tuple[float, _Point]],
    clock: RunClock,
    max_points: int,
    trials: Sequence[Trial],
) -> NodeSeries:
    last = points[-1][1]
    width = len(last.values)
    times = clock.at_all(np.array([at for at, _ in points]))
    rows = [(*point.values, *[None] * width)[:width] for _, point in points]
    values = np.array(rows, dtype=float)  # None becomes NaN
    times, values = _means(*_one_of_each(times, values), max_points)
    columns = [tuple(_rounded(value) for value in column) for column in values.T]
    spans, num_lanes = _lanes(trials, clock)
    return NodeSeries(
        node=node,
        host=last.host,
        time_s=tuple(round(float(at), 1) for at in times),
        cpu=columns[0],
        memory=columns[1],
        trials=spans,
        num_lanes=num_lanes,
        gpus=tuple(
            GpuSeries(index=index, utilisation=columns[2 + 2 * at], memory=columns[3 + 2 * at])
            for at, index in enumerate(last.gpus)
        ),
    )


def _one_of_each(times: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Keep the last sample of each moment: the clock of a run stops while nobody drives it."""
    is_last = np.append(times[1:] > times[:-1], True)
    return times[is_last], values[is_last]


def _rounded(value: float) -> float | None:
    if np.isnan(value):
        return None
    return round(float(value), 4)


def _means(times: np.ndarray, values: np.ndarray, max_points: int) -> tuple[np.ndarray, np.ndarray]:
    """Cut the time into `max_points` equal parts, and return the means of parts with samples."""
    if len(times) <= max_points:
        return times, values
    begin = times[0]
    end = times[-1]
    parts = np.minimum(
        (times - begin) / ((end - begin) or 1.0) * max_points, max_points - 1
    ).astype(int)
    used, inverse = np.unique(parts, return_inverse=True)
    is_known = ~np.isnan(values)
    sums, counts = np.zeros((len(used), values.shape[1])), np.zeros((len(used), values.shape[1]))
    np.add.at(sums, inverse, np.where(is_known, values, 0.0))
    np.add.at(counts, inverse, is_known)
    middle = np.bincount(inverse, weights=times) / np.bincount(inverse)
    return middle, np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)


def _on(
    host: str, trials: Sequence[Trial], nodes: dict[str, list[tuple[float, _Point]]]
) -> list[Trial]:
    """Return the trials that ran on a machine.

    Trials without a known machine count for it only if it is the only machine.
    """
    return [
        trial for trial in trials if host in trial.hosts or (not trial.hosts and len(nodes) == 1)
    ]


def _lanes(trials: Sequence[Trial], clock: RunClock) -> tuple[tuple[TrialSpan, ...], int]:
    """Give trials that ran at the same time different lanes, as few as there can be."""
    free: list[int] = []
    busy: list[tuple[float, int]] = []  # until when, and the lane
    num_lanes = 0
    spans = []
    for trial in sorted(trials, key=lambda trial: trial.started_unix_s or 0.0)[-MAX_TRIALS:]:
        begin = trial.started_unix_s or 0.0
        while busy and busy[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if not free:
            free, num_lanes = [num_lanes], num_lanes + 1
        lane = heapq.heappop(free)
        end = trial.ended_unix_s
        heapq.heappush(busy, (float("inf") if end is None else end, lane))
        spans.append(
            TrialSpan(
                trial=trial.number,
                state=trial.state,
                begin_s=round(clock.at(begin), 2),
                lane=lane,
                end_s=None if end is None else round(clock.at(end), 2),
            )
        )
    return tuple(spans), num_lanes
