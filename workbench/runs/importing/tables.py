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
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from workbench.data.number_texts import (
    DECIMAL_COMMA,
    NumberText,
    is_marker,
    number_text_of,
    plain_signs,
    shows_decimal_commas,
)
from workbench.data.text_layout import open_text
from workbench.foundation.errors import DataError
from workbench.runs.importing.old_runs import (
    OldRun,
    OldRuns,
    OldState,
    Point,
    are_numbers,
    count_steps,
    flatten,
    is_seed,
    key_of,
    parse_number,
    parse_text,
    unix_s,
)
from workbench.runs.importing.run_folders import params_next_to
from workbench.runs.scripts.objective_ranking import likely_objectives

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
_STEP_COLUMNS = (
    *(*_ALWAYS_STEPS, "iteration", "iter", "epoch", "epochs_done", "round", "episode"),
    *("time/total_timesteps", "time/iterations", "total_timesteps", "timesteps", "timestep"),
)
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
_SAID = re.compile(r"\ufeff?sep=.", re.IGNORECASE)
_TIME = re.compile(r"time|date|elapsed|second|created|_s$|_ms$|_per_", re.IGNORECASE)
_DIGIT = re.compile(r"\d")
_Row = dict[str, str]


@dataclass
class _Table:
    """What a file holds, all values as texts, and the line of each row."""

    path: Path
    heads: list[str]
    rows: list[_Row] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    separator: str = ""


@dataclass
class _Columns:
    """What the columns of a table are."""

    run: str | None = None
    id: str | None = None
    """The column that tells runs of the same name apart."""
    are_rows: bool = False
    """Whether rows of the same name are runs of their own."""
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
    texts: dict[str, str] = field(default_factory=dict)
    """The first text of a metric that is no number, and its line."""


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
    table = _read(path)
    heads, rows = table.heads, table.rows
    texts = _read_numbers(table, (*mapping, metric or ""))
    if _is_chart(heads):
        chart = _read_chart(path, heads, rows)
        chart.notes += texts
        return [chart]
    columns = _named_columns(heads, mapping)
    columns.step = _step_column(heads, rows)
    texts += _tell_runs(columns, [head for head in heads if head not in mapping], rows)
    by_run: dict[tuple[str, ...], list[_Row]] = {}
    for number, row in enumerate(rows):
        by_run.setdefault(_run_of(row, number, columns), []).append(row)
    _sort_columns(columns, heads, by_run, (mapping, metric))
    notes = texts + _check_metrics(table, columns, metric) + _set_steps(columns, rows)
    groups: dict[tuple[str, ...], OldRuns] = {}
    num_named: Counter[tuple[str, ...]] = Counter()
    num_equal: Counter[str] = Counter()
    for identity, own in by_run.items():
        source, token = identity[:-2], identity[-1]
        name = identity[-2] or token
        num_named[(*source, name)] += 1
        if (count := num_named[(*source, name)]) > 1:
            name += f" ({token if columns.id else count})"
        group = groups.get(source)
        if group is None:
            name = "/".join(source) or path.stem
            group = groups[source] = OldRuns("csv", str(path.absolute()), name, [])
        # The key does not depend on the other rows, so that the table can grow.
        key = key_of("csv", identity[-2], own)
        run = _run(key, name, own, columns, group.left_out)
        num_equal[run.key] += 1
        if num_equal[run.key] > 1:
            run.key = key_of(run.key, num_equal[run.key])
        group.runs.append(run)
    first = next(iter(groups.values()))
    first.notes += notes
    if columns.others:
        first.left_out[f"columns: {', '.join(columns.others)}"] += len(columns.others)
    return list(groups.values())


def _read(path: Path) -> _Table:
    """Return a table, all values as texts."""
    if path.suffix.lower() in _OF_JSON:
        table = _of_documents(path, _json_rows(path))
    elif path.suffix.lower() == _PARQUET:
        import pyarrow.parquet as pq

        table = _of_documents(path, pq.read_table(path).to_pylist())
    else:
        table = _read_csv(path)
    if twice := [head for head, count in Counter(table.heads).items() if count > 1 and head]:
        raise DataError(f"{path} has the column {twice[0]} twice", field=twice[0])
    if not table.rows:
        raise DataError(f"{path} has no rows", allowed="a row of names, and rows of values")
    return table


