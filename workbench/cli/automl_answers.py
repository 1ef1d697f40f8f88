"""What a finished AutoML run knows about its models: leaderboard, explain and model-card."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workbench.cli.declarations import takes
from workbench.cli.options import attach, example
from workbench.cli.output import echo, make_console, make_table, print_json
from workbench.cli.parameters import COLUMN, LIMIT, RUN, STORED, TO
from workbench.cli.remote import remote_capable
from workbench.foundation.errors import ArgumentError
from workbench.foundation.formatting import format_number
from workbench.foundation.validation_errors import closest

if TYPE_CHECKING:
    from workbench.runs.automl import AutoML

_MOST_NAMED = 5


@click.command()
@remote_capable()
@takes(RUN, LIMIT(default=20), STORED)
@example("workbench leaderboard last", "workbench leaderboard last --json")
def leaderboard(run_id: str, limit: int, as_json: bool) -> None:
    """Show the models that an AutoML run has compared, the best first.

    `fit` is the time of training on all folds, `predict` the time to predict 1,000 rows.
    """
    from rich.text import Text

    from workbench.runs.plots.prepare import prepare_leaderboard

    result = _finished(run_id).to_json()
    if as_json:
        print_json(result["leaderboard"])
        return
    board = prepare_leaderboard(result, limit)
    table = make_table(*board.columns)
    for row in board.rows:
        table.add_row(*map(Text, row))
    make_console().print(table)
    if board.num_rows > limit:
        echo(f"and {board.num_rows - limit} more")


@click.command()
@remote_capable()
@takes(RUN, COLUMN, STORED)
@example("workbench explain last", "workbench explain last --column age")
def explain(run_id: str, column: str | None, as_json: bool) -> None:
    """Show which columns the model of an AutoML run needs, and where it is worst.

    With --column, show how the mean prediction changes with the values of that column.
    """
    analysis = _finished(run_id).analysis
    if column is not None:
        tables = [_dependence(analysis, column)]
        names, titles = ["partial_dependence"], [""]
    else:
        tables = [analysis.importance(), analysis.slices()]
        names, titles = ["importance", "slices"], ["needs these columns", "is worst here"]
    if as_json:
        parts = zip(names, tables, strict=True)
        document: dict[str, Any] = {name: table.to_dict("records") for name, table in parts}
        if column is None:
            document["without_curve"] = analysis.without_curve
        print_json(document)
        return
    for title, content in zip(titles, tables, strict=True):
        if title:
            echo(title, bold=True)
        table = make_table(*map(str, content.columns))
        for row in content.itertuples(index=False):
            table.add_row(*(_cell(value) for value in row))
        make_console().print(table)
    if column is None:
        for line in _lines_without_curve(analysis.without_curve):
            echo(line)


def _lines_without_curve(why: dict[str, str]) -> list[str]:
    """Return which columns `--column` shows nothing of, a line for each reason."""
    by_reason: dict[str, list[str]] = {}
    for name, reason in why.items():
        by_reason.setdefault(reason, []).append(name)
    lines = []
    for reason, names in by_reason.items():
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        lines.append(f"no curve of {', '.join(names[:_MOST_NAMED])}{more}: {reason}")
    return lines


def _dependence(analysis: Any, column: str) -> Any:
    columns = analysis.columns
    if column not in columns:
        allowed, meant = closest(column, columns)
        why = analysis.without_curve.get(column)
        raise ArgumentError(
            f"{column!r} has no partial dependence" + (f": {why}" if why else ""),
            field="--column",
            allowed=allowed,
            next_step=meant,
        )
    return analysis.partial_dependence(column)


def _cell(value: Any) -> str:
    return format_number(value) if isinstance(value, float) else str(value)


@click.command()
@remote_capable(brings={"--to": None})
@takes(RUN, TO, STORED)
@example("workbench model-card last", "workbench model-card last --to CARD.md")
def model_card(run_id: str, to: Path | None, as_json: bool) -> None:
    """Write the model card of an AutoML run: data, scores, limits, and what is left to you."""
    card = _finished(run_id).model_card()
    if to is not None:
        try:
            to.write_text(card, encoding="utf-8")
        except OSError as error:
            raise ArgumentError(f"cannot write {to}: {error.strerror}", field="--to") from error
    if as_json:
        print_json({"card": card, "path": None if to is None else str(to.absolute())})
    elif to is not None:
        click.echo(str(to.absolute()))
    else:
        click.echo(card)


def _finished(run_id: str) -> AutoML:
    from workbench.runs.automl import AutoML

    return AutoML(attach(run_id))
