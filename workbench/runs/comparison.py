"""Several runs next to each other: their curves in one figure, and their results in one table.

The table has their results, their best parameters, and the settings that differ. Each cell is text,
so that the panel, the terminal and Python show the same.
"""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import BaseModel

from workbench.experiment import Component, Experiment
from workbench.experiment.automl import shown_metric
from workbench.experiment.components import EMBEDDED_PREFIX
from workbench.experiment.domain import Domain
from workbench.experiment.goals import sign_of
from workbench.foundation.errors import ExperimentError, RunNotFoundError
from workbench.foundation.formatting import (
    format_count,
    format_duration,
    format_number,
    format_value,
)
from workbench.runs.descriptions import format_counts
from workbench.runs.progress import elapsed_s
from workbench.runs.run import Run, attach, open_existing_store
from workbench.runs.run_figures import data_of
from workbench.store.database import RunRow, Store
from workbench.store.history import History, Trial
from workbench.store.history.run_clock import NAME as RUN_TIME

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from workbench.runs.plots.prepare_comparison import ComparisonAxis

_COLUMNS = ("part", "name", "differs")
Part = Literal["result", "best parameters", "experiment", "versions"]
_MAX_CELL = 200
_MAX_NAMED = 2
_MAX_WORDS = 28
_DEFAULT = "default"
_NAMED = ("model", "data", "train", "loss")
_NAME_FIELDS = {"sampler.options.": "name", "early_stop.options.": "pruner"}
_OF_MODELS = ("training", "loss", "federated", "plan")
"""Sections that mean nothing to a train function or a command, but for the workers of its plan."""


def compare(
    *runs: Run | str,
    metric: str | None = None,
    axis: ComparisonAxis = "time",
    store: Store | str | None = None,
) -> Figure:
    """Draw the best value of several runs over time. The legend has the best of each.

    Args:
        *runs: Runs, their ids, beginnings that only one run has, "last", names, or patterns such as
            `digits-*`. A name or a pattern means all runs that match it.
        metric: The metric to compare, or None for the first objective of each run, on one scale per
            metric.
        axis: "time", "epoch", "trial", or "cost": the time of all workers together.
        store: Where they are kept, if only their ids are given, or None for the usual store.

    Raises:
        ExperimentError: If no run is named, or the axis or the metric is unknown.
        RunNotFoundError: If there is no such run.

    Example:
        >>> figure = wb.compare(run, "last", axis="trial")
    """
    from workbench.runs.plots.figures_comparison import draw_comparison
    from workbench.runs.plots.prepare_comparison import COMPARISON_AXES

    if axis not in COMPARISON_AXES:
        raise ExperimentError(f"unknown axis {axis!r}", field="axis", allowed=COMPARISON_AXES)
    compared = find_runs(runs, store=store)
    labels = labels_of([Side(run.row, run.history) for run in compared])
    data = {label: data_of(run.stored) for label, run in zip(labels, compared, strict=True)}
    known = list(
        dict.fromkeys(name for run_data in data.values() for name in run_data.series.metrics)
    )
    if metric is not None and metric not in known:
        raise ExperimentError(f"no trial reported {metric!r}", field="metric", allowed=known)
    return draw_comparison(data, metric=metric, axis=axis)


def compare_table(*runs: Run | str, store: Store | str | None = None) -> list[dict[str, Any]]:
    """Return several runs side by side, as the rows that `workbench compare --all` prints.

    Args:
        *runs: As in `compare`.
        store: As in `compare`.

    Returns:
        One mapping per row: `part` ("result", "best parameters", "experiment" or "versions"),
        `name`, whether the runs differ in it as `differs`, and for each run, under its name, its
        cell as text, or None if it has none. Runs of one name are distinguished by their settings
        or ids.

    Raises:
        ExperimentError: If no run is named.
        RunNotFoundError: If there is no such run.

    Example:
        >>> rows = wb.compare_table(run, "last")  # pandas.DataFrame(rows) is the table
        >>> [row["name"] for row in rows if row["part"] == "result"]
        ['best val_loss', 'best trial', 'state', 'trials', 'run time']
    """
    sides = [Side(run.row, run.history) for run in find_runs(runs, store=store)]
    columns = []
    for label, side in zip(labels_of(sides), sides, strict=True):
        if label in _COLUMNS:  # a run may be named like a column of the table
            label = f"{label} ({side.row.run_id})"
        columns.append(label)
    return [
        dict(zip(_COLUMNS, (row.part, row.name, row.differs), strict=True))
        | dict(zip(columns, row.cells, strict=True))
        for row in comparison_rows(sides)
    ]


