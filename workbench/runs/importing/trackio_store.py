"""Reads projects of Trackio: one SQLite file each."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

from workbench.runs.importing.old_runs import (
    OldRun,
    OldRuns,
    Point,
    flatten,
    key_of,
    numbers_of,
    unix_s,
)
from workbench.runs.importing.sqlite_file import columns_of, opened, tables_of

COLUMNS = frozenset({"timestamp", "run_name", "step", "metrics"})
"""The columns of its table `metrics`. That of MLflow has others."""
_OWN = "_"


def is_trackio_database(path: Path) -> bool:
    """Return whether a SQLite file is a project of Trackio."""
    if not {"metrics", "configs"} <= tables_of(path):
        return False
    with opened(path) as connection:
        return columns_of(connection, "metrics") >= COLUMNS


def read_trackio_database(path: Path) -> list[OldRuns]:
    """Read the runs of a project.

    Args:
        path: Its file. Its name is that of the project.

    Raises:
        DataError: If it cannot be read.
    """
    group = OldRuns("trackio", str(path.absolute()), path.stem, [])
    rows: defaultdict[str, list[tuple[int, str, dict[str, Any]]]] = defaultdict(list)
    names: dict[str, str] = {}
    configs: dict[str, dict[str, Any]] = {}
    with opened(path) as connection:
        # Early versions know a run only by its name.
        run = "run_id" if "run_id" in columns_of(connection, "metrics") else "run_name"
        for key, name, step, time, metrics in connection.execute(
            f"SELECT {run}, run_name, step, timestamp, metrics FROM metrics"
            f" ORDER BY {run}, step, id"
        ):
            names[key] = name
            rows[key].append((step, time, json.loads(metrics)))
        of_config = "run_id" if "run_id" in columns_of(connection, "configs") else "run_name"
        for key, config in connection.execute(f"SELECT {of_config}, config FROM configs"):
            configs[key] = json.loads(config)
    for key in rows:
        group.runs.append(_run(group, key, names[key], configs.get(key, {}), rows[key]))
    for key in configs.keys() - rows.keys():
        group.left_out[f"without a value: {key}"] += 1
    group.runs.sort(key=lambda item: (item.begun_unix_s or 0.0, item.key))
    return [group]


def _run(
    group: OldRuns,
    key: str,
    name: str,
    config: dict[str, Any],
    rows: list[tuple[int, str, dict[str, Any]]],
) -> OldRun:
    times = [time for time in (unix_s(row[1]) for row in rows) if time is not None]
    metrics = {metric for _, _, values in rows for metric in numbers_of(values)}
    created = config.get("_Created")
    return OldRun(
        key=key if key != name else key_of("trackio", group.source, name, created),
        name=name,
        state="complete",
        params={
            item: value for item, value in flatten(config).items() if not item.startswith(_OWN)
        },
        metrics=sorted(metrics),
        read_points=partial(_points, group, rows),
        begun_unix_s=unix_s(created) or min(times, default=None),
        ended_unix_s=max(times, default=None),
    )


def _points(group: OldRuns, rows: list[tuple[int, str, dict[str, Any]]]) -> list[Point]:
    points: list[Point] = []
    for step, time, values in rows:
        numbers = numbers_of(values)
        points += [Point(step, metric, value, unix_s(time)) for metric, value in numbers.items()]
        if others := len(flatten(values)) - len(numbers):
            group.left_out["values that are no numbers, such as images and texts"] += others
    return points
