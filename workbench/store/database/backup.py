"""Back up a store and the files of its runs, and restore it, even into another kind of database.

A backup is a folder with `store.sqlite` (whichever kind the store is), `artifacts/`, and
`backup.json`, which lists every file with its hash. The folder gets its name only when it is
complete, so an incomplete backup is never mistaken for a backup, and an interrupted one can be
continued.

Runs may be active at the same time. Their rows are read in one transaction, so each run is complete
up to some event. Files are copied before and after that. A file of an event is therefore in the
backup even if it was deleted soon afterwards.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import filelock
import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection

from workbench.foundation.artifacts import Artifacts, open_artifacts
from workbench.foundation.errors import (
    ArgumentError,
    ArtifactsError,
    StoreError,
    StoreUnavailableError,
)
from workbench.foundation.files import sha256_of, write_atomically
from workbench.foundation.formatting import format_bytes, format_count
from workbench.store.database.connection import Database, connect, translated
from workbench.store.database.store import Store
from workbench.store.database.tables import events, metadata, runs
from workbench.store.database.urls import user_data_folder
from workbench.version import VERSION

MANIFEST = "backup.json"
STORE_NAME = "store.sqlite"
FILES_FOLDER = "artifacts"
LOGS_FOLDER = "logs"
_FORMAT = 1
_KEYS = {"format", "created_unix_s", "store", "runs", "files"}
_CHUNK_ROWS = 10_000
_CHUNK_BYTES = 2**20
_HALF_WRITTEN = re.compile(r"^\..+\.[0-9a-f]{32}$|^\.probe-|^\.unfinished-")
"""Names of files that are not complete yet."""
_DRIVEN = ("running", "stopping", "waiting")
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Backup:
    """A complete backup."""

    folder: Path
    created_unix_s: float
    place: str
    """The store that was backed up, without its password."""
    last_seqs: dict[str, int]
    """The number of the last event of each run, by its run id."""
    num_files: int
    num_bytes: int

    def describe(self) -> str:
        """Describe the content in words."""
        num_events = format_count(sum(self.last_seqs.values()), "event")
        files = f"{format_count(self.num_files, 'file')} of {format_bytes(self.num_bytes)}"
        return f"{format_count(len(self.last_seqs), 'run')} with {num_events}, and {files}"


def back_up(
    store: Store, folder: Path, *, force: bool = False, progress: Progress = lambda _line: None
) -> Backup:
    """Back up a store, even while runs are active.

    Args:
        store: The store.
        folder: The backup's folder. It must be empty or not exist.
        force: Replace an earlier backup there, after the new one is complete.
        progress: Called with the current step.

    Raises:
        ArgumentError: If the folder contains something else, or another process writes a backup to
            it.
        StoreError: If the store cannot be read.
        ArtifactsError: If the files of a run cannot be read.
    """
    folder = folder.expanduser().absolute()
    _check_target(folder, force=force)
    unfinished = folder.with_name(f".{folder.name}.unfinished")
    with _written(folder), _only_one(folder):
        unfinished.mkdir(parents=True, exist_ok=True, mode=0o700)
        (unfinished / MANIFEST).unlink(missing_ok=True)
        copier = _Copier(store, unfinished, progress)
        copier.copy([row.run_id for row in store.runs()])
        progress("copying the store")
        last_seqs = _copy_store(store.database, unfinished / STORE_NAME)
        copier.copy([*last_seqs])  # again, for files that were written meanwhile
        files = copier.finish({*last_seqs})
        files[STORE_NAME] = _digest(unfinished / STORE_NAME)
        document = {
            "format": _FORMAT,
            "workbench": VERSION,
            "created_unix_s": time.time(),
            "store": store.place,
            "runs": last_seqs,
            "files": files,
        }
        write_atomically(unfinished / MANIFEST, json.dumps(document, indent=1))
        _replace(unfinished, folder)
    backup = read_backup(folder)
    _remember(backup)
    return backup


def read_backup(folder: Path) -> Backup:
    """Return the content of a backup, without checking its files.

    Raises:
        ArgumentError: If the folder is not a backup of this version.
    """
    document = _read_manifest(folder)
    sizes = [size for _, size in document["files"].values()]
    return Backup(
        folder=folder,
        created_unix_s=document["created_unix_s"],
        place=document["store"],
        last_seqs=document["runs"],
        num_files=len(sizes),
        num_bytes=sum(sizes),
    )


def restore(
    folder: Path, store: Store, *, force: bool = False, progress: Progress = lambda _line: None
) -> Backup:
    """Add the runs of a backup to a store, which may be another kind of database.

    A run that was active in the backup is lost in the store, and can be resumed. Everything is
    checked before anything is written. The runs appear together, after their files are restored.

    Args:
        folder: The backup.
        store: The store to restore into.
        force: Replace runs that the store already has.
        progress: Called with the current step.

    Raises:
        ArgumentError: If the folder is not a backup, or some of its files are missing or changed.
        StoreError: If the store has some of the runs, or cannot be written.
        ArtifactsError: If files cannot be written.
    """
    folder = folder.expanduser().absolute()
    backup, document = read_backup(folder), _read_manifest(folder)
    progress("checking the backup")
    _verify(folder, document["files"])
    existing = {row.run_id: row for row in store.runs()}
    present = sorted(existing.keys() & backup.last_seqs.keys())
    driven = [run_id for run_id in present if store.is_driven(run_id)]
    if driven:
        raise StoreError(
            f"{store.place} has {format_count(len(driven), 'active run')} that the backup also"
            f" contains: {_some(driven)}",
            next_step="Stop them, or choose another store with --store.",
        )
    if present and not force:
        raise StoreError(
            f"{store.place} already has {format_count(len(present), 'run')} of the backup:"
            f" {_some(present)}",
            field="store",
            next_step="Choose another store with --store, or replace them with --force.",
        )
    if not force:
        _refuse_other_files(document["files"], store)
    with tempfile.TemporaryDirectory() as scratch:
        # Opening a store may update its schema, so a copy is opened and the backup stays unchanged.
        copied = Path(scratch, STORE_NAME)
        shutil.copyfile(folder / STORE_NAME, copied)
        source = connect(sa.make_url(f"sqlite:///{copied}"))
        try:
            for number, name in enumerate(sorted(document["files"]), 1):
                if name != STORE_NAME:
                    progress(f"restoring file {number:,} of {len(document['files']):,}")
                    _restore_file(folder, name, store)
            progress("restoring the store")
            _insert_all(source, store.database, replaced=present)
        finally:
            source.engine.dispose()
    for run_id in present:
        _delete_other_files(document["files"], store, run_id)
    return backup


def last_backup(place: str) -> Backup | None:
    """Return this user's last backup of a store on this machine, or None.

    Args:
        place: The place of the store, as it is shown.
    """
    try:
        entry = json.loads(_record().read_text(encoding="utf-8")).get(place)
        if entry is None:
            return None
        return Backup(**entry | {"folder": Path(entry["folder"])})
    except (OSError, ValueError, TypeError, AttributeError):
        return None


# Writing.


class _Copier:
    """Copies the files of runs into a backup.

    Files that are already copied and have not changed are not copied again.
    """

    def __init__(self, store: Store, folder: Path, progress: Progress) -> None:
        self._store, self._folder, self._progress = store, folder, progress
        self._known: dict[str, list[Any]] = {}  # hash and size of copied files, by name
        self._stamps: dict[str, tuple[int, int]] = {}

    def copy(self, run_ids: list[str]) -> None:
        """Copy new and changed files of some runs."""
        for number, run_id in enumerate(run_ids, 1):
            self._progress(f"copying the files of run {number:,} of {len(run_ids):,}")
            artifacts = self._store.artifacts.below(run_id)
            self._copy_place(artifacts, PurePosixPath(FILES_FOLDER, run_id))
            if not artifacts.is_local:  # logs grow by appending, so they are on this machine
                working = open_artifacts(artifacts.working_folder)
                self._copy_place(working, PurePosixPath(LOGS_FOLDER, run_id))

    def _copy_place(self, artifacts: Artifacts, below: PurePosixPath) -> None:
        for name, stamp in sorted(artifacts.stamps().items()):
            if _HALF_WRITTEN.match(PurePosixPath(name).name):
                continue
            backup_name = str(below / name)
            target = self._folder / backup_name
            if self._stamps.get(backup_name) == stamp:
                continue
            if backup_name not in self._stamps and _has_stamp(target, stamp):
                # A backup that was interrupted has copied it.
                self._known[backup_name] = _digest(target)
            elif (digest := _copy_file(artifacts, name, target, stamp)) is not None:
                self._known[backup_name] = digest
            else:
                continue  # it was deleted meanwhile
            self._stamps[backup_name] = stamp

    def finish(self, run_ids: set[str]) -> dict[str, list[Any]]:
        """Remove files that belong to no run of the backup, and return the others.

        Returns:
            The hash and size of each file, by its name.
        """
        entries = {
            name: entry
            for name, entry in self._known.items()
            if PurePosixPath(name).parts[1] in run_ids
        }
        for top in (FILES_FOLDER, LOGS_FOLDER):
            for path in sorted((self._folder / top).rglob("*"), reverse=True):
                name = path.relative_to(self._folder).as_posix()
                if path.is_file() and name not in entries:
                    path.unlink()
        return entries


def _copy_file(
    artifacts: Artifacts, name: str, target: Path, stamp: tuple[int, int]
) -> list[Any] | None:
    """Copy a file, and return the hash and size of the copy, or None if the file is gone."""
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = target.with_name(f".{target.name[:100]}.copying")
    digest, size = hashlib.sha256(), 0
    try:
        with (
            artifacts.as_file(name) as path,
            path.open("rb") as source,
            temporary.open("wb") as copy,
        ):
            while chunk := source.read(_CHUNK_BYTES):
                digest.update(chunk)
                size += copy.write(chunk)
            copy.flush()
            os.fsync(copy.fileno())
    except (FileNotFoundError, ArtifactsError):
        temporary.unlink(missing_ok=True)
        if artifacts.exists(name):  # a remote place does not say which error it was
            raise
        return None
    if size == stamp[0]:  # otherwise it was written meanwhile, and is copied again
        os.utime(temporary, ns=(stamp[1], stamp[1]))
    temporary.replace(target)
    return [digest.hexdigest(), size]


def _has_stamp(path: Path, stamp: tuple[int, int]) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    return (status.st_size, status.st_mtime_ns) == stamp


def _digest(path: Path) -> list[Any]:
    return [sha256_of(path), path.stat().st_size]


def _copy_store(database: Database, target: Path) -> dict[str, int]:
    """Write a consistent copy of all rows to a SQLite file, and return each run's last event."""
    for path in (
        target,
        *(target.with_name(target.name + ending) for ending in ("-wal", "-shm", ".lock")),
    ):
        path.unlink(missing_ok=True)
    if database.engine.dialect.name == "sqlite":
        with translated(database.engine), database.engine.connect() as connection:
            source: Any = connection.connection.driver_connection
            with contextlib.closing(sqlite3.connect(target)) as copy:
                source.backup(copy)
    else:
        copied = connect(URL.create("sqlite", database=str(target)))
        try:
            with (
                translated(database.engine),
                database.engine.connect() as connection,
                copied.engine.begin() as into,
            ):
                connection = connection.execution_options(
                    isolation_level="REPEATABLE READ", postgresql_readonly=True
                )
                _insert_rows(connection, into)
        finally:
            copied.engine.dispose()
    target.chmod(0o600)
    with contextlib.closing(sqlite3.connect(target)) as copy:
        copy.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        newest = f"SELECT max(seq) FROM {events.name} WHERE run_key = {runs.name}.key"
        last_seqs = copy.execute(
            f"SELECT run_id, coalesce(({newest}), 0) FROM {runs.name} ORDER BY key"
        ).fetchall()
    for ending in ("-wal", "-shm", ".lock"):
        target.with_name(target.name + ending).unlink(missing_ok=True)
    return dict(last_seqs)