def find_runs(runs: Sequence[Run | str], *, store: Store | str | None = None) -> list[Run]:
    """Return the runs that are named, each once, in their order.

    Arguments and errors as in `compare`.
    """
    if not runs:
        raise ExperimentError(
            "there is nothing to compare",
            field="runs",
            next_step="Name runs: wb.compare(first, second).",
        )
    runs_by_id: dict[str, Run] = {}
    for run in runs:
        if isinstance(run, Run):
            matching = [run]
        else:
            matching = _named(open_existing_store(store), run)
        for match in matching:
            runs_by_id.setdefault(match.run_id, match)
    return list(runs_by_id.values())


def _named(store: Store, name: str) -> list[Run]:
    matching = find_named(store.runs(), name)
    if matching:
        return [Run(store, row.run_id) for row in matching]
    if any(sign in name for sign in "*?["):
        raise RunNotFoundError(
            f"no run matches {name!r}", next_step="List the runs: workbench list"
        )
    return [attach(name, store=store)]


class Side(NamedTuple):
    """One of the runs that are compared."""

    row: RunRow
    history: History


@dataclass(frozen=True)
class ComparisonRow:
    """One line of the table.

    Attributes:
        name: A fact, a parameter, the dotted path of a setting, or a package.
        cells: One per run, or None if a run has none.
        differs: Whether the runs differ in it. Only compared results count.
        best: Position of the best cell, or None if no cell is better than all others.
    """

    part: Part
    name: str
    cells: tuple[str | None, ...]
    differs: bool = False
    best: int | None = None


def find_named(rows: Sequence[RunRow], pattern: str) -> list[RunRow]:
    """Return the runs that a name matches, the newest first.

    Args:
        rows: All runs.
        pattern: A run id, a name (all runs of it), or a pattern of either such as `digits-*`.
    """
    wanted = pattern.strip().casefold()
    is_pattern = any(sign in wanted for sign in "*?[")
    matching = []
    for row in rows:
        names = (row.run_id.casefold(), row.name.casefold())
        if wanted in names or (
            is_pattern and any(fnmatch.fnmatchcase(name, wanted) for name in names)
        ):
            matching.append(row)
    return sorted(matching, key=lambda row: -row.created_unix_s)


def labels_of(sides: Sequence[Side]) -> tuple[str, ...]:
    """Return a name for each run that no other has.

    Runs of one name are distinguished by their settings.
    """
    names = [side.row.name for side in sides]
    settings = _with_defaults(sides)
    labels = []
    for index, name in enumerate(names):
        same = [place for place, other in enumerate(names) if other == name]
        if len(same) > 1:
            name = f"{name} ({_difference(settings, same, index)})"
        labels.append(name)
    counts = Counter(labels)
    for index, side in enumerate(sides):
        if counts[labels[index]] > 1:  # their settings are the same, so only ids tell them apart
            labels[index] = f"{names[index]} ({side.row.run_id})"
    return tuple(labels)


def comparison_rows(sides: Sequence[Side]) -> tuple[ComparisonRow, ...]:
    """Return the table of some runs: results first, then parameters, settings and versions."""
    best: list[Trial | None] = [None] * len(sides)
    versions: list[dict[str, str]] = [{} for _ in sides]
    for at, side in enumerate(sides):
        # With several objectives no trial is the best.
        if len(side.history.objectives) == 1:
            best[at] = side.history.best()
        if side.history.drivers:
            versions[at] = dict(side.history.drivers[-1].versions)
    params = [dict(trial.params) if trial else {} for trial in best]
    return (
        *_results(sides, best),
        *_by_name("best parameters", params),
        *_by_name("experiment", _with_defaults(sides)),
        *_by_name("versions", versions),
    )


