"""Predicts step times and memory for the plans in one table from measurements in another.

A simple table describes replicas of one model on nodes and GPUs. A table with other columns, such
as `stages`, also describes divided models of several shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from workbench.advisor.measurement_tables import (
    Column,
    check_has_plans,
    number_from_zero,
    positive_number,
    positive_whole_number,
    read_heads,
    read_objects,
)
from workbench.foundation.errors import DataError
from workbench.foundation.formatting import format_count
from workbench.hardware.performance.parallel_plans import ModelShape, ParallelPlan
from workbench.hardware.performance.parallel_step_time import MeasuredStep, predict_steps
from workbench.hardware.performance.plan_memory import (
    MeasuredPeak,
    MemoryPrediction,
    predict_memory,
)
from workbench.hardware.performance.step_time import Measurement, Point, Prediction, fit
from workbench.hardware.performance.topology import Topology

MAX_COUNT = 10_000_000
"""The largest number that a column of a plan may contain."""
_MAX_MEASURED = 1e6
SHAPE = tuple(field.name for field in fields(ModelShape))
DIMENSIONS = ("replicas", "stages", "tensor")


def _count(cell: str) -> int | None:
    if not cell:
        return None
    number = positive_whole_number(cell)
    if number > MAX_COUNT:
        raise ValueError(f"a whole number from 1 to {MAX_COUNT:,}")
    return number


def _micro_batch(cell: str) -> float | None:
    if not cell:
        return None
    number = positive_number(cell)
    if not 1.0 / MAX_COUNT <= number <= MAX_COUNT:
        raise ValueError(f"a number greater than 0 and at most {MAX_COUNT:,}")
    return number


def _measured(cell: str) -> float:
    number = positive_number(cell)
    if not 1.0 / _MAX_MEASURED <= number <= _MAX_MEASURED:
        raise ValueError("a number from 0.000001 to 1,000,000")
    return number


def _zero(cell: str) -> int | None:
    if not cell:
        return None
    if cell not in ("0", "1", "2", "3"):
        raise ValueError(
            "0 (nothing is sharded), 1 (optimizer state), 2 (also gradients) or 3 (also parameters)"
        )
    return int(cell)


PLAN = (
    *(
        Column(name, _count, required=False)
        for name in ("nodes", "gpus", *DIMENSIONS, "accumulation", *SHAPE)
    ),
    Column("micro_batch", _micro_batch, required=False),
    Column("zero", _zero, required=False),
)
# A table with one of these columns describes divided models.
_TELLING = frozenset((*DIMENSIONS, *SHAPE))


def are_divided_plans(measured: Path, points: Path) -> bool:
    """Return whether tables contain stages, tensor parts, accumulation or the shape of models.

    Raises:
        DataError: If a table cannot be read.
    """
    heads = read_heads(measured)
    return bool(_TELLING & {*heads, *read_heads(points)}) or "accumulation" in heads


def plan_of(row: dict[str, Any]) -> ParallelPlan:
    """Convert a row to a plan. If replicas are not given, they follow from gpus.

    Raises:
        DataError: If gpus, nodes and the dimensions contradict each other. The error contains the
            column to check.
    """
    stages, tensor, nodes = row["stages"] or 1, row["tensor"] or 1, row["nodes"] or 1
    replicas, gpus = row["replicas"], row["gpus"]
    if replicas is None:
        replicas, left = divmod(gpus or stages * tensor, stages * tensor)
        if left or not replicas:
            raise DataError(
                f"{format_count(gpus or 0, 'GPU')} cannot be divided into {stages} stages x "
                f"{tensor} tensor parts",
                field="gpus",
                allowed=f"a multiple of {stages * tensor}",
            )
    num_workers = replicas * stages * tensor
    if gpus is not None and gpus != num_workers:
        raise DataError(
            f"{replicas} replicas x {stages} stages x {tensor} tensor parts are not "
            f"{format_count(gpus, 'GPU')}",
            field="gpus",
            allowed=str(num_workers),
        )
    if num_workers < nodes:
        raise DataError(
            f"{format_count(num_workers, 'GPU')} cannot be on {format_count(nodes, 'node')}",
            field="nodes",
            allowed=f"from 1 to {num_workers}",
        )
    shape = ModelShape(**{name: row[name] for name in SHAPE})
    micro_batch, accumulation = row["micro_batch"] or 1.0, row["accumulation"] or 1
    return ParallelPlan(
        replicas=replicas,
        stages=stages,
        tensor=tensor,
        micro_batch=micro_batch,
        accumulation=accumulation,
        nodes=nodes,
        zero=row["zero"] or 0,
        shape=shape,
    )


def read_plans(path: Path) -> list[ParallelPlan]:
    """Read plans whose time or memory is to be predicted.

    Args:
        path: A CSV file with any of the columns of `PLAN`. A missing column counts as 1, or as
            unknown if it belongs to the shape of the model.

    Raises:
        DataError: If a cell has a wrong value, a row contradicts itself, or there is no row.
    """
    return check_has_plans(path, read_objects(path, plan_of, *PLAN))


def read_measured_steps(path: Path) -> list[MeasuredStep]:
    """Read measured plans from the columns of `PLAN` and step_time_s.

    Raises:
        DataError: For the same reasons as in `read_plans`.
    """
    read = read_objects(
        path,
        lambda row: MeasuredStep(plan_of(row), row["step_time_s"]),
        *PLAN,
        Column("step_time_s", _measured),
    )
    return _check_not_empty(path, read)


def predict_divided_steps(
    measured: Path, points: Path
) -> tuple[list[ParallelPlan], list[Prediction]]:
    """Predict the steps of the plans in one file from measured steps in another.

    Returns:
        The plans, and one prediction per plan.

    Raises:
        DataError: If a file is malformed or has no rows.
    """
    steps, plans = read_measured_steps(measured), read_plans(points)
    return plans, predict_steps(steps, plans)


def read_measured_peaks(path: Path) -> list[MeasuredPeak]:
    """Read measured peaks from the columns of `PLAN` and memory_gb.

    Raises:
        DataError: For the same reasons as in `read_plans`.
    """
    read = read_objects(
        path,
        lambda row: MeasuredPeak(plan_of(row), row["memory_gb"]),
        *PLAN,
        Column("memory_gb", _measured),
    )
    return _check_not_empty(path, read)


def predict_peaks(
    measured: Path, points: Path
) -> tuple[list[ParallelPlan], list[MemoryPrediction]]:
    """Predict the memory of the plans in one file from measured peaks in another.

    Returns:
        The plans, and one prediction per plan.

    Raises:
        DataError: If a file is malformed or has no rows.
    """
    peaks, plans = read_measured_peaks(measured), read_plans(points)
    return plans, predict_memory(peaks, plans)


def _check_not_empty(path: Path, rows: list[Any]) -> list[Any]:
    if not rows:
        raise DataError(f"{path} contains no measurements", allowed="at least one row")
    return rows


def _gpus_per_node(cell: str) -> tuple[int, ...] | None:
    """Parse a cell such as `4+4`. An empty cell is None."""
    if not cell:
        return None
    parts = [part.strip() for part in cell.split("+")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise ValueError("whole numbers joined by +, such as 4+4")
    return tuple(map(int, parts))


def _number_or_nothing(cell: str) -> float | None:
    return number_from_zero(cell) if cell else None


_PLAN = (
    Column("nodes", positive_whole_number),
    Column("gpus", positive_whole_number),
    Column("micro_batch", positive_number),
    Column("gpus_per_node", _gpus_per_node, required=False),
)


def read_measured(path: Path) -> list[Measurement]:
    """Read measured plans.

    Args:
        path: A CSV file with the columns nodes, gpus, micro_batch and step_time_s. The columns
            gpus_per_node and sync_time_s are optional.

    Returns:
        One measurement per row, in order.

    Raises:
        DataError: If a cell has a wrong value, a row contradicts itself, or there is no row.
    """
    measured = read_objects(
        path,
        _make_measurement,
        *_PLAN,
        Column("step_time_s", positive_number),
        Column("sync_time_s", _number_or_nothing, required=False),
    )
    return _check_not_empty(path, measured)


def read_points(path: Path) -> list[Point]:
    """Read plans whose step time is to be predicted.

    Args:
        path: A CSV file with the columns nodes, gpus and micro_batch. The columns gpus_per_node and
            accumulation are optional. The default of accumulation is 1.

    Returns:
        One point per row, in order.

    Raises:
        DataError: If a cell has a wrong value, a row contradicts itself, or there is no row.
    """
    columns = (*_PLAN, Column("accumulation", positive_whole_number, required=False))
    return check_has_plans(path, read_objects(path, _make_point, *columns))


def predict_step_times(
    measured: Sequence[Measurement], points: Sequence[Point]
) -> list[Prediction]:
    """Predict the step time of each point from at least one measurement."""
    return fit(measured).predict(points)


def _make_measurement(row: dict[str, Any]) -> Measurement:
    step_time_s, sync_time_s = row["step_time_s"], row["sync_time_s"]
    if sync_time_s is not None and sync_time_s > step_time_s:
        raise DataError(
            f"{sync_time_s:g} s is longer than the step",
            field="sync_time_s",
            allowed=f"at most step_time_s, {step_time_s:g}",
        )
    return Measurement(_topology(row), row["micro_batch"], step_time_s, sync_time_s)


def _make_point(row: dict[str, Any]) -> Point:
    return Point(_topology(row), row["micro_batch"], row["accumulation"] or 1)


def _topology(row: dict[str, Any]) -> Topology:
    return Topology.of(row["nodes"], row["gpus"], row["gpus_per_node"])