# Reading.


def _insert_all(source: Database, target: Database, *, replaced: list[str]) -> None:
    """Add the runs of one database to another, all or none."""
    with (
        translated(target.engine),
        source.engine.connect() as from_backup,
        target.engine.begin() as into,
    ):
        for run_id in replaced:
            key = into.scalar(sa.select(runs.c.key).where(runs.c.run_id == run_id))
            for table in _tables_of_runs():
                into.execute(table.delete().where(table.c.run_key == key))
            into.execute(runs.delete().where(runs.c.key == key))
        _insert_rows(from_backup, into, frees=True)
        target.notify_listeners(into)


def _insert_rows(source: Connection, target: Connection, *, frees: bool = False) -> None:
    """Copy every run with its rows. A run gets another key if the target already has runs.

    Args:
        source: The connection to read from.
        target: The connection to write to.
        frees: Whether to drop the leases of the copied runs, because no process drives them.
    """
    for row in source.execute(sa.select(runs).order_by(runs.c.key)).mappings().all():
        values = {name: value for name, value in row.items() if name != "key"}
        if frees:
            values |= {
                "lease_token": None,
                "owner_pid": None,
                "owner_host": None,
                "owner_process": None,
            }
            if row["state"] in _DRIVEN and row["heartbeat_unix_s"] is not None:
                values["lease_timeout_s"] = 0.0  # lost at once, so that it can be resumed
        key = target.execute(runs.insert().values(**values)).inserted_primary_key
        assert key is not None
        for table in _tables_of_runs():
            rows_of_run = sa.select(table).where(table.c.run_key == row["key"])
            for chunk in (
                source.execution_options(yield_per=_CHUNK_ROWS)
                .execute(rows_of_run)
                .mappings()
                .partitions()
            ):
                target.execute(table.insert(), [{**item, "run_key": key[0]} for item in chunk])


