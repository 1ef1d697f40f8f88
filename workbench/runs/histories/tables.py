"""Reads tables with runs: a row for each value, or a row for each run.

They are CSV files, lines of JSON, or Parquet files, such as histories that wandb has exported.

Columns with a prefix such as `params.` or `metrics.` say what they are. A column without one is a
hyper-parameter if it has one value in each run, unless its name is that of a metric.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from workbench.foundation.errors import DataError
from workbench.runs.histories.old_runs import (
    OldRun,
    OldRuns,
    OldState,
    Point,
    count_steps,
    flatten,
    key_of,
    parse_number,
    parse_text,
    unix_s,
)
from workbench.runs.histories.run_folders import params_next_to
from workbench.runs.scripts.script_objective import likely_objectives

_PARAM = re.compile(r"^(?:params?|parameters?|config|hparams?|hyperparam\w*)[./_](.+)$", re.I)
_METRIC = re.compile(r"^(?:metrics?|values?|summary|results?)[./_](.+)$", re.I)
_TAG = re.compile(r"^(?:tags?|user_attrs?|system_attrs?)[./_](.+)$", re.I)
_RUN_COLUMNS = (
    *("run_id", "run_uuid", "run", "trial_id", "trial", "number", "run_name", "name"),
    *("ID", "id", "version"),
)
_GROUP_COLUMNS = (
    *("experiment_id", "experiment_name", "experiment", "project", "study_name", "study"),
    *("task", "dataset"),
)
_ALWAYS_STEPS = ("_step", "step", "global_step", "trainer/global_step", "training_iteration")
_STEP_COLUMNS = (*_ALWAYS_STEPS, "iteration", "iter", "epoch", "epochs_done")
_STATE_COLUMNS = ("state", "status")
_BEGIN_COLUMNS = ("start_time", "datetime_start", "created", "createdat", "begun")
_END_COLUMNS = ("end_time", "datetime_complete", "ended")
_TIME_COLUMNS = ("_timestamp", "timestamp", "time_unix_s", "wall_time")
_OTHER_COLUMNS = frozenset(
    (
        "",
        "unnamed: 0",
        "_runtime",
        "_wandb",
        "runtime",
        "notes",
        "user",
        "tags",
        "sweep",
        "artifact_uri",
        "duration",
        "hostname",
        "description",
    )
)
_STATES: dict[str, OldState] = {
    "complete": "complete",
    "finished": "complete",
    "terminated": "complete",
    "pruned": "pruned",
    "stopped": "stopped",
    "killed": "stopped",
    "crashed": "failed",
    "failed": "failed",
    "fail": "failed",
    "error": "failed",
    "running": "running",
    "scheduled": "running",
    "waiting": "running",
}
_WANDB_CHART = re.compile(r"^(.+) - (.+?)(__MIN|__MAX)?$")
_OF_JSON, _PARQUET = (".jsonl", ".ndjson"), ".parquet"
_SUFFIXES = (".csv", ".tsv", *_OF_JSON, _PARQUET)
_Row = dict[str, str]


@dataclass
class _Columns:
    """What the columns of a table are."""

    run: str | None = None
    groups: tuple[str, ...] = ()
    step: str | None = None
    steps: dict[float, int] = field(default_factory=dict)
    state: str | None = None
    begin: str | None = None
    end: str | None = None
    time: str | None = None
    params: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, str] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)


def find_tables(place: Path) -> list[Path]:
    """Return the tables at a place: itself, or those below it."""
    if place.is_file():
        return [place] if place.suffix.lower() in _SUFFIXES else []
    return sorted(path for path in place.rglob("*") if path.suffix.lower() in _SUFFIXES)


def read_tables(
    place: Path, mapping: Mapping[str, str], metric: str | None = None
) -> list[OldRuns]:
    """Read the runs of CSV files.

    Args:
        place: A file, or a folder with one file for each run.
        mapping: New names by old ones. A new name may say what a column is: `params.lr`.
        metric: The objective, which is no hyper-parameter.

    Raises:
        DataError: If a file cannot be read or has no rows.
    """
    if place.is_file():
        return _groups_of_file(place, mapping, metric)
    group = OldRuns("csv", str(place.absolute()), place.absolute().name, [])
    for path in find_tables(place):
        for part in _groups_of_file(path, mapping, metric):
            for run in part.runs:
                _name_after_file(run, path, place, num_runs=len(part.runs))
            group.runs += part.runs
            group.left_out += part.left_out
            group.notes += part.notes
    return [group]


def _name_after_file(run: OldRun, path: Path, root: Path, *, num_runs: int) -> None:
    """Name a run after its file, and add the hyper-parameters in the folder of the file."""
    name = path.relative_to(root).with_suffix("").as_posix()
    run.name = name if num_runs == 1 else f"{name}/{run.name}"
    if path.parent != root and num_runs == 1:
        run.params = {**params_next_to(path.parent), **run.params}
    run.key = key_of(run.key, run.name)


def _groups_of_file(path: Path, mapping: Mapping[str, str], metric: str | None) -> list[OldRuns]:
    heads, rows = _read(path)
    if _is_chart(heads):
        return [_read_chart(path, heads, rows)]
    columns = _named_columns(heads, mapping)
    columns.step = _step_column(heads, rows)
    by_run: dict[tuple[str, ...], list[_Row]] = {}
    for number, row in enumerate(rows):
        by_run.setdefault(_run_of(row, number, columns), []).append(row)
    _sort_columns(columns, heads, by_run, (mapping, metric))
    notes = _set_steps(columns, rows)
    groups: dict[tuple[str, ...], OldRuns] = {}
    for identity, own in by_run.items():
        source = identity[:-1]
        group = groups.get(source)
        if group is None:
            name = "/".join(source) or path.stem
            group = groups[source] = OldRuns("csv", str(path.absolute()), name, [])
        group.runs.append(_run(identity[-1], own, columns, group.left_out))
    first = next(iter(groups.values()))
    first.notes += notes
    if columns.others:
        first.left_out[f"columns: {', '.join(columns.others)}"] += len(columns.others)
    return list(groups.values())


def _read(path: Path) -> tuple[list[str], list[_Row]]:
    """Return the heads and the rows of a table, all values as texts."""
    if path.suffix.lower() in _OF_JSON:
        heads, rows = _of_documents(_json_rows(path))
    elif path.suffix.lower() == _PARQUET:
        import pyarrow.parquet as pq

        heads, rows = _of_documents(pq.read_table(path).to_pylist())
    else:
        heads, rows = _read_csv(path)
    if twice := [head for head, count in Counter(heads).items() if count > 1 and head]:
        raise DataError(f"{path} has the column {twice[0]} twice", field=twice[0])
    if not rows:
        raise DataError(f"{path} has no rows", allowed="a row of names, and rows of values")
    return heads, rows


def _read_csv(path: Path) -> tuple[list[str], list[_Row]]:
    try:
        with path.open(encoding="utf-8-sig", newline="", errors="replace") as file:
            sample = file.read(2**16)
            file.seek(0)
            reader = csv.reader(file, delimiter=_delimiter(sample))
            heads = [head.strip() for head in next(reader, [])]
            return heads, [dict(zip(heads, row, strict=False)) for row in reader if any(row)]
    except (OSError, csv.Error) as error:
        raise DataError(f"{path} cannot be read: {error}", allowed="a CSV file") from error


def _json_rows(path: Path) -> list[Mapping[str, Any]]:
    """Return the objects of a file with one on each line."""
    rows: list[Mapping[str, Any]] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError(f"line {number} is no object")
            rows.append(row)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}", allowed="lines of JSON") from error
    return rows


def _of_documents(documents: Iterable[Mapping[str, Any]]) -> tuple[list[str], list[_Row]]:
    rows = [
        {name: _as_text(value) for name, value in flatten(document).items() if value is not None}
        for document in documents
    ]
    return list(dict.fromkeys(name for row in rows for name in row)), rows


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return repr(value) if isinstance(value, bool | int | float) else json.dumps(value, default=str)


def _delimiter(sample: str) -> str:
    first = sample.partition("\n")[0]
    return max(",;\t", key=first.count)


def _named_columns(heads: Sequence[str], mapping: Mapping[str, str]) -> _Columns:
    """Return the columns that the names alone tell."""
    free = [head for head in heads if head not in mapping]
    groups = [head for head in _GROUP_COLUMNS if head in free]
    if "experiment_id" in groups and "experiment_name" in groups:
        groups.remove("experiment_id")
    return _Columns(
        run=_first(_RUN_COLUMNS, free),
        groups=tuple(groups[:1]),
        state=_first(_STATE_COLUMNS, free),
        begin=_first(_BEGIN_COLUMNS, free),
        end=_first(_END_COLUMNS, free),
        time=_first(_TIME_COLUMNS, free),
    )


def _first(names: Sequence[str], heads: Collection[str]) -> str | None:
    """Return the first of some names that a table has. Capital letters do not matter."""
    plain = {head.lower(): head for head in reversed(list(heads))}
    return next((plain[name.lower()] for name in names if name.lower() in plain), None)


def _run_of(row: _Row, number: int, columns: _Columns) -> tuple[str, ...]:
    groups = tuple(row.get(name, "") for name in columns.groups)
    if columns.run is not None:
        return (*groups, row.get(columns.run, ""))
    return (*groups, "" if columns.step is not None else str(number))


def _sort_columns(
    columns: _Columns,
    heads: Sequence[str],
    by_run: Mapping[tuple[str, ...], list[_Row]],
    given: tuple[Mapping[str, str], str | None],
) -> None:
    """Decide for the other columns whether they are hyper-parameters or metrics."""
    mapping, metric = given
    is_certain = (columns.step or "").lower() in _ALWAYS_STEPS
    if not is_certain and all(len(rows) == 1 for rows in by_run.values()):
        columns.step = None  # `epoch` in a table of results is a setting or a result
    taken = {
        *(columns.run, columns.step, columns.state, columns.begin, columns.end, columns.time),
        *columns.groups,
    }
    has_params = any(_PARAM.match(head) for head in heads)
    for head in heads:
        if head in taken:
            continue
        name = mapping.get(head, head)
        if _PARAM.match(name) or _PARAM.match(head):
            columns.params[head] = without_prefix(head)
        elif _METRIC.match(name) or _METRIC.match(head) or metric in (name, without_prefix(head)):
            columns.metrics[head] = without_prefix(head)
        elif _TAG.match(name) or name.lower() in _OTHER_COLUMNS:
            columns.others.append(head)
        elif _is_metric_column(head, name, by_run, has_params=has_params):
            columns.metrics[head] = head
        else:
            columns.params[head] = head


def without_prefix(head: str) -> str:
    """Return the name in the head of a column such as `params.lr`."""
    match = _PARAM.match(head) or _METRIC.match(head)
    return head if match is None else match[1]


def _is_metric_column(
    head: str, name: str, by_run: Mapping[tuple[str, ...], list[_Row]], *, has_params: bool
) -> bool:
    texts = [{row.get(head, "") for row in rows} for rows in by_run.values()]
    known = {text for own in texts for text in own if text not in ("", "None")}
    if not known or any(parse_number(text) is None for text in known):
        return False
    if has_params or any(len(own - {""}) > 1 for own in texts):
        return True
    return bool(likely_objectives([name]))


def _run(name: str, rows: list[_Row], columns: _Columns, left_out: Counter[str]) -> OldRun:
    params: dict[str, JsonValue] = {}
    for head, param in columns.params.items():
        texts = [row[head] for row in rows if row.get(head, "") != ""]
        if texts:
            params[param] = parse_text(texts[-1])
        if len(set(texts)) > 1:
            left_out[f"values of {head} other than the last one of a run"] += len(set(texts)) - 1
    points = _points(rows, columns, left_out)
    last = rows[-1]
    state = _STATES.get(last.get(columns.state or "", "").strip().lower(), "complete")
    times = [point.time_unix_s for point in points if point.time_unix_s is not None]
    results: dict[str, float] = {}
    if columns.step is None and len(rows) == 1:
        results = {point.metric: point.value for point in points}
        points = []
    return OldRun(
        key_of("csv", name, rows),
        name or "run",
        state,
        params,
        sorted({*(point.metric for point in points), *results}),
        partial(list, points),
        results,
        begun_unix_s=_time(rows[0], columns.begin) or min(times, default=None),
        ended_unix_s=_time(last, columns.end) or max(times, default=None),
    )


def _time(row: _Row, column: str | None) -> float | None:
    text = row.get(column or "", "")
    return unix_s(parse_number(text)) or unix_s(text) if text else None


def _points(rows: list[_Row], columns: _Columns, left_out: Counter[str]) -> list[Point]:
    points: list[Point] = []
    for number, row in enumerate(rows):
        step = _step(row, columns, number)
        if step is None:
            left_out[f"rows without a number in {columns.step}"] += 1
            continue
        time = _time(row, columns.time)
        for head, metric in columns.metrics.items():
            text = row.get(head, "")
            value = parse_number(text) if text else None
            if value is not None:
                points.append(Point(step, metric, value, time))
            elif text not in ("", "None"):
                left_out[f"texts in {head}"] += 1
    points.sort(key=lambda point: point.step)
    return points


def _step(row: _Row, columns: _Columns, number: int) -> int | None:
    if columns.step is None:
        return number
    value = parse_number(row.get(columns.step, ""))
    return None if value is None else columns.steps.get(value)


def _step_column(heads: Sequence[str], rows: Sequence[_Row]) -> str | None:
    """Return the column of steps: the first one of whole numbers, or else of numbers."""
    candidates = [name for name in _STEP_COLUMNS if _first([name], heads)]
    columns = [column for name in candidates if (column := _first([name], heads)) is not None]
    numbers = {head: _step_numbers(head, rows) for head in columns}
    columns = [head for head in columns if numbers[head]]
    if not columns:
        return None
    num_least = len(numbers[columns[0]])
    whole = [head for head in columns if all(map(float.is_integer, numbers[head]))]
    return next((head for head in whole if len(numbers[head]) >= num_least), columns[0])


def _step_numbers(head: str, rows: Sequence[_Row]) -> list[float]:
    numbers = [parse_number(row.get(head, "")) for row in rows]
    return [number for number in numbers if number is not None and math.isfinite(number)]


def _set_steps(columns: _Columns, rows: Sequence[_Row]) -> Counter[str]:
    """Decide which step each row has, and return what was decided."""
    if columns.step is None:
        return Counter()
    numbers = _step_numbers(columns.step, rows)
    columns.steps = count_steps(numbers)
    fractional = sorted({number for number in numbers if not number.is_integer()})
    if not fractional:
        return Counter()
    first = columns.steps[fractional[0]]
    return Counter(
        {
            f"different values in {columns.step}, which are not whole, so the steps are their"
            f" places in order: {fractional[0]:g} is step {first}": len(columns.steps)
        }
    )


def _is_chart(heads: Sequence[str]) -> bool:
    """Return whether a table is a chart that was exported from the pages of wandb."""
    return len(heads) > 1 and all(_WANDB_CHART.match(head) for head in heads[1:])


def _read_chart(path: Path, heads: Sequence[str], rows: list[_Row]) -> OldRuns:
    """Read a chart: a column of steps, and for each run its value, minimum and maximum."""
    group = OldRuns("csv", str(path.absolute()), path.stem, [])
    steps = _Columns(step=heads[0])
    group.notes += _set_steps(steps, rows)
    for head in heads[1:]:
        match = _WANDB_CHART.match(head)
        assert match is not None
        if match[3]:
            group.left_out["columns of minima and maxima"] += 1
            continue
        columns = _Columns(step=heads[0], steps=steps.steps, metrics={head: match[2]})
        own = [row for row in rows if row.get(head)]
        group.runs.append(_run(match[1], own, columns, group.left_out))
    return group
