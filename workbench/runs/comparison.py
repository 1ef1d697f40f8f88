"""Several runs, side by side in one figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.errors import ExperimentError
from workbench.runs.figures import data_of
from workbench.runs.handle import Run, attach
from workbench.store import Store

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def compare(*runs: Run | str, store: Store | str | None = None) -> Figure:
    """Draw what each of several runs had found after how long; the legend says each best.

    Args:
        *runs: Runs, their ids, beginnings that only one run has, or "last".
        store: Where they are kept, if only their ids are given; None for the usual store.

    Raises:
        ExperimentError: If no run is named.
        RunNotFoundError: If there is no such run.

    Example:
        >>> figure = wb.compare(run, "last")
    """
    from workbench.plots.figures_comparison import draw_comparison

    found = [run if isinstance(run, Run) else attach(run, store=store) for run in runs]
    if not found:
        raise ExperimentError(
            "there is nothing to compare", field="runs", next_step="Name runs: wb.compare(first, second)."
        )
    names = [run.name for run in found]
    labels = [name if names.count(name) == 1 else run.run_id for name, run in zip(names, found, strict=True)]
    return draw_comparison({name: data_of(run) for name, run in zip(labels, found, strict=True)})
