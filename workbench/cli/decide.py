"""The command that decides whether a candidate is better than a baseline."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import click

from workbench.cli.declarations import takes
from workbench.cli.options import example
from workbench.cli.output import echo, print_json, print_note
from workbench.cli.parameters import BASELINE, CANDIDATE, ERROR, FLOOR, GOAL, JSON, MAX_RUNS

if TYPE_CHECKING:
    from workbench.runs.decisions import Comparison, Goal

_COLOURS = {"better": "green", "not better": "yellow", "more": "cyan"}


@click.command()
@takes(
    BASELINE(is_required=True),
    CANDIDATE(is_required=True),
    FLOOR,
    GOAL(default="minimize"),
    ERROR(default=0.05),
    MAX_RUNS(default=6),
    JSON,
)
@example(
    "workbench decide --baseline baseline.csv --candidate candidate.csv",
    "workbench decide --baseline b.csv --candidate c.csv --floor floor.csv --json",
)
@click.pass_context
def decide(
    context: click.Context,
    *,
    baseline: Path,
    candidate: Path,
    floor: Path | None,
    goal: Goal,
    error: float,
    max_runs: int,
    as_json: bool,
) -> None:
    """Decide whether a candidate is better than a baseline, or whether it needs more runs.

    You may look after every run of the candidate, up to --max-runs. Over all looks, a wrong claim
    has at most the probability --error.

    The largest step in both files is the budget. A run that ends earlier is unfinished: its curve
    sharpens the probability, but it is no result. A value of nan means that the run diverged.

    The floor contains repeated runs of other configurations, in groups of equal code and budget.
    With it, one run of the baseline is enough.

    The exit code is 0 for every decision.
    """
    from workbench.runs.decisions import decide_from_files

    context.with_resource(warnings.catch_warnings())
    warnings.simplefilter("always", UserWarning)  # about columns of a table that are not read
    warnings.showwarning = lambda message, *_where: print_note(str(message))
    comparison = decide_from_files(
        baseline, candidate, floor, goal=goal, error=error, max_runs=max_runs
    )
    _print(comparison, as_json=as_json)


def _print(comparison: Comparison, *, as_json: bool) -> None:
    for note in comparison.notes:
        print_note(note)
    if as_json:
        print_json(dataclasses.asdict(comparison.decision))
        return
    headline, *lines = comparison.describe()
    echo(headline, bold=True, fg=_COLOURS[comparison.decision.decision])
    for line in lines:
        echo(line)