def legend_of(rows: Sequence[ComparisonRow]) -> dict[str | None, str]:
    """Return the marks in cells of settings that a run does not set, and what each means.

    Args:
        rows: The rows that are shown. Marks that none of them has are omitted.
    """
    cells = {cell for row in rows if row.part == "experiment" for cell in row.cells}
    meanings = {_DEFAULT: "the setting has its default", None: "the run has no such setting"}
    return {cell: meaning for cell, meaning in meanings.items() if cell in cells}


def _results(sides: Sequence[Side], best: Sequence[Trial | None]) -> list[ComparisonRow]:
    facts: dict[str, Callable[[Side], str | None]] = {
        "state": lambda side: side.row.state,
        "trials": lambda side: format_counts(side.history) or None,
        RUN_TIME.lower(): lambda side: format_duration(elapsed_s(side.row, side.history)),
    }
    rows = [
        ComparisonRow("result", name, tuple(write(side) for side in sides))
        for name, write in facts.items()
    ]
    return [*_best_values(sides), *_best_trials(best), *_versions_of_code(sides, best), *rows]


def _versions_of_code(sides: Sequence[Side], best: Sequence[Trial | None]) -> list[ComparisonRow]:
    """Return which version of the code the best trials ran, if a run has several."""
    if all(len(side.history.programs) < 2 for side in sides):
        return []
    cells: list[str | None] = []
    for side, trial in zip(sides, best, strict=True):
        cell = None
        if trial is not None:
            num_versions = max(1, len(side.history.programs))
            cell = f"version {trial.program} of {num_versions}"
        cells.append(cell)
    return [ComparisonRow("result", "code of the best", tuple(cells))]


def _best_values(sides: Sequence[Side]) -> list[ComparisonRow]:
    """Return the best value of each objective, and which run has the best of them."""
    metrics = dict.fromkeys(item.metric for side in sides for item in side.history.objectives)
    rows = []
    for metric in metrics:
        goals = {goal for side in sides if (goal := side.history.goal_of(metric)) is not None}
        goal = goals.pop()
        # What one run maximises another one minimises, so neither is better.
        is_disputed = bool(goals)
        sign = sign_of(goal)
        values = [_best_value(side.history, metric) for side in sides]
        known = [sign * value for value in values if value is not None]
        places = [
            at
            for at, value in enumerate(values)
            if value is not None and sign * value == max(known)
        ]
        best = None
        if len(known) > 1 and len(places) == 1 and not is_disputed:
            best = places[0]
        name = f"best {_shown_as(sides, metric)}"
        cells = [None if value is None else format_number(value) for value in values]
        rows.append(ComparisonRow("result", name, tuple(cells), best=best))
    return rows


def _best_value(history: History, metric: str) -> float | None:
    return history.best_values().get(metric)


def _shown_as(sides: Sequence[Side], metric: str) -> str:
    """Return what a metric is called: by the runs that have it as an objective."""
    return next(
        shown_metric(side.history.experiment, metric)
        for side in sides
        if any(item.metric == metric for item in side.history.objectives)
    )


def _best_trials(best: Sequence[Trial | None]) -> list[ComparisonRow]:
    if not any(best):
        return []
    cells = [trial and format_count(trial.number) for trial in best]
    return [ComparisonRow("result", "best trial", tuple(cells))]


def _by_name(part: Part, columns: Sequence[Mapping[str, Any]]) -> list[ComparisonRow]:
    rows = []
    for name in dict.fromkeys(name for column in columns for name in column):
        cells = tuple(_cell(column[name]) if name in column else None for column in columns)
        rows.append(ComparisonRow(part, name, cells, differs=len(set(cells)) > 1))
    return sorted(rows, key=lambda row: not row.differs)


