"""Reads stores of MLflow: a SQLite file, or a folder such as `mlruns`.

An experiment of MLflow becomes a run, and each of its runs a trial. MLflow stores NaN as a flag,
and infinity as the largest number.
"""

from __future__ import annotations

import math
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from workbench.experiment.yaml_file import read_yaml_file
from workbench.foundation.errors import WorkbenchError
from workbench.runs.importing.old_runs import (
    DELETED,
    OldRun,
    OldRuns,
    OldState,
    Point,
    parse_number,
    parse_text,
    whole_step,
)
from workbench.runs.importing.sqlite_file import connect, opened, translated

TABLES = frozenset({"experiments", "runs", "metrics", "params", "latest_metrics"})
_STATES: dict[str, OldState] = {
    "FINISHED": "complete",
    "FAILED": "failed",
    "KILLED": "stopped",
    "RUNNING": "running",
    "SCHEDULED": "running",
}
_NUMBERED = {1: "RUNNING", 2: "SCHEDULED", 3: "FINISHED", 4: "FAILED", 5: "KILLED"}
_LARGEST = 1.7976931348623157e308
_META = "meta.yaml"
_PARTS = ("metrics", "params")


def read_mlflow_database(path: Path) -> list[OldRuns]:
    """Read the experiments of a SQLite file.

    Args:
        path: The file.

    Raises:
        DataError: If it cannot be read.
    """
    with opened(path) as connection:
        experiments = connection.execute(
            "SELECT experiment_id, name FROM experiments WHERE lifecycle_stage = 'active'"
            " ORDER BY experiment_id"
        ).fetchall()
        params = _by_run(connection)
        metrics: defaultdict[str, list[str]] = defaultdict(list)
        for run, name in connection.execute("SELECT run_uuid, key FROM latest_metrics"):
            metrics[run].append(name)
        groups = [
            _experiment_of_database(path, connection, (number, name), (params, metrics))
            for number, name in experiments
        ]
    return [group for group in groups if group.runs or group.left_out]


def _by_run(connection: sqlite3.Connection) -> dict[str, dict[str, JsonValue]]:
    params: defaultdict[str, dict[str, JsonValue]] = defaultdict(dict)
    for run, name, text in connection.execute("SELECT run_uuid, key, value FROM params"):
        params[run][name] = parse_text(text)
    return params


def _experiment_of_database(
    path: Path,
    connection: sqlite3.Connection,
    experiment: tuple[int, str],
    known: tuple[dict[str, Any], dict[str, list[str]]],
) -> OldRuns:
    group = OldRuns("mlflow", str(path.absolute()), experiment[1], [])
    rows = connection.execute(
        "SELECT run_uuid, name, status, start_time, end_time, lifecycle_stage FROM runs"
        " WHERE experiment_id = ? ORDER BY start_time, run_uuid",
        (experiment[0],),
    )
    points = _Points(path, group.left_out)
    group.close = points.close
    for key, name, status, start_ms, end_ms, stage in rows.fetchall():
        if stage != "active":
            group.left_out[DELETED] += 1
            continue
        group.runs.append(
            OldRun(
                key=key,
                name=name or key,
                state=_STATES.get(status, "stopped"),
                params=known[0].get(key, {}),
                metrics=known[1].get(key, []),
                read_points=partial(points.of, key),
                begun_unix_s=_seconds(start_ms),
                ended_unix_s=_seconds(end_ms),
            )
        )
    return group


class _Points:
    """Reads the values of one run after the other through one connection."""

    def __init__(self, path: Path, left_out: Counter[str]) -> None:
        self._path, self._left_out = path, left_out
        self._connection: sqlite3.Connection | None = None
        self._table = "metrics"

    def of(self, run: str) -> list[Point]:
        """Return the values of a run, by step and time."""
        with translated(self._path):
            if self._connection is None:
                self._connection = connect(self._path)
                self._table = metrics_by_run(self._connection)
            rows = self._connection.execute(
                f"SELECT step, key, value, timestamp, is_nan FROM {self._table} WHERE run_uuid = ?"
                " ORDER BY step, timestamp",
                (run,),
            ).fetchall()
        points: list[Point] = []
        for written, name, value, time_ms, is_nan in rows:  # SQLite does not check types
            step = whole_step(written)
            if step is None or not isinstance(value, int | float):
                self._left_out["values of metrics that cannot be read"] += 1
                continue
            time_unix_s = time_ms / 1000.0 if isinstance(time_ms, int | float) else None
            points.append(Point(step, name, _number(value, is_nan=bool(is_nan)), time_unix_s))
        return points

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()