def _read_csv(path: Path) -> _Table:
    try:
        with open_text(path, field="place") as file:
            sample = file.read(2**16)
        with open_text(path, field="place") as file:
            separator = _delimiter(sample)
            if _SAID.fullmatch(sample.partition("\n")[0].strip()):  # as Excel writes it
                separator = file.readline().strip()[-1]
            reader = csv.reader(file, delimiter=separator)
            heads = [head.strip() for head in next(reader, [])]
            table = _Table(path, heads, separator=separator)
            for row in reader:
                if any(row[len(heads) :]):
                    raise DataError(
                        f"{path}: line {reader.line_num} has {len(row)} cells, but there are"
                        f" {len(heads)} columns",
                        field="place",
                        next_step="Put texts and numbers with commas in quotation marks.",
                    )
                if any(row):
                    table.rows.append(dict(zip(heads, row, strict=False)))
                    table.lines.append(reader.line_num)
            return table
    except (OSError, csv.Error, UnicodeError) as error:
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


def _of_documents(path: Path, documents: Iterable[Mapping[str, Any]]) -> _Table:
    rows = [
        {name: _as_text(value) for name, value in flatten(document).items() if value is not None}
        for document in documents
    ]
    heads = list(dict.fromkeys(name for row in rows for name in row))
    return _Table(path, heads, rows, list(range(1, len(rows) + 1)))


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return repr(value) if isinstance(value, bool | int | float) else json.dumps(value, default=str)


def _delimiter(sample: str) -> str:
    first = sample.partition("\n")[0]
    return max(",;\t|", key=first.count)


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
    """Return the first of some names that a table has.

    Capital letters do not matter, and spaces are underscores: the pages of MLflow write `Run ID`.
    """
    plain = {head.lower().replace(" ", "_"): head for head in reversed(list(heads))}
    return next((plain[name.lower()] for name in names if name.lower() in plain), None)


def _run_of(row: _Row, number: int, columns: _Columns) -> tuple[str, ...]:
    """Return the group of a row, the name of its run, and what tells it from others of the name."""
    groups = tuple(row.get(name, "") for name in columns.groups)
    name = "" if columns.run is None else row.get(columns.run, "")
    if columns.id is not None:
        return (*groups, name, row.get(columns.id, ""))
    is_row = columns.are_rows or (columns.run is None and columns.step is None)
    return (*groups, name, str(number) if is_row else "")


def _tell_runs(columns: _Columns, heads: Sequence[str], rows: Sequence[_Row]) -> Counter[str]:
    """Decide how runs of the same name are told apart, and return what was decided."""
    candidates = [head for name in _RUN_COLUMNS if (head := _first([name], heads)) is not None]
    others = [head for head in dict.fromkeys(candidates) if head != columns.run]
    counts = Counter(_run_of(row, 0, columns) for row in rows)
    num_shared = sum(count for count in counts.values() if count > 1)
    if columns.run is None or not num_shared:
        return Counter()
    same = f"rows have the same {columns.run} as another one"
    unique = [head for head in others if _is_unique(head, columns, rows)]
    if columns.step is not None:
        if not _clash(columns, heads, rows):
            return Counter()
        for head in (*(head for head in others if head not in unique), *unique):
            apart = replace(columns, id=head)
            if all(row.get(head) for row in rows) and not _clash(apart, heads, rows):
                columns.id = head
                return Counter({f"{same}, so {head} tells the runs apart": num_shared})
        if not _are_results(columns, heads, rows) or _is_curve(columns, heads, rows):
            return Counter()  # the later values replace the others, which is counted
        if columns.step.lower() not in _ALWAYS_STEPS:
            columns.step = None
    elif unique:
        columns.id = unique[0]
        return Counter({f"{same}, so {unique[0]} tells the runs apart": num_shared})
    elif _is_curve(columns, heads, rows):
        return Counter({f"{same}, and are its steps in their order": num_shared})
    columns.are_rows = True
    return Counter({f"{same}, and are runs of their own": num_shared})


