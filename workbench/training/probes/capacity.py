"""Finds how deep a network, how long a sequence and how large a batch fit a memory. Runs nothing.

Steps are traced on fake tensors in a child process, as in `memory_estimate`. A peak grows linearly
with the samples, so two batches are enough. For depths and lengths, each trace comes closer to the
largest size that fits. Halfway between the largest sizes without and with recomputation, it also
computes which part of the forward pass must be repeated if only as many blocks are recomputed as
the memory requires.
"""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import JsonValue

from workbench.experiment import Experiment
from workbench.experiment.plan import PartialPlan
from workbench.foundation.errors import ExperimentError
from workbench.hardware.performance.memory import StepMemory
from workbench.training.probes.child_process import answer, query
from workbench.training.probes.memory_estimate import NUM_STEPS

if TYPE_CHECKING:
    from workbench.training.probes.fake_steps import FakeTrial

Way = Literal["torch", "none", "blocks"]
Size = Literal["depth", "length", "batch"]
SIZES: tuple[Size, ...] = ("depth", "length", "batch")
WAYS: tuple[Way, ...] = ("torch", "none", "blocks")
_MAX_SIZE = 2**20
"""The largest sequence and batch that are tried."""
_TIMEOUT_S = 1800.0


@dataclasses.dataclass(frozen=True)
class Depth:
    """How the layers of a model are counted.

    Attributes:
        name: The parameter of the model.
        now: Its value in the experiment.
        values: The values that it may have, in ascending order.
    """

    name: str
    now: int
    values: Sequence[int]


@dataclasses.dataclass(frozen=True)
class Capacity:
    """The largest sizes that fit a memory.

    Attributes:
        limit_bytes: The memory of a worker that may be used.
        size: The size that is varied, with everything else as in the experiment: the depth of the
            network, the length of a sequence, or the micro batch.
        now: The size in the experiment.
        largest: The largest size that fits, for each way to make a step: a loop in plain torch, no
            recomputation, recomputation of all blocks. 0 if none fits. Ways that the model does not
            support are missing.
        most: The largest size that was allowed. The model may limit it.
        halfway: The size in the middle between the largest without and with recomputation, or None
            if there is none between.
        again: The part of the blocks' forward pass that must be recomputed at that size, from 0 to
            1.
    """

    limit_bytes: int
    size: Size
    now: int
    largest: dict[Way, int]
    most: int
    halfway: int | None = None
    again: float | None = None


def find_capacity(
    experiment: Experiment,
    params: Mapping[str, JsonValue],
    limits_bytes: Sequence[int],
    *,
    plan: PartialPlan,
    depth: Depth | None,
) -> list[Capacity]:
    """Find the largest sizes that fit each of some memories.

    Args:
        experiment: The experiment. It must train a model.
        params: The configuration.
        limits_bytes: Bytes that one worker may use, each > 0.
        plan: The decided part of the plan, with one worker and a micro batch.
        depth: How the layers of the model are counted, or None if it has no such number.

    Raises:
        ExperimentError: If the model cannot be traced.
        RunError: If the child process ends without an answer.
    """
    question = {
        "params": dict(params),
        "limits_bytes": list(limits_bytes),
        "plan": plan.to_json(),
        "depth": None if depth is None else dataclasses.asdict(depth),
    }
    purpose = "the largest sizes could not be found"
    return [
        Capacity(**capacity)
        for capacity in query(__name__, experiment, question, purpose=purpose, timeout_s=_TIMEOUT_S)
    ]