def metrics_by_run(connection: sqlite3.Connection) -> str:
    """Return a table in which the metrics of one run are found without reading those of all others.

    Stores of older versions of MLflow have no index by run. They are copied to a temporary table
    that has one.

    Args:
        connection: A connection to the store. The store does not change.
    """
    indices = connection.execute("PRAGMA index_list(metrics)").fetchall()
    firsts = {
        connection.execute(f"PRAGMA index_info('{name}')").fetchone()[2] for _, name, *_ in indices
    }
    if "run_uuid" in firsts:
        return "metrics"
    connection.execute("PRAGMA query_only = 0")  # the file itself is open to read alone
    connection.execute(
        "CREATE TEMPORARY TABLE metrics_by_run AS"
        " SELECT run_uuid, step, key, value, timestamp, is_nan FROM metrics"
    )
    connection.execute("CREATE INDEX temp.runs_of_metrics ON metrics_by_run (run_uuid)")
    connection.commit()
    connection.execute("PRAGMA query_only = 1")
    return "metrics_by_run"


def _number(value: float, *, is_nan: bool) -> float:
    if is_nan:
        return math.nan
    if abs(value) >= _LARGEST:
        return math.copysign(math.inf, value)
    return value


def _seconds(milliseconds: int | None) -> float | None:
    return None if not milliseconds else milliseconds / 1000.0


def is_mlflow_folder(folder: Path) -> bool:
    """Return whether a folder is a file store of MLflow, or one of its experiments."""
    return next(_experiment_folders(folder), None) is not None


def read_mlflow_folder(folder: Path) -> list[OldRuns]:
    """Read the experiments of a file store, or one experiment.

    Args:
        folder: The folder, such as `mlruns`.
    """
    groups = [_experiment_of_folder(folder, place, meta) for place, meta in _experiments(folder)]
    return [group for group in groups if group.runs or group.left_out]


def _experiments(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    for place in _experiment_folders(folder):
        meta = _meta(place)
        if meta is not None and meta.get("lifecycle_stage") != "deleted":
            yield place, meta


def _experiment_folders(folder: Path) -> Iterator[Path]:
    for place in (folder, *sorted(path for path in folder.iterdir() if path.is_dir())):
        path = place / _META
        if place.name != ".trash" and path.is_file():
            meta = _meta(place)
            if meta is not None and "experiment_id" in meta and "run_id" not in meta:
                yield place


def _meta(folder: Path) -> dict[str, Any] | None:
    try:
        meta = read_yaml_file(folder / _META, holds="a run or an experiment of MLflow")
    except WorkbenchError:
        return None
    return dict(meta) if isinstance(meta, dict) else None


def _experiment_of_folder(root: Path, folder: Path, meta: dict[str, Any]) -> OldRuns:
    name = str(meta.get("name", folder.name))
    group = OldRuns("mlflow", str(root.absolute()), name, [])
    for place in sorted(path for path in folder.iterdir() if path.is_dir()):
        if not (place / _META).is_file():
            continue
        run = _meta(place)
        if run is None or "run_id" not in run:
            group.left_out[f"without a {_META} that can be read"] += 1
        elif run.get("lifecycle_stage") == "deleted":
            group.left_out[DELETED] += 1
        else:
            group.runs.append(_run_of_folder(place, run, group.left_out))
    group.runs.sort(key=lambda item: (item.begun_unix_s or 0.0, item.key))
    return group


def _run_of_folder(folder: Path, meta: dict[str, Any], left_out: Counter[str]) -> OldRun:
    names = {
        part: [str(path.relative_to(folder / part)) for path in _files(folder / part)]
        for part in _PARTS
    }
    status = _NUMBERED.get(meta.get("status", 0), str(meta.get("status")))
    params = {name: parse_text(_text(folder / "params" / name)) for name in names["params"]}
    return OldRun(
        key=str(meta["run_id"]),
        name=str(meta.get("run_name") or meta["run_id"]),
        state=_STATES.get(status, "stopped"),
        params=params,
        metrics=names["metrics"],
        read_points=partial(_points_of_folder, folder / "metrics", names["metrics"], left_out),
        begun_unix_s=_seconds(meta.get("start_time")),
        ended_unix_s=_seconds(meta.get("end_time")),
    )


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _points_of_folder(folder: Path, names: list[str], left_out: Counter[str]) -> list[Point]:
    """Return the values of a run. A line has a time in milliseconds, a value and a step."""
    points: list[Point] = []
    for name in names:
        for line in _text(folder / name).splitlines():
            parts = line.split()
            value = parse_number(parts[1]) if len(parts) > 1 else None
            step = whole_step(parts[2]) if len(parts) > 2 else 0
            if value is None or step is None or not parts[0].isdecimal():
                left_out["lines of metrics that cannot be read"] += 1
                continue
            points.append(Point(step, name, value, int(parts[0]) / 1000.0))
    points.sort(key=lambda point: (point.step, point.time_unix_s or 0.0))
    return points