def _tables_of_runs() -> list[sa.Table]:
    return [table for table in metadata.sorted_tables if "run_key" in table.c]


def _place_of(name: str, store: Store) -> tuple[Artifacts, str]:
    """Return where a file of a backup belongs: the place of its run and its name there."""
    top, run_id, *rest = PurePosixPath(name).parts
    artifacts = store.artifacts.below(run_id)
    if top == LOGS_FOLDER and not artifacts.is_local:
        artifacts = open_artifacts(artifacts.working_folder)
    return artifacts, str(PurePosixPath(*rest))


def _refuse_other_files(files: dict[str, list[Any]], store: Store) -> None:
    """Raise an error before other files of the same names would be overwritten.

    Another store may keep its files in the same place.
    """
    sizes_at: dict[str, dict[str, int]] = {}
    for name, (digest, size) in files.items():
        if name == STORE_NAME:
            continue
        artifacts, name_there = _place_of(name, store)
        if artifacts.url not in sizes_at:
            sizes_at[artifacts.url] = artifacts.sizes()
        sizes = sizes_at[artifacts.url]
        if name_there not in sizes:
            continue
        with artifacts.as_file(name_there) as path:
            if sizes[name_there] != size or _digest(path)[0] != digest:
                raise ArgumentError(
                    f"{artifacts}/{name_there} exists and differs from the file in the backup",
                    field="store",
                    next_step=(
                        "Set WORKBENCH_ARTIFACTS to another place, or replace the files with"
                        " --force."
                    ),
                )


