"""The command that decides whether a candidate is better than a baseline."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workbench.cli.declarations import takes
from workbench.cli.options import example
from workbench.cli.output import echo, print_json, print_note, warnings_as_notes
from workbench.cli.parameters import (
    BASELINE,
    BASELINE_TRIAL,
    CANDIDATE,
    CANDIDATE_TRIAL,
    CONSTRAINTS,
    ERROR,
    FLOOR,
    GOAL,
    MAX_RUNS,
    METRIC,
    SESSION,
    STORED,
    given_store,
)

if TYPE_CHECKING:
    from workbench.experiment.goals import Goal
    from workbench.runs.decisions import Judgement

_COLOURS = {"better": "green", "not better": "yellow", "more": "cyan"}


@click.command()
@takes(
    BASELINE_TRIAL(),
    CANDIDATE_TRIAL(),
    BASELINE(),
    CANDIDATE(),
    FLOOR(),
    GOAL(),
    METRIC(),
    ERROR(default=0.05),
    MAX_RUNS(default=6),
    SESSION(),
    CONSTRAINTS(is_repeatable=True),
    STORED,
)
@example(
    "workbench decide digits/3 digits-wider/best",
    "workbench decide --baseline b.csv --candidate c.csv --floor floor.csv",
)
@click.pass_context
def decide(
    context: click.Context,
    *,
    baseline_trial: str | None,
    candidate_trial: str | None,
    baseline: Path | None,
    candidate: Path | None,
    goal: Goal | None,
    metric: str | None,
    as_json: bool,
    floor: Path | None,
    error: float,
    max_runs: int,
    session: str | None,
    limits: dict[str, Any] | None,
) -> None:
    """Decide whether a candidate is better than a baseline, or whether it needs more runs.

    BASELINE and CANDIDATE are trials: RUN, RUN/best or RUN/NUMBER, or RUN/VERSION for a version of
    the code. All trainings of a configuration count, except those by which it was picked as the
    best of several. Or give CSV files with --baseline and --candidate.

    You may look after every run of the candidate, up to --max-runs. The probability of a wrong
    claim in any of these looks is at most --error.

    In files, the largest step of both is the budget. A run that ends earlier is unfinished. Its
    curve makes the probability more precise, but it is not a result. A value of nan at its last
    step means that it diverged.

    Noise is learned from repeated runs of other configurations, in the store or in --floor. With
    it, one run of the baseline is enough.

    With --session, the error is shared by all proposals that are compared under this name. With
    --constraint, you are told if a better candidate costs too much. Constraints are slower (than
    the baseline, such as slower=5%), size and latency. They do not change the decision.

    The exit code is 0 for every decision.
    """
    from workbench.runs.decisions import Limits, decide_from_files

    context.with_resource(warnings_as_notes())
    spending = Limits(error, max_runs, session, given_store())
    if baseline_trial is not None:
        _check_operands(candidate_trial, {"--baseline": baseline, "--candidate": candidate})
        if goal is not None:
            raise click.UsageError("--goal is for files: a run has its own goal")
        from workbench.runs.trial_decisions import decide_from_runs

        assert candidate_trial is not None
        judgement = decide_from_runs(
            baseline_trial,
            candidate_trial,
            floor,
            metric=metric,
            limits=spending,
            constraints=limits,
            store=given_store(),
        )
    else:
        if baseline is None or candidate is None:
            raise click.UsageError(
                "give two trials, or the files of both with --baseline and --candidate"
            )
        if metric is not None:
            raise click.UsageError("--metric is for trials: a file has one column of values")
        if limits:
            raise click.UsageError("--constraint is for trials: a file has one column of values")
        judgement = decide_from_files(
            baseline, candidate, floor, goal=goal or "minimize", limits=spending
        )
    _print(judgement, as_json=as_json)


def _check_operands(candidate: str | None, files: Mapping[str, Path | None]) -> None:
    given = [option for option, path in files.items() if path is not None]
    if given:
        raise click.UsageError(f"give either two trials or files, not a trial and {given[0]}")
    if candidate is None:
        raise click.UsageError("give two trials: the baseline and the candidate")


def _print(judgement: Judgement, *, as_json: bool) -> None:
    for note in judgement.notes:
        print_note(note)
    if as_json:
        print_json(judgement.to_json())
        return
    headline, *lines = judgement.describe()
    echo(headline, bold=True, fg=_COLOURS[judgement.decision])
    for line in lines:
        echo(line)