def _is_unique(head: str, columns: _Columns, rows: Sequence[_Row]) -> bool:
    values = [(*(row.get(name, "") for name in columns.groups), row.get(head, "")) for row in rows]
    return len(set(values)) == len(rows) and all(value[-1] for value in values)


def _compared(heads: Iterable[str]) -> list[str]:
    """Return the columns that may tell runs apart: settings and results, but no times or names."""
    apart = {name.lower() for name in (*_RUN_COLUMNS, *_GROUP_COLUMNS, *_STEP_COLUMNS)}
    apart |= {*_STATE_COLUMNS, *_OTHER_COLUMNS}
    return [
        head
        for head in heads
        if head.lower().replace(" ", "_") not in apart and not _TIME.search(head)
    ]


def _clash(columns: _Columns, heads: Sequence[str], rows: Sequence[_Row]) -> bool:
    """Return whether a run would have two values of a setting, or of a metric at one step."""
    compared = _compared(heads)
    settings = [head for head in compared if _PARAM.match(head) or is_seed(head)]
    runs = [_run_of(row, 0, columns) for row in rows]
    steps = [row.get(columns.step or "", "") for row in rows]
    if len(set(zip(runs, steps, strict=True))) == len(rows):
        compared = settings  # no metric can have two values at a step
    known: dict[tuple[str, ...], str] = {}
    for row, run, step in zip(rows, runs, steps, strict=True):
        for head in compared:
            if not (text := row.get(head, "")):
                continue
            place = (*run, head) if head in settings else (*run, step, head)
            if known.setdefault(place, text) != text:
                return True
    return False


def _are_results(columns: _Columns, heads: Sequence[str], rows: Sequence[_Row]) -> bool:
    """Return whether rows of the same name are results of different trainings, not one curve."""
    seeds = [head for head in heads if is_seed(head)]
    values: dict[tuple[str, ...], set[str]] = {}
    for row in rows:
        for head in (columns.step or "", *seeds):
            values.setdefault((*_run_of(row, 0, columns), head), set()).add(row.get(head, ""))
    has_seeds = any(len(own) > 1 for place, own in values.items() if place[-1] in seeds)
    return has_seeds or all(len(own) == 1 for own in values.values())


def _is_curve(columns: _Columns, heads: Sequence[str], rows: Sequence[_Row]) -> bool:
    """Return whether rows of the same name differ in metrics only."""
    known: dict[tuple[str, ...], str] = {}
    settings = [
        head
        for head in _compared(heads)
        if not _METRIC.match(head) and not likely_objectives([head])
    ]
    return not any(
        known.setdefault((*_run_of(row, 0, columns), head), row.get(head, "")) != row.get(head, "")
        for row in rows
        for head in settings
    )


def _read_numbers(table: _Table, wanted: Collection[str]) -> Counter[str]:
    """Write the numbers of a table plainly, such as 91%, 1,024 or 0,5, and return what was done.

    Args:
        table: The table, which is changed.
        wanted: Names of columns that somebody has named.
    """
    others: dict[str, list[str]] = {}
    for head in table.heads:
        texts = [text for row in table.rows if (text := row.get(head, ""))]
        if not are_numbers(texts) and any(map(_DIGIT.search, texts)):
            others[head] = [text for text in map(str.strip, texts) if text]
    notes: Counter[str] = Counter()
    if not others:
        return notes
    import pandas as pd

    is_of_commas = False
    if table.separator in (";", "\t", "|"):
        columns = [[row.get(head, "") for row in table.rows] for head in table.heads]
        is_of_commas = shows_decimal_commas(columns, are_usual=True) is not False
    for head, texts in others.items():
        is_metric = bool(_METRIC.match(head) or likely_objectives([head]))
        values = pd.Series(texts, dtype=object)
        values.attrs[DECIMAL_COMMA] = is_of_commas
        form = number_text_of(values, min_share=0.5 if is_metric else 1.0)
        if form is None or form.unit not in ("", "%"):
            continue
        has_commas = form.has_thousands or form.has_decimal_comma
        # In a setting, 64,32 may also be a list of layers, but 0,1 is none.
        is_clear = any("," not in text or text.lstrip("+-").startswith("0,") for text in texts)
        is_clear = is_clear and (is_of_commas or form.has_thousands)
        if has_commas and not is_metric and not is_clear:
            first = next(text for text in texts if "," in text)
            notes[f"texts in {head}, such as {first}, stay texts, as they may be lists"] += len(
                texts
            )
            continue
        notes += _write_plainly(table, head, form)
    return notes


