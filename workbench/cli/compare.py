"""The command that shows several runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from workbench.cli.options import example, json_option, open_existing_store, store_option
from workbench.cli.output import make_console, make_table, print_json

if TYPE_CHECKING:
    from rich.table import Table

    from workbench.runs.comparison_table import ComparisonRow

NO_CELL = "-"


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option(
    "--all", "with_same", is_flag=True, help="List settings and versions that are the same, too."
)
@store_option
@json_option
@example(
    "workbench compare digits digits-small",
    "workbench compare 'digits-*' --all",
    "workbench compare last digits --json",
)
def compare(runs: tuple[str, ...], with_same: bool, as_json: bool) -> None:
    """Compare the results of runs, and what differs between them.

    Besides a run id, RUN may be a name or a pattern, and then stands for all runs that it matches.
    """
    from workbench.runs.comparison import find_runs
    from workbench.runs.comparison_table import Side, comparison_rows, labels_of, legend_of

    with open_existing_store() as store:
        found = find_runs(runs, store=store)
        sides = [Side(run.row, run.history) for run in found]
        labels, rows = labels_of(sides), comparison_rows(sides)
    shown = [
        row for row in rows if with_same or row.differs or row.part in ("result", "best parameters")
    ]
    if as_json:
        print_json(
            {
                "runs": [
                    {"run_id": run.run_id, "name": label}
                    for run, label in zip(found, labels, strict=True)
                ],
                "rows": [asdict(row) for row in shown],
            }
        )
        return
    make_console().print(_table(labels, shown))
    if legend := legend_of(shown):
        click.echo(
            f"\n{'; '.join(f'{sign or NO_CELL}: {meaning}' for sign, meaning in legend.items())}"
        )
    if num_same := len(rows) - len(shown):
        click.echo(f"\n{num_same} more are the same in all runs; --all lists them.")


def _table(labels: Sequence[str], rows: Sequence[ComparisonRow]) -> Table:
    from rich.text import Text

    table = make_table("", *(Text(label) for label in labels))  # type: ignore[reportArgumentType]
    part = ""
    for row in rows:
        if row.part != part:
            if part:
                table.add_section()
            if row.part != "result":
                table.add_row(Text(row.part, style="bold"), *("" for _ in labels))
            part = row.part
        name = f"{row.name} *" if row.differs else row.name
        cells = [
            Text(
                cell or NO_CELL,
                style="bold green" if at == row.best else "yellow" if row.differs else "",
            )
            for at, cell in enumerate(row.cells)
        ]
        table.add_row(Text(name), *cells)
    return table
