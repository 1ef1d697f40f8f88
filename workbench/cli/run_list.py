"""Commands for the runs of a store: list, compare, delete, backup, restore."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from workbench.cli.declarations import takes
from workbench.cli.options import (
    attach,
    command_line,
    described,
    example,
    open_existing_store,
    open_store,
)
from workbench.cli.output import colour_of, echo, make_console, make_table, print_json, progress
from workbench.cli.parameters import (
    ALL,
    ARCHIVED,
    FOLDER,
    FORCE,
    LIMIT,
    MATCH,
    PINNED,
    RUN,
    RUNS,
    STATE,
    STORED,
    TAG,
    TO,
    YES,
)
from workbench.cli.remote import remote_capable
from workbench.experiment.actions import ACTIONS
from workbench.foundation.formatting import format_age, format_count

if TYPE_CHECKING:
    from rich.table import Table

    from workbench.runs.comparison import ComparisonRow
    from workbench.store.database import RunRow

NO_CELL = "-"


@click.command()
@takes(RUNS(is_required=True, is_repeatable=True), ALL, STORED)
@example(
    "workbench compare digits digits-small",
    "workbench compare 'digits-*' --all",
    "workbench compare last digits --json",
)
def compare(runs: tuple[str, ...], show_all: bool, as_json: bool) -> None:
    """Compare the results of runs, and what differs between them.

    RUN is a run id, a name, or a pattern such as 'digits-*'. A pattern selects all runs it matches.
    """
    from workbench.runs.comparison import Side, comparison_rows, find_runs, labels_of, legend_of

    with open_existing_store() as store:
        compared = find_runs(runs, store=store)
        if len(compared) < 2 and len(runs) < 2:
            raise click.UsageError(
                "give at least two runs, or a pattern that matches several, such as 'digits-*'"
            )
        sides = [Side(run.row, run.history) for run in compared]
        labels, rows = labels_of(sides), comparison_rows(sides)
    shown = [
        row for row in rows if show_all or row.differs or row.part in ("result", "best parameters")
    ]
    if as_json:
        print_json(
            {
                "runs": [
                    {"run_id": run.run_id, "name": label}
                    for run, label in zip(compared, labels, strict=True)
                ],
                "rows": [asdict(row) for row in shown],
            }
        )
        return
    make_console().print(_comparison_table(labels, shown))
    if legend := legend_of(shown):
        click.echo(
            f"\n{'; '.join(f'{sign or NO_CELL}: {meaning}' for sign, meaning in legend.items())}"
        )
    if num_same := len(rows) - len(shown):
        click.echo(f"\n{num_same} settings are the same in all runs. To list them: --all")


def _comparison_table(labels: Sequence[str], rows: Sequence[ComparisonRow]) -> Table:
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
        name, style = row.name, ""
        if row.differs:
            name, style = f"{row.name} *", "yellow"
        cells = [Text(cell or NO_CELL, style=style) for cell in row.cells]
        if row.best is not None:
            cells[row.best].style = "bold green"
        table.add_row(Text(name), *cells)
    return table


@click.command("list")
@remote_capable()
@takes(
    LIMIT,
    TAG(is_repeatable=True),
    STATE(is_repeatable=True),
    MATCH,
    PINNED,
    ARCHIVED,
    STORED,
)
@example(
    "workbench list --limit 10",
    "workbench list --tag baseline --state complete",
    "workbench list --json",
)
def list_runs(
    *,
    limit: int | None,
    tag: tuple[str, ...],
    state: tuple[str, ...],
    match: str | None,
    pinned: bool,
    archived: bool,
    as_json: bool,
) -> None:
    """List the runs of the store: pinned ones first, then the newest."""
    from workbench.runs import Run
    from workbench.store.database.labels import matching_runs, versions_of

    with open_existing_store() as store:
        all_rows = store.runs()
        matching = matching_runs(
            all_rows,
            text=match or "",
            states=state,
            tags=tag,
            archive="only" if archived else "without",
            pinned=pinned,
        )
        rows, advice, versions = matching[:limit], store.advice_ids(), versions_of(all_rows)
        waits = {
            row.run_id: Run(store, row.run_id).waits_for for row in rows if row.state == "running"
        }
        if as_json:
            print_json(
                [
                    {
                        "run_id": row.run_id,
                        "name": row.name,
                        "state": row.state,
                        "kind": _kind(row, advice),
                        "created_unix_s": row.created_unix_s,
                        "version": versions.get(row.run_id),
                        "waits_for": waits.get(row.run_id),
                        "tags": list(row.tags),
                        "notes": row.notes,
                        "pinned": row.pinned,
                        "archived": row.archived,
                        "chosen_trial": row.chosen_trial,
                    }
                    for row in rows
                ]
            )
            return
        num_archived = sum(row.archived for row in all_rows)
        if not all_rows:
            click.echo(f"No runs yet. Start one with: {command_line('sweep', 'FILE')}")
        elif not rows:
            click.echo(f"No run matches. The store has {format_count(len(all_rows), 'run')}.")
        else:
            _print_runs(rows, waits, advice, versions)
        if num_archived and not archived:
            hidden = format_count(num_archived, "archived run")
            click.echo(f"{hidden} not listed. To see them: workbench list --archived", err=True)


def _kind(row: RunRow, advice: Collection[str]) -> str:
    return "advice" if row.run_id in advice else "sweep"


def _print_runs(
    rows: list[RunRow],
    waits: dict[str, str | None],
    advice: Collection[str],
    versions: Mapping[str, int],
) -> None:
    from rich.text import Text

    optional = {
        "version": [str(versions.get(row.run_id, "")) for row in rows],
        "kind": [_kind(row, advice) if advice else "" for row in rows],
        "tags": [", ".join(row.tags) for row in rows],
        "waits for": [waits.get(row.run_id) or "" for row in rows],
    }
    shown = {name: texts for name, texts in optional.items() if any(texts)}
    table, now = make_table("run", "name", "state", "created", *shown), time.time()
    for index, row in enumerate(rows):
        table.add_row(
            row.run_id,
            Text(f"{row.name} (pinned)" if row.pinned else row.name),
            Text(row.state, style=colour_of(row.state)),
            format_age(now - row.created_unix_s),
            *(Text(texts[index]) for texts in shown.values()),
        )
    make_console().print(table)


@click.command()
@remote_capable()
@takes(RUN, YES, STORED)
@described(ACTIONS["delete"], "A run that is under way must be stopped first.")
def delete(run_id: str, yes: bool, as_json: bool) -> None:
    """Delete a run."""
    run = attach(run_id)
    run.refuse_deletion_under_way()
    if not yes:
        if as_json or not sys.stdin.isatty():
            raise click.UsageError("nobody can be asked here: give --yes to delete the run")
        question = f"Delete {run.run_id} ({run.name}), with {run.size.describe()}?"
        if not click.confirm(question, err=True):
            click.echo("Nothing was deleted.", err=True)
            return
    answer = run.delete()
    if as_json:
        print_json({"run_id": run.run_id, "message": answer})
    else:
        click.echo(f"delete {run.run_id}: {answer}")


@click.command()
@takes(TO(is_required=True), FORCE, STORED)
@example(
    "workbench backup --to /mnt/backups/2026-01-31",
    "workbench backup --to /mnt/backups/newest --force",
)
def backup(to: Path, force: bool | None, as_json: bool) -> None:
    """Back up the store and the files of all runs.

    Runs may be under way. If the backup is interrupted, the same command continues it. The folder
    gets its name only when the backup is complete.

    With --force, an earlier backup in the folder is replaced as soon as this one is complete.
    """
    from workbench.store.database.backup import back_up

    with open_existing_store() as store, progress("reading the store") as show:
        written = back_up(store, to, force=bool(force), progress=show)
    if as_json:
        print_json(
            {
                "path": str(written.folder),
                "store": written.place,
                "last_events": written.last_seqs,
                "num_files": written.num_files,
                "num_bytes": written.num_bytes,
            }
        )
    else:
        echo(f"backed up {written.describe()}")
        echo(str(written.folder))
        restoring = shlex.join(["workbench", "restore", str(written.folder)])
        click.echo(f"To restore it: {restoring}", err=True)


@click.command()
@takes(FOLDER, FORCE, STORED)
@example(
    "workbench restore /mnt/backups/2026-01-31",
    "workbench restore newest --store postgresql://me@host/runs",
)
def restore(folder: Path, force: bool | None, as_json: bool) -> None:
    """Add the runs of a backup to a store.

    The store is created if it does not exist. All files are checked before anything is written. You
    can resume runs that were under way.

    With --force, existing runs and files are replaced.
    """
    from workbench.store.database.backup import read_backup
    from workbench.store.database.backup import restore as restore_backup

    saved = read_backup(folder)
    with open_store() as store, progress("reading the store") as show:
        restore_backup(folder, store, force=bool(force), progress=show)
        place = store.place
        unfinished = [
            row.run_id
            for row in store.runs()
            if row.run_id in saved.last_seqs and row.state == "lost"
        ]
    if as_json:
        print_json({"store": place, "last_events": saved.last_seqs, "unfinished": unfinished})
        return
    echo(f"restored {saved.describe()} into {place}")
    for run_id in unfinished:
        echo(f"{run_id} was under way. To continue it: {command_line('resume', run_id)}")
