"""Several runs side by side, as a front end shows them: curves of the best so far, and a table."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import asdict

from workbench.experiment.goals import Goal
from workbench.runs.comparison_table import Side, comparison_rows, labels_of
from workbench.runs.plots.prepare_comparison import AXIS_TITLES, goal_in_any, prepare_best_so_far
from workbench.views.live_feed.frames import Numbers
from workbench.views.live_feed.protocol import (
    ComparedFact,
    ComparedRun,
    Comparison,
    ComparisonQuery,
)
from workbench.views.live_feed.run_tail import RunTail

_MAX_FACTS = 300


def comparison(tails: Sequence[RunTail], query: ComparisonQuery, numbers: Numbers) -> Comparison:
    """Return some runs side by side.

    Args:
        tails: The runs; they are locked here, in an order that is always the same.
        query: By what they are compared.
        numbers: Receives the curves.
    """
    with contextlib.ExitStack() as stack:
        for tail in sorted(tails, key=lambda tail: tail.run_id):
            stack.enter_context(tail.lock)
        sides = [Side(tail.row, tail.data.history) for tail in tails]
        first = (item.metric for side in sides for item in side.history.objectives)
        goal = goal_in_any((side.history for side in sides), query.metric or None)
        further = (name for tail in tails for name in tail.data.series.metrics)
        return Comparison(
            axis=query.axis,
            x_title=AXIS_TITLES[query.axis],
            runs=tuple(
                _compared(tail, _noting_reading(tail, label), query, goal, numbers)
                for tail, label in zip(tails, labels_of(sides), strict=True)
            ),
            metrics=tuple(dict.fromkeys([*first, *further])),
            facts=tuple(ComparedFact(**asdict(row)) for row in comparison_rows(sides)[:_MAX_FACTS]),
        )


def _noting_reading(tail: RunTail, label: str) -> str:
    """Return the name of a run with how far it has been read, while that is not the whole."""
    reading = tail.data.history.reading
    return label if reading is None else f"{label} ({reading.describe()})"


def _compared(
    tail: RunTail, label: str, query: ComparisonQuery, goal: Goal | None, numbers: Numbers
) -> ComparedRun:
    data = tail.cached(
        ("comparison", query.metric, query.axis, goal),
        lambda: prepare_best_so_far(
            tail.data, metric=query.metric or None, axis=query.axis, goal=goal
        ),
        every_s=1.0,
    )
    return ComparedRun(
        run_id=tail.run_id,
        label=label,
        metric=data.metric,
        goal=data.goal,
        x=numbers.add(data.x, exact=True),
        y=numbers.add(data.y),
    )