def _write_plainly(table: _Table, head: str, form: NumberText) -> Counter[str]:
    notes: Counter[str] = Counter()
    reason = ""
    for row in table.rows:
        text = row.get(head, "").strip()
        is_other = plain_signs(text).lower() in form.missing or is_marker(text)
        if is_other or (parse_number(text) is not None and not form.has_decimal_comma):
            continue
        number = form.parse(text)
        row[head] = str(int(number)) if number.is_integer() else repr(number)
        reason = reason or f"texts in {head} are read as numbers, such as {text} as {row[head]}"
        notes[reason] += row[head] != text
    return +notes


def _check_metrics(table: _Table, columns: _Columns, metric: str | None) -> Counter[str]:
    """Refuse a table whose metric has no numbers, with the first text that is none.

    Returns:
        The columns with the name of a metric that are none, if there are metrics.
    """
    notes: Counter[str] = Counter()
    for head in columns.metrics:
        texts = [row.get(head, "") for row in table.rows]
        if are_numbers([text for text in texts if text not in ("", "None")]):
            continue
        columns.texts[head] = next(
            f"such as {text!r} in line {line}"
            for line, text in zip(table.lines, texts, strict=True)
            if text not in ("", "None") and parse_number(text) is None
        )
    usable = [head for head in columns.metrics if _first_text(table, head) is None]
    for head in (*columns.metrics, *columns.params):
        is_metric = head in columns.metrics or bool(likely_objectives([head]))
        problem = _first_text(table, head) if is_metric else None
        if problem is None:
            continue
        line, text = problem
        if usable and metric not in (head, without_prefix(head)):
            if _DIGIT.search(text):
                notes[f"column named like a metric has no number: {head} has {text!r}"] += 1
            continue
        raise DataError(
            f"{table.path} has no number in the column {head}: line {line} has {text!r}",
            field=head,
            allowed="numbers such as 0.91, 91% or 1,024.5",
        )
    return notes


def _first_text(table: _Table, head: str) -> tuple[int, str] | None:
    """Return the first line of a column without a number, and its text, or None."""
    problem = None
    for line, row in zip(table.lines, table.rows, strict=True):
        text = row.get(head, "")
        if text and parse_number(text) is not None:
            return None
        if text and problem is None:
            problem = line, text
    return problem


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
        elif not head and not any(row.get("") for rows in by_run.values() for row in rows):
            continue  # what is behind a comma at the end of each line
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
    known = {row.get(head, "") for rows in by_run.values() for row in rows} - {"", "None"}
    if not known:
        return False
    if not are_numbers(known):
        cells = [row[head] for rows in by_run.values() for row in rows if row.get(head)]
        num_numbers = sum(parse_number(text) is not None for text in cells)
        return 2 * num_numbers >= len(cells) and bool(likely_objectives([name]))
    if has_params or any(
        len({text for row in rows if (text := row.get(head, ""))}) > 1 for rows in by_run.values()
    ):
        return True
    return bool(likely_objectives([name]))


def _run(
    key: str, name: str, rows: list[_Row], columns: _Columns, left_out: Counter[str]
) -> OldRun:
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
        key=key,
        name=name or "run",
        state=state,
        params=params,
        metrics=sorted({*(point.metric for point in points), *results}),
        read_points=partial(list, points),
        results=results,
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
        time = None if columns.time is None else _time(row, columns.time)
        for head, metric in columns.metrics.items():
            text = row.get(head, "")
            value = parse_number(text) if text else None
            if value is not None:
                points.append(Point(step, metric, value, time))
            elif text not in ("", "None"):
                example = columns.texts.get(head, f"such as {text!r}")
                left_out[f"texts in {head}, {example}"] += 1
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
        key = key_of("csv", match[1], own)
        group.runs.append(_run(key, match[1], own, columns, group.left_out))
    return group