def _delete_other_files(files: dict[str, list[Any]], store: Store, run_id: str) -> None:
    """Delete the files of a replaced run that are not in the backup."""
    artifacts = store.artifacts.below(run_id)
    # The logs of a run with remote artifacts are in another folder of the backup.
    tops = (FILES_FOLDER, LOGS_FOLDER) if artifacts.is_local else (FILES_FOLDER,)
    for name in artifacts.sizes():
        if not any(f"{top}/{run_id}/{name}" in files for top in tops):
            artifacts.delete(name)


def _restore_file(folder: Path, name: str, store: Store) -> None:
    artifacts, name_there = _place_of(name, store)
    with tempfile.NamedTemporaryFile(prefix="restored-", delete=False) as file:
        temporary = Path(file.name)
    try:
        shutil.copyfile(folder / name, temporary)
        artifacts.put(temporary, name_there)
    finally:
        temporary.unlink(missing_ok=True)


def _verify(folder: Path, files: dict[str, list[Any]]) -> None:
    """Raise an error if a file of the backup is missing or has changed."""
    wrong = []
    for name, entry in files.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise ArgumentError(
                f"{folder / MANIFEST} lists {name!r}, which is outside of the backup"
            )
        try:
            if _digest(folder / name) != list(entry):
                wrong.append(name)
        except OSError:
            wrong.append(name)
    if STORE_NAME not in files or wrong:
        missing = wrong or [STORE_NAME]
        raise ArgumentError(
            f"the backup in {folder} is damaged: {format_count(len(missing), 'file')} missing or"
            f" changed: {_some(missing)}",
            next_step="Restore from another backup.",
        )


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder.expanduser() / MANIFEST
    unfinished = folder.expanduser().absolute().with_name(f".{folder.name}.unfinished")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(document, dict) or not document.keys() >= _KEYS:
            raise ValueError
        if document["format"] == _FORMAT and not _has_all_hashes(document["files"]):
            raise ValueError
    except FileNotFoundError as error:
        hint = "Give the folder that `workbench backup --to` wrote."
        if unfinished.is_dir():
            hint = "That backup was interrupted: repeat it."
        raise ArgumentError(
            f"{folder} is not a backup: it has no {MANIFEST}", next_step=hint
        ) from error
    except (OSError, ValueError) as error:
        raise ArgumentError(
            f"{path} cannot be read", next_step="Restore from another backup."
        ) from error
    if document["format"] != _FORMAT:
        raise ArgumentError(
            f"{folder} is a backup of format {document['format']}, but this version reads format"
            f" {_FORMAT}",
            next_step="Update the workbench.",
        )
    return document


