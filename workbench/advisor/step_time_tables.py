"""Step times of plans in a file, from measured plans in another: rows in, an answer a row out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench.advisor.tables import (
    Column,
    check_has_plans,
    number_from_zero,
    positive_number,
    positive_whole_number,
    read_objects,
)
from workbench.foundation.errors import DataError
from workbench.hardware.performance.step_time import Measurement, Point, Prediction, fit
from workbench.hardware.performance.topology import Topology


def _gpus_per_node(cell: str) -> tuple[int, ...] | None:
    """Read `4+4`; an empty cell is None."""
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
        path: A CSV file with columns nodes, gpus, micro_batch, step_time_s; and gpus_per_node and
            sync_time_s where they are known.

    Returns:
        One measurement a row, in order.

    Raises:
        DataError: If a cell is not what its column holds, a row contradicts itself, or there is no
            row.
    """
    measured = read_objects(
        path,
        _make_measurement,
        *_PLAN,
        Column("step_time_s", positive_number),
        Column("sync_time_s", _number_or_nothing, required=False),
    )
    if not measured:
        raise DataError(f"{path} holds no measurement", allowed="one row or more")
    return measured


def read_points(path: Path) -> list[Point]:
    """Read plans whose step time is wanted.

    Args:
        path: A CSV file with columns nodes, gpus, micro_batch; and gpus_per_node and accumulation,
            which is 1 otherwise.

    Returns:
        One point a row, in order.

    Raises:
        DataError: If a cell is not what its column holds, a row contradicts itself, or there is no
            row.
    """
    columns = (*_PLAN, Column("accumulation", positive_whole_number, required=False))
    return check_has_plans(path, read_objects(path, _make_point, *columns))


def predict_step_times(
    measured: Sequence[Measurement], points: Sequence[Point]
) -> list[Prediction]:
    """Predict the steps of plans from measured ones, of which there is at least one.

    A prediction a point.
    """
    return fit(measured).predict(points)


def _make_measurement(row: dict[str, Any]) -> Measurement:
    step_time_s, sync_time_s = row["step_time_s"], row["sync_time_s"]
    if sync_time_s is not None and sync_time_s > step_time_s:
        raise DataError(
            f"{sync_time_s:g} s are more than the step takes",
            field="sync_time_s",
            allowed=f"at most step_time_s, {step_time_s:g}",
        )
    return Measurement(_topology(row), row["micro_batch"], step_time_s, sync_time_s)


def _make_point(row: dict[str, Any]) -> Point:
    return Point(_topology(row), row["micro_batch"], row["accumulation"] or 1)


def _topology(row: dict[str, Any]) -> Topology:
    return Topology.of(row["nodes"], row["gpus"], row["gpus_per_node"])