def _with_defaults(sides: Sequence[Side]) -> list[dict[str, str]]:
    """Return what each experiment sets, and `default` where only others set something."""
    settings = [_settings(side) for side in sides]
    paths = dict.fromkeys(path for own in settings for path in own)
    return [
        own
        | {
            path: _DEFAULT
            for path in paths.keys() - own.keys()
            if _has_default(side.history.in_force, path)
            and _has_option_of(own, path, [other for other in settings if path in other])
        }
        for side, own in zip(sides, settings, strict=True)
    ]


def _has_default(experiment: Experiment, path: str) -> bool:
    """Return whether a setting that an experiment does not set has a default."""
    section, _, name = path.partition(".")
    if (
        section in _OF_MODELS
        and not experiment.trains_model
        and (section, name) != ("plan", "workers")
    ):
        return False
    part_of: Any = experiment
    for part in path.split("."):
        if isinstance(part_of, Component | Mapping):
            return True  # what options it has, only those know that set one
        if isinstance(part_of, tuple) and part.isdecimal() and int(part) < len(part_of):
            part_of = part_of[int(part)]
        elif isinstance(part_of, BaseModel) and part in type(part_of).model_fields:
            part_of = getattr(part_of, part)
        else:
            return False
    return part_of is not None


def _has_option_of(
    settings: Mapping[str, str], path: str, others: Sequence[Mapping[str, str]]
) -> bool:
    """Return whether a path is no option, or an option of the component in these settings."""
    section = path.partition(".")[0]
    if section in _NAMED:
        owner = section
    elif path.startswith(tuple(_NAME_FIELDS)):
        owner = f"{section}.{_NAME_FIELDS[f'{section}.options.']}"
    else:
        return True
    return owner == path or settings.get(owner) in [other.get(owner) for other in others]


def _settings(side: Side) -> dict[str, str]:
    """Return what an experiment sets, by dotted path.

    A range of the search in the words of a domain.
    """
    document = side.history.in_force.model_dump(mode="json", exclude={"name", "search"})
    flat: dict[str, str] = {}
    for path, value in _flat(document).items():
        if path.partition(".")[0] in _NAMED:
            path = path.removesuffix(".name")  # a component with options has its name there
        flat[path] = _cell(value)
    space = side.history.in_force.search.root
    return flat | {f"search.{name}": _range(domain) for name, domain in space.items()}


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, Mapping):
        parts = value.items()
    elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        parts = ((str(index), item) for index, item in enumerate(value))
    else:
        return {path: value}
    flat: dict[str, Any] = {}
    prefix = f"{path}." if path else ""
    for name, item in parts:
        flat |= _flat(item, f"{prefix}{name}")
    return flat


def _range(domain: Domain) -> str:
    document = domain.model_dump(mode="json")
    if not isinstance(document, Mapping):  # a fixed value is written bare
        return format_value(document)
    when = ""
    if document.get("when"):
        when = f" when {format_value(document['when'])}"
    if "low" not in document:
        return format_value(document.get("choices", document.get("value"))) + when
    text = f"{format_number(document['low'])} to {format_number(document['high'])}"
    if document.get("log"):
        text += ", log"
    if document.get("step"):
        text += f", step {format_number(document['step'])}"
    return text + when


def _difference(settings: Sequence[Mapping[str, str]], same: Sequence[int], index: int) -> str:
    """Return in what one run differs from the others of its name, in few words.

    "" if it does not.
    """
    paths = dict.fromkeys(path for place in same for path in settings[place])
    different = [path for path in paths if len({settings[place].get(path) for place in same}) > 1]
    words = []
    for path in different[:_MAX_NAMED]:
        name = path.rpartition(".")[2]
        value = settings[index].get(path)
        if value is None:
            words.append(f"no {name}")
        else:
            words.append(f"{name} {value}")
    text = ", ".join(words)
    if len(text) > _MAX_WORDS * _MAX_NAMED:
        return ""
    return text


def _cell(value: Any) -> str:
    text = format_value(value)
    if text.startswith(EMBEDDED_PREFIX):  # the start of its hash tells two versions apart
        name, _, digest = text.removeprefix(EMBEDDED_PREFIX).partition("@")
        return f"{name}@{digest[:8]}"
    if len(text) > _MAX_CELL:
        return f"{text[: _MAX_CELL - 1]}…"
    return text
