"""Several runs, side by side in one figure or one table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from workbench.foundation.errors import ExperimentError, RunNotFoundError
from workbench.runs.comparison_table import Side, comparison_rows, find_named, labels_of
from workbench.runs.figures import data_of
from workbench.runs.run import Run, attach, open_existing_store
from workbench.store.database import Store

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from workbench.runs.plots.prepare_comparison import ComparisonAxis

_COLUMNS = ("part", "name", "differs")


def compare(
    *runs: Run | str,
    metric: str | None = None,
    axis: ComparisonAxis = "time",
    store: Store | str | None = None,
) -> Figure:
    """Draw what each of several runs had found after how long; the legend states the best of each.

    Args:
        *runs: Runs, their ids, beginnings that only one run has, "last", names, or patterns such as
            `digits-*`; a name or a pattern stands for all runs that it matches.
        metric: The metric to compare; None for the first objective of each run, on one scale per
            metric.
        axis: "time", "epoch", "trial", or "cost": the time of all workers together.
        store: Where they are kept, if only their ids are given; None for the usual store.

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
    found = find_runs(runs, store=store)
    labels = labels_of([Side(run.row, run.history) for run in found])
    data = {label: data_of(run.stored) for label, run in zip(labels, found, strict=True)}
    known = list(dict.fromkeys(name for one in data.values() for name in one.series.metrics))
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
        cell as text; None where it has none. Runs of one name are distinguished by their settings
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
    columns = [
        f"{label} ({side.row.run_id})" if label in _COLUMNS else label
        for label, side in zip(labels_of(sides), sides, strict=True)
    ]
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
    found: dict[str, Run] = {}
    for run in runs:
        for one in [run] if isinstance(run, Run) else _named(open_existing_store(store), run):
            found.setdefault(one.run_id, one)
    return list(found.values())


def _named(store: Store, name: str) -> list[Run]:
    matching = find_named(store.runs(), name)
    if matching:
        return [Run(store, row.run_id) for row in matching]
    if any(sign in name for sign in "*?["):
        raise RunNotFoundError(
            f"no run matches {name!r}", next_step="List the runs: workbench list"
        )
    return [attach(name, store=store)]
