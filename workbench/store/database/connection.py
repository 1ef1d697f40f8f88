"""The connection to the database: its engine, its schema, and the translation of its errors.

Everything specific to SQLite is here; everything specific to PostgreSQL is in `postgresql`.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError

from workbench.foundation.artifacts.local import make_private
from workbench.foundation.errors import (
    MissingDependencyError,
    StoreError,
    StoreUnavailableError,
    install_command,
)
from workbench.foundation.events import process_unix_s
from workbench.store.database import postgresql
from workbench.store.database.database_files import watch_files
from workbench.store.database.tables import SCHEMA_VERSION, VERSION_TABLE, runs
from workbench.store.database.urls import describe

if TYPE_CHECKING:
    from alembic.script import ScriptDirectory

BUSY_TIMEOUT_S = 5.0
_MIGRATION_TIMEOUT_S = 60.0
_UNDECODABLE = "Could not decode to UTF-8"
# SQLite's error codes and texts. Python 3.10 has no names for the codes, and its errors carry only
# the texts.
_DAMAGED_CODES = {11: "database disk image is malformed", 26: "file is not a database"}
_CHECK_DISK = "Check the disk, its free space and its permissions."
_WAIT_FOR_LOCK = (
    "Try again when the other process is done. If this happens often, use PostgreSQL"
    " (--store postgresql://USER@HOST/DATABASE)."
)
_PASSING_CODES = {
    5: ("database is locked", "another process keeps the database locked"),
    6: ("database table is locked", "another process keeps the database locked"),
    7: ("out of memory", "there is no memory left"),
    8: ("attempt to write a readonly database", "the database file cannot be written"),
    10: ("disk I/O error", "the disk cannot be read or written"),
    13: ("database or disk is full", "the disk is full"),
    14: ("unable to open database file", "the database file cannot be opened"),
}
_NEXT_STEPS = {
    5: _WAIT_FOR_LOCK,
    6: _WAIT_FOR_LOCK,
    7: "End other programs, or use a machine with more memory.",
}
_CODE_OF_TEXT = {
    **{text: code for code, text in _DAMAGED_CODES.items()},
    **{text: code for code, (text, _) in _PASSING_CODES.items()},
}


@dataclass(frozen=True)
class Database:
    """An open database with the newest schema."""

    engine: Engine
    url: URL
    """The URL with which another process opens it, including its password."""
    clock_ahead_s: float | None = None
    """How far the server's clock was ahead of this process's, or None for a local database."""

    @property
    def place(self) -> str:
        """Its place, for messages."""
        return describe(self.engine.url)

    def now_unix_s(self) -> float:
        """Return the time of the clock that all users of the database share, which times leases."""
        if self.clock_ahead_s is None:
            return time.time()
        return process_unix_s() + self.clock_ahead_s

    def notify_listeners(self, connection: Connection) -> None:
        """Notify listeners once this transaction is committed, if the database supports it."""
        if self.engine.dialect.name == "postgresql":
            postgresql.notify_listeners(connection)


def connect(url: URL) -> Database:
    """Make the engine, create what is missing, and update the schema to this version.

    Args:
        url: The result of `resolve_url`.

    Raises:
        StoreError: If the database is damaged, or newer than this version.
        StoreUnavailableError: If it cannot be reached or written.
        MissingDependencyError: If the driver of the database is not installed.
    """
    engine = _make_engine(url)
    try:
        with translated(engine):
            with engine.connect() as connection:
                ready = _is_ready(connection)
                database = _inspect(connection)
            if not ready:
                with _migration_lock(engine):
                    _migrate(engine)
    except BaseException:
        engine.dispose()
        raise
    return database


def _inspect(connection: Connection) -> Database:
    engine = connection.engine
    if engine.dialect.name != "postgresql":
        return Database(engine, engine.url)
    ahead_s = postgresql.clock_ahead_s(connection, process_unix_s())
    return Database(engine, postgresql.complete(connection), ahead_s)


@contextlib.contextmanager
def translated(engine: Engine) -> Iterator[None]:
    """Translate the errors of the database into errors of the workbench."""
    try:
        yield
    # sqlite3.Error comes from rows that are read and written without SQLAlchemy.
    except (SQLAlchemyError, OSError, sqlite3.Error) as error:
        raise _translate(error, engine.url) from error


def _make_engine(url: URL) -> Engine:
    try:
        if url.get_backend_name() == "postgresql":
            return postgresql.make_engine(url)
        _make_file(Path(str(url.database)))
        engine = _make_sqlite_engine(url)
    except ImportError as error:
        raise MissingDependencyError(
            f"a store at {url.get_backend_name()} needs the package"
            f" {error.name or url.get_driver_name()}",
            field="store",
            next_step=f"Install it: {install_command('postgresql')}",
        ) from error
    except OSError as error:
        raise _translate(error, url) from error
    event.listen(engine, "connect", _set_pragmas)
    watch_files(engine, Path(str(url.database)))
    return engine


def _make_file(path: Path) -> None:
    """Create a missing database and its folders, readable by their owner only."""
    make_private(path.parent)
    # An existing file must not even be opened. Closing it would drop the locks that SQLite holds on
    # it in this process, and another process could then corrupt it.
    with contextlib.suppress(OSError):  # SQLite reports the error
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _make_sqlite_engine(url: URL) -> Engine:
    if _can_only_be_read(Path(str(url.database))):
        # SQLite writes files next to a database even to read it, which fails here. `immutable` says
        # that nobody can write, so it does not need them.
        unchanging = f"file:{quote(str(url.database))}?mode=ro&immutable=1"

        def open_it() -> sqlite3.Connection:
            return sqlite3.connect(unchanging, uri=True, check_same_thread=False)

        return sa.create_engine(url, creator=open_it)
    return sa.create_engine(
        url, connect_args={"timeout": BUSY_TIMEOUT_S, "check_same_thread": False}
    )


def _can_only_be_read(path: Path) -> bool:
    """Return whether a complete database is on a read-only file system."""
    try:
        read_only = bool(os.statvfs(path).f_flag & os.ST_RDONLY)
        return read_only and not path.with_name(f"{path.name}-wal").exists()
    except (OSError, AttributeError):
        return False


def _set_pragmas(connection: sqlite3.Connection, _record: object) -> None:
    cursor = connection.cursor()
    # A commit survives if the process is killed. Only a power cut may lose the last commits.
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _is_ready(connection: Connection) -> bool:
    if _read_version(connection) != SCHEMA_VERSION:
        return False
    # A file that was restored from a dump is no longer in WAL mode, in which readers and the writer
    # do not wait for each other.
    return (
        connection.dialect.name != "sqlite"
        or _can_only_be_read(Path(str(connection.engine.url.database)))
        or connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
    )


def _read_version(connection: Connection) -> str | None:
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}").scalar()


@contextlib.contextmanager
def _migration_lock(engine: Engine) -> Iterator[None]:
    if engine.dialect.name != "sqlite":
        yield
        return
    import filelock

    path = f"{engine.url.database}.lock"
    try:
        with filelock.FileLock(path, timeout=_MIGRATION_TIMEOUT_S):
            yield
    except filelock.Timeout as error:
        raise StoreUnavailableError(
            f"another process is changing the schema of {engine.url.database}",
            next_step="Try again when it is done.",
        ) from error


def _migrate(engine: Engine) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", "workbench.store.database:migrations")
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            # The mode is stored in the file. Setting it fails if several processes do so at once,
            # so this happens under the lock.
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")
            connection.commit()
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        elif engine.dialect.name == "postgresql":
            postgresql.lock_for_migration(connection, _MIGRATION_TIMEOUT_S)
        _refuse_foreign(connection, ScriptDirectory.from_config(config))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        connection.commit()


def _refuse_foreign(connection: Connection, script: ScriptDirectory) -> None:
    """Raise an error for a database that this version cannot update."""
    version, place = _read_version(connection), describe(connection.engine.url)
    if version is None and sa.inspect(connection).has_table(runs.name):
        raise StoreError(
            f"{place} contains a table {runs.name!r} of another program",
            field="store",
            next_step="Choose another store with --store.",
        )
    if version is None or version in {revision.revision for revision in script.walk_revisions()}:
        return
    if version < SCHEMA_VERSION:
        raise StoreError(
            f"{place} has schema {version}, which is older than this version's {SCHEMA_VERSION}",
            field="store",
            next_step=(
                "Open it with the version of the workbench that wrote it, or choose another store"
                " with --store."
            ),
        )
    raise StoreError(
        f"{place} has schema {version}, which is newer than this version's {SCHEMA_VERSION}",
        field="store",
        next_step="Update the workbench, or choose another store with --store.",
    )


def _translate(error: SQLAlchemyError | OSError | sqlite3.Error, url: URL) -> StoreError:
    place = describe(url)
    cause = error.orig if isinstance(error, DBAPIError) else error
    is_lost = isinstance(error, DBAPIError) and (
        error.connection_invalidated
        or (
            isinstance(error, OperationalError | InterfaceError)
            and not getattr(cause, "sqlstate", None)
        )
    )
    if isinstance(cause, sqlite3.Error):
        code = _code_of(cause)
        if code in _DAMAGED_CODES or _UNDECODABLE in str(cause):
            return StoreError(
                f"{place} is damaged or not a store: {str(cause)[:200]}",
                field="store",
                next_step=(
                    "Save what can still be read, and use that file with --store: "
                    f"sqlite3 {shlex.quote(place)} .recover | sqlite3 recovered.sqlite "
                    "(use .dump if sqlite3 does not support .recover)"
                ),
            )
        if code in _PASSING_CODES:
            return StoreUnavailableError(
                f"{place}: {_PASSING_CODES[code][1]} ({cause})",
                next_step=_NEXT_STEPS.get(code, _CHECK_DISK),
            )
    elif isinstance(error, OSError):
        return StoreUnavailableError(f"{place}: {error.strerror or error}", next_step=_CHECK_DISK)
    elif url.get_backend_name() == "postgresql" and cause is not None:
        translated = postgresql.translate(cause, place, is_lost=is_lost)
        if translated is not None:
            return translated
    elif is_lost:
        return StoreUnavailableError(f"{place} cannot be reached: {cause}")
    return StoreError(f"{place}: {cause}")


def _code_of(error: sqlite3.Error) -> int:
    """Return SQLite's primary code, which is the low byte of the extended one, or 0 if unknown."""
    if (code := getattr(error, "sqlite_errorcode", None)) is not None:
        return code & 0xFF
    return next((code for text, code in _CODE_OF_TEXT.items() if str(error).startswith(text)), 0)
