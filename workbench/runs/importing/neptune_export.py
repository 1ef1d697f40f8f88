"""Reads what neptune-exporter has written: Parquet files with one row for each value.

Its columns say which run and which attribute a row is about, and of what type. A project becomes a
run.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from workbench.foundation.errors import DataError
from workbench.runs.importing.old_runs import OldRun, OldRuns, OldState, Point, count_steps
from workbench.runs.scripts.objective_ranking import likely_objectives

COLUMNS = frozenset({"project_id", "run_id", "attribute_path", "attribute_type", "step"})
_READ = (
    *("project_id", "run_id", "attribute_path", "attribute_type", "step", "timestamp"),
    *("int_value", "float_value", "string_value", "bool_value", "datetime_value"),
)
_SERIES = "float_series"
_VALUES = {
    "int": "int_value",
    "float": "float_value",
    "string": "string_value",
    "bool": "bool_value",
    "datetime": "datetime_value",
}
_SYSTEM = ("sys/", "monitoring/", "source_code/", "git/")
_PARAMS = re.compile(
    r"^(?:.*/)?(?:parameters?|params?|hyperparam\w*|hparams?|config\w*|args?)/(.+)$", re.IGNORECASE
)
_NAMES = ("sys/name", "sys/custom_run_id", "sys/id")


@dataclass
class _Run:
    project: str
    attributes: dict[str, Any] = field(default_factory=dict)
    points: list[tuple[float, Point]] = field(default_factory=list)
    """Each with the step that was written, which may be fractional."""


def find_parquet_files(place: Path) -> list[Path]:
    """Return the Parquet files at a place: itself, or those below it."""
    if place.is_file():
        return [place] if place.suffix == ".parquet" else []
    return sorted(place.rglob("*.parquet"))


def is_neptune_export(place: Path) -> bool:
    """Return whether a place has Parquet files with the columns of neptune-exporter."""
    paths = find_parquet_files(place)
    return bool(paths) and set(_parquet(paths[0]).schema_arrow.names) >= COLUMNS


def _parquet(path: Path) -> Any:
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}", allowed="a Parquet file") from error


def read_neptune_export(place: Path) -> list[OldRuns]:
    """Read the runs of an export.

    Args:
        place: A Parquet file, or the folder that contains them.

    Raises:
        DataError: If a file cannot be read.
    """
    runs: dict[tuple[str, str], _Run] = {}
    left_out: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for path in find_parquet_files(place):
        for row in _rows(path):
            key = row["project_id"], row["run_id"]
            run = runs.setdefault(key, _Run(row["project_id"]))
            _apply(run, row, left_out[row["project_id"]])
    groups: dict[str, OldRuns] = {}
    written: defaultdict[str, set[float]] = defaultdict(set)
    for (project, _), run in runs.items():
        written[project].update(step for step, _ in run.points)
    steps = {project: count_steps(values) for project, values in written.items()}
    for (project, run_id), run in runs.items():
        group = groups.setdefault(project, OldRuns("neptune", str(place.absolute()), project, []))
        group.runs.append(_old_run(project, run_id, run, steps.get(project, {})))
    for project, whole in steps.items():
        if any(not step.is_integer() for step in whole):
            groups[project].notes[
                "different steps that are not all whole, so they are counted in their order"
            ] += len(whole)
    for project, counts in left_out.items():
        groups[project].left_out += counts
    return list(groups.values())


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    file = _parquet(path)
    missing = COLUMNS - set(file.schema_arrow.names)
    if missing:
        raise DataError(
            f"{path} has no column {sorted(missing)[0]}", allowed="files of neptune-exporter"
        )
    columns = [name for name in _READ if name in file.schema_arrow.names]
    for batch in file.iter_batches(columns=columns):
        yield from batch.to_pylist()


def _apply(run: _Run, row: dict[str, Any], left_out: Counter[str]) -> None:
    path, kind = row["attribute_path"], row["attribute_type"]
    if kind == _SERIES:
        if row.get("float_value") is None or row.get("step") is None:
            left_out["values of a series without a step or a number"] += 1
        elif not path.startswith(_SYSTEM):
            time = row.get("timestamp")
            time_unix_s = None if time is None else time.timestamp()
            point = Point(0, path, row["float_value"], time_unix_s)
            run.points.append((float(row["step"]), point))
    elif kind in _VALUES:
        run.attributes[path] = row.get(_VALUES[kind])
    else:
        left_out[f"attributes of the type {kind}"] += 1


def _old_run(project: str, run_id: str, run: _Run, steps: dict[float, int]) -> OldRun:
    params: dict[str, JsonValue] = {}
    results: dict[str, float] = {}
    for path, value in run.attributes.items():
        if match := _PARAMS.match(path):
            params[match[1]] = value
        elif path.startswith(_SYSTEM):
            continue
        elif type(value) in (int, float) and likely_objectives([path]):
            results[path] = float(value)
        else:
            params[path] = value if isinstance(value, int | float | str) else str(value)
    points = [point._replace(step=steps[at]) for at, point in run.points if at in steps]
    times = [point.time_unix_s for point in points if point.time_unix_s is not None]
    created = run.attributes.get("sys/creation_time")
    points.sort(key=lambda point: point.step)
    names = [run.attributes[name] for name in _NAMES if run.attributes.get(name)]
    return OldRun(
        key=f"{project}/{run_id}",
        name=str(names[0]) if names else run_id,
        state=_state(run.attributes),
        params=params,
        metrics=sorted({point.metric for point in points} | results.keys()),
        read_points=partial(list, points),
        results=results,
        begun_unix_s=created.timestamp() if created is not None else min(times, default=None),
        ended_unix_s=max(times, default=None),
    )


def _state(attributes: dict[str, Any]) -> OldState:
    if attributes.get("sys/failed") is True:
        return "failed"
    return "running" if attributes.get("sys/state") in ("Active", "running") else "complete"