def largest_fitting(
    peak_bytes: Callable[[int], float],
    limit_bytes: float,
    start: int,
    most: int,
    traced: Mapping[int, float] | None = None,
) -> int:
    """Return the largest size whose peak fits, or 0 if none does.

    Each peak costs a trace, and peaks are nearly linear. So a guess is where the line through the
    two sizes nearest to the limit meets the limit. If that makes slow progress, the next guess
    bisects. The search ends early if the line says that the next larger size does not fit, by more
    than the last error of the line.

    Args:
        peak_bytes: Returns the peak of a size. It must never fall with the size.
        limit_bytes: The memory.
        start: The first size to try, at least 1.
        most: The largest size to try.
        traced: Known peaks.
    """
    peaks = dict(traced or {})
    low = max((size for size, peak in peaks.items() if peak <= limit_bytes), default=0)
    high = min((size for size, peak in peaks.items() if peak > limit_bytes), default=most + 1)
    if peaks:
        start = _on_line(peaks, limit_bytes, low)
    guess = min(max(start, low + 1), high - 1)
    num_tried = 0
    while high - low > 1:
        num_tried += 1
        width, expected = high - low, _peak_on_line(peaks, limit_bytes, guess)
        peaks[guess] = peak_bytes(guess)
        if peaks[guess] <= limit_bytes:
            low = guess
            if _peak_on_line(peaks, limit_bytes, low + 1) - limit_bytes > abs(
                peaks[low] - expected
            ):
                break
        else:
            high = guess
        # Slow: three tries have passed, and this one has not even halved the interval.
        is_slow = high - low > width // 2 and high <= most and num_tried > 3
        if is_slow:
            on_line = (low + high) // 2
        else:
            on_line = _on_line(peaks, limit_bytes, low)
        guess = min(max(on_line, low + 1), high - 1)
    return low


def _peak_on_line(peaks: Mapping[int, float], limit_bytes: float, size: int) -> float:
    """Return the peak of a size on the line through the two peaks nearest to the limit.

    NaN if there are fewer than two peaks.
    """
    nearest = sorted(peaks, key=lambda other: abs(peaks[other] - limit_bytes))[:2]
    if len(nearest) < 2:
        return math.nan
    first, second = nearest
    return peaks[first] + (size - first) * (peaks[second] - peaks[first]) / (second - first)


def _on_line(peaks: Mapping[int, float], limit_bytes: float, low: int) -> int:
    """Return the size at which the line through the two peaks nearest to the limit meets it."""
    nearest = sorted(peaks, key=lambda size: abs(peaks[size] - limit_bytes))[:2]
    if len(nearest) < 2:
        if low:
            return 2 * max(peaks)
        return max(peaks) // 2
    first, second = sorted(nearest)
    slope = (peaks[second] - peaks[first]) / (second - first)
    if slope <= 0:
        return 2 * second
    return int(first + (limit_bytes - peaks[first]) / slope)


def largest_on_lines(steps: Mapping[int, StepMemory], limit_bytes: float, most: int) -> int:
    """Return the largest size that fits if peaks grow linearly, or 0 if none does.

    Args:
        steps: Steps at two sizes.
        limit_bytes: The memory.
        most: The largest size to try.
    """
    (first, small), (second, large) = sorted(steps.items())
    largest = most
    for name in ("compute_peak_bytes", "update_peak_bytes"):
        lower, upper = getattr(small, name), getattr(large, name)
        slope = (upper - lower) / (second - first)
        room = limit_bytes - lower
        if slope > 0:
            largest = min(largest, first + math.floor(room / slope))
        elif room < 0:
            largest = 0
    return max(0, largest)