def _has_all_hashes(files: Any) -> bool:
    return isinstance(files, dict) and all(
        isinstance(entry, list) and len(entry) == 2 and isinstance(entry[1], int)
        for entry in files.values()
    )


def _check_target(folder: Path, *, force: bool) -> None:
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    is_backup = (folder / MANIFEST).is_file()
    if force and is_backup:
        return
    problem, next_step = "exists and is not an earlier backup", "Choose another folder."
    if is_backup:
        problem = "contains an earlier backup"
        next_step = "Choose another folder, or replace that backup with --force."
    raise ArgumentError(f"{folder} {problem}", field="--to", next_step=next_step)


def _replace(unfinished: Path, folder: Path) -> None:
    """Give a complete backup its name, then remove an earlier one."""
    if not folder.exists():
        unfinished.rename(folder)
        return
    earlier = folder.with_name(f".{folder.name}.earlier")
    shutil.rmtree(earlier, ignore_errors=True)
    folder.rename(earlier)
    unfinished.rename(folder)
    shutil.rmtree(earlier, ignore_errors=True)


@contextlib.contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        lock = folder.with_name(f".{folder.name}.lock")
        with filelock.FileLock(lock, timeout=0):
            yield
            lock.unlink(missing_ok=True)
    except filelock.Timeout as error:
        raise ArgumentError(
            f"another process is writing a backup to {folder}",
            field="--to",
            next_step="Wait until it has ended.",
        ) from error


@contextlib.contextmanager
def _written(folder: Path) -> Iterator[None]:
    """Translate the errors of the disk that the backup is written to."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailableError(
            f"the backup cannot be written to {folder}: {error.strerror or error}",
            next_step="Check the disk and its free space, then repeat the command to continue.",
        ) from error


def _some(names: list[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _record() -> Path:
    return user_data_folder() / "backups.json"


def _remember(backup: Backup) -> None:
    """Note where the last backup of a store is, for `doctor`."""
    path = _record()
    with contextlib.suppress(OSError, ValueError):
        backups = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        backups[backup.place] = asdict(backup) | {"folder": str(backup.folder)}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(backups, indent=1))
