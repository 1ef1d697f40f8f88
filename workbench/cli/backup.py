"""Commands that keep a store safe: backup, restore."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from workbench.cli.declarations import takes
from workbench.cli.options import command_line, example, open_existing_store, open_store
from workbench.cli.output import echo, print_json, progress
from workbench.cli.parameters import FOLDER, FORCE, STORED, TO


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

    With --force, an earlier backup in the folder is replaced once this one is complete.
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

    With --force, runs and files that are there already are replaced.
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