class _Search:
    """The sizes of one experiment, with their traces."""

    def __init__(self, experiment: Experiment, question: Mapping[str, Any]) -> None:
        self._experiment, self._params = experiment, question["params"]
        self._plan = PartialPlan.from_json(question["plan"])
        self._depth = Depth(**question["depth"]) if question["depth"] is not None else None
        self._steps: dict[tuple[Way, Size, int], StepMemory] = {}
        self._usual: FakeTrial | None = None
        self._usual = self._trial("none", None, None)

    def capacities(self, limit_bytes: int) -> list[Capacity]:
        """Return the largest sizes that fit a memory."""
        return [
            self._capacity(limit_bytes, size, now) for size in SIZES if (now := self._now(size))
        ]

    def _now(self, size: Size) -> int | None:
        """Return the size in the experiment, or None if it has no such size."""
        if size == "batch":
            return self._plan.micro_batch
        if size == "length":
            assert self._usual is not None
            return self._usual.length
        if self._depth is None:
            return None
        return self._depth.now

    def _capacity(self, limit_bytes: int, size: Size, now: int) -> Capacity:
        values = self._values(size)
        largest: dict[Way, int] = {}
        for way in WAYS:
            try:
                self._step(way, size, now)
            except ExperimentError as error:
                if error.field != "plan.recompute":
                    raise
                continue  # a model without blocks
            largest[way] = self._largest(way, size, now, limit_bytes)
        capacity = Capacity(limit_bytes, size, now, largest, values[-1])
        # Positions in `values`, so that halfway is a value that the model may have.
        low, high = (bisect_right(values, largest.get(way, 0)) for way in ("none", "blocks"))
        if high - low < 2:
            return capacity
        halfway = values[(low + high) // 2 - 1]
        return dataclasses.replace(
            capacity, halfway=halfway, again=self._again(limit_bytes, size, halfway)
        )

    def _values(self, size: Size) -> Sequence[int]:
        """Return the values that a size may have."""
        if size == "depth" and self._depth is not None:
            return self._depth.values
        return range(1, _MAX_SIZE + 1)

    def _largest(self, way: Way, size: Size, now: int, limit_bytes: int) -> int:
        if size == "batch":
            steps = {value: self._step(way, size, value) for value in (now, 2 * now)}
            return largest_on_lines(steps, limit_bytes, _MAX_SIZE)
        # Not every depth may exist, so the search runs over positions in `values`. Sizes that were
        # traced for another limit are known already.
        values = self._values(size)
        traced = {
            bisect_right(values, value): _peak_bytes(step)
            for (its_way, its_size, value), step in self._steps.items()
            if (its_way, its_size) == (way, size)
        }
        place = largest_fitting(
            lambda place: _peak_bytes(self._step(way, size, values[place - 1])),
            limit_bytes,
            bisect_right(values, now),
            len(values),
            traced,
        )
        if not place:
            return 0
        return values[place - 1]

    def _again(self, limit_bytes: int, size: Size, value: int) -> float | None:
        """Return the part of the blocks' forward pass that must be recomputed."""
        depth, length, micro_batch = self._arguments(size, value)
        cost = self._trial("blocks", depth, length).pass_cost(micro_batch)
        # Memory other than activations does not depend on which of them are kept.
        other_bytes = _peak_bytes(self._step("blocks", size, value)) - cost.least_bytes
        kept = cost.choose_kept(limit_bytes - other_bytes)
        whole_s = cost.again_s([False] * len(cost.blocks))
        if kept is None or not whole_s:
            return None
        return cost.again_s(kept) / whole_s

    def _step(self, way: Way, size: Size, value: int) -> StepMemory:
        key = (way, size, value)
        if key not in self._steps:
            depth, length, micro_batch = self._arguments(size, value)
            trial = self._trial(way, depth, length)
            trace = trial.plain_memory if way == "torch" else trial.step_memory
            self._steps[key] = trace(micro_batch, NUM_STEPS)
        return self._steps[key]

    def _arguments(self, size: Size, value: int) -> tuple[int | None, int | None, int]:
        usual = self._plan.micro_batch or 1
        if size == "batch":
            return None, None, value
        if size == "depth":
            return value, None, usual
        return None, value, usual

    def _trial(self, way: Way, depth: int | None, length: int | None) -> FakeTrial:
        from workbench.training.probes.fake_steps import FakeTrial

        plan = self._plan | PartialPlan.of(recompute="none" if way == "torch" else way)
        params = dict(self._params)
        if depth is not None and self._depth is not None:
            params[self._depth.name] = depth
        datasets = self._usual.datasets if self._usual is not None else None
        return FakeTrial(self._experiment, params, plan, length=length, datasets=datasets)


def _peak_bytes(step: StepMemory) -> float:
    return max(step.compute_peak_bytes, step.update_peak_bytes)


def capacity_here(experiment: Experiment, question: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Find the sizes in this process, which should be a child process. See `find_capacity`."""
    search = _Search(experiment, question)
    return [
        dataclasses.asdict(capacity)
        for limit_bytes in question["limits_bytes"]
        for capacity in search.capacities(limit_bytes)
    ]


if __name__ == "__main__":
    answer(capacity_here)
