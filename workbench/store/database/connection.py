"""The connection to the database: its engine, its schema, and the translation of its errors.

Everything specific to SQLite is here; everything specific to PostgreSQL is in `postgresql`.

If the files of an open SQLite database are moved or removed, SQLite continues to use them, but no
other process can find them. A removed write-ahead log still contains the last data. The first
process that notices copies it into the database, unless another process has started a new log in
the meantime. The writer checks whether stored events are missing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import sqlite3
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import (
    DBAPIError,
    DisconnectionError,
    InterfaceError,
    OperationalError,
    SQLAlchemyError,
)

from workbench.foundation.artifacts.local import make_private
from workbench.foundation.errors import (
    MissingDependencyError,
    StoreError,
    StoreUnavailableError,
    install_command,
)
from workbench.foundation.events import process_unix_s
from workbench.store.database import postgresql
from workbench.store.database.tables import (
    SCHEMA_VERSION,
    VERSION_TABLE,
    metadata,
    runs,
    versions,
)
from workbench.store.database.urls import describe

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
logger = logging.getLogger(__name__)
_FILES = "the database and its log"
_PATIENCE_S = 6.0
"""How long to wait for others to save a removed log: a driver notices within three seconds."""


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
    # sqlite3.Error comes from rows that are read and written without SQLAlchemy. SQLite quotes a
    # damaged schema in its message, and Python may be unable to decode that.
    except (SQLAlchemyError, OSError, sqlite3.Error, UnicodeDecodeError) as error:
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
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            # The mode is stored in the file. Setting it fails if several processes do so at once,
            # so this happens under the lock.
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")
            connection.commit()
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        elif engine.dialect.name == "postgresql":
            postgresql.lock_for_migration(connection, _MIGRATION_TIMEOUT_S)
        version = _read_version(connection)
        if version is None:
            _create(connection)
        elif version != SCHEMA_VERSION:
            _update(connection, version)
        connection.commit()


def _create(connection: Connection) -> None:
    """Create all tables as they are now. To import and run migrations takes a new store longer.

    Raises:
        StoreError: If the database belongs to another program.

    Source: "Building an Up to Date Database from Scratch" in the cookbook of alembic.
    """
    if sa.inspect(connection).has_table(runs.name):
        raise StoreError(
            f"{describe(connection.engine.url)} contains a table {runs.name!r} of another program",
            field="store",
            next_step="Choose another store with --store.",
        )
    metadata.create_all(connection, checkfirst=False)
    versions.create(connection)
    connection.execute(versions.insert().values(version_num=SCHEMA_VERSION))


def _update(connection: Connection, version: str) -> None:
    """Run the migrations from a version on.

    Raises:
        StoreError: If there are none from this version on.
    """
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", "workbench.store.database:migrations")
    place, script = describe(connection.engine.url), ScriptDirectory.from_config(config)
    if version in {revision.revision for revision in script.walk_revisions()}:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
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


def _translate(
    error: SQLAlchemyError | OSError | sqlite3.Error | UnicodeDecodeError, url: URL
) -> StoreError:
    place = describe(url)
    cause = error.orig if isinstance(error, DBAPIError) else error
    is_lost = isinstance(error, DBAPIError) and (
        error.connection_invalidated
        or (
            isinstance(error, OperationalError | InterfaceError)
            and not getattr(cause, "sqlstate", None)
        )
    )
    if isinstance(cause, UnicodeDecodeError):
        return _damaged(place, cause)
    if isinstance(cause, sqlite3.Error):
        code = _code_of(cause)
        if code in _DAMAGED_CODES or _UNDECODABLE in str(cause):
            return _damaged(place, cause)
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


def _damaged(place: str, cause: Exception) -> StoreError:
    return StoreError(
        f"{place} is damaged or not a store: {str(cause)[:200]}",
        field="store",
        next_step=(
            "Save what can still be read, and use that file with --store: "
            f"sqlite3 {shlex.quote(place)} .recover | sqlite3 recovered.sqlite "
            "(use .dump if sqlite3 does not support .recover)"
        ),
    )


def _code_of(error: sqlite3.Error) -> int:
    """Return SQLite's primary code, which is the low byte of the extended one, or 0 if unknown."""
    if (code := getattr(error, "sqlite_errorcode", None)) is not None:
        return code & 0xFF
    return next((code for text, code in _CODE_OF_TEXT.items() if str(error).startswith(text)), 0)


def watch_files(engine: Engine, path: Path) -> None:
    """Raise an error if the database was moved or removed, and reconnect if its log was.

    Args:
        engine: The engine of the database, before its first connection.
        path: The file of the database.
    """
    _watch_database(engine, path)
    _Log(path).watch(engine)


def _watch_database(engine: Engine, path: Path) -> None:
    opened: list[tuple[int, int]] = []

    def check(*_: object) -> None:
        if opened and _identify(path) != opened[0]:
            raise StoreError(
                f"{path} was moved or removed while it was open",
                field="store",
                next_step="Put it back, or give its new location with --store.",
            )

    def remember(*_: object) -> None:
        identity = _identify(path)
        if not opened and identity is not None:
            opened.append(identity)

    event.listen(engine, "do_connect", check)
    event.listen(engine, "connect", remember)
    event.listen(engine, "checkout", check)


class _Log:
    """The write-ahead log of a database, and the log that each connection has open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = path.with_name(f"{path.name}-wal")
        self._index = path.with_name(f"{path.name}-shm")
        self._name = str(self._log)  # for `os.stat` at every commit, which is faster with a str
        self._has_saved = threading.Event()

    def watch(self, engine: Engine) -> None:
        """Check the log whenever a connection is made, checked out, or about to commit."""
        event.listen(engine, "do_connect", self._wait_until_saved)
        event.listen(engine, "connect", self._remember)
        event.listen(engine, "checkout", self._check_when_taken)
        event.listen(engine, "commit", self._check_before_commit)

    def _is_replaced(self, info: dict[Any, Any]) -> bool:
        """Return whether a connection uses another log than the other processes."""
        present_log = _identify(self._name)
        opened_log = info.get(_FILES, (None, None))[1]
        if present_log is not None and opened_log == present_log:
            return False
        present = _identify(self._path), present_log
        if info.get(_FILES, present)[0] != present[0]:
            return False  # the database was moved, and its log with it
        if opened_log is None:  # the database had no log when it was opened
            info[_FILES] = present
        return info[_FILES] != present

    def _wait_until_saved(self, *_: object) -> None:
        # SQLite would trust the index of a removed log. So wait until a process that still has the
        # log open has saved it.
        until_s = time.monotonic() + _PATIENCE_S
        while (
            self._index.exists()
            and not self._log.exists()
            and not self._has_saved.is_set()
            and time.monotonic() < until_s
        ):
            time.sleep(0.05)

    def _remember(self, connection: sqlite3.Connection, record: Any) -> None:
        with contextlib.suppress(sqlite3.Error):  # reported when it is used
            connection.execute("PRAGMA schema_version").fetchone()  # opens the log
        record.info[_FILES] = _identify(self._path), _identify(self._log)

    def _check_when_taken(
        self, connection: sqlite3.Connection, record: Any, _proxy: object
    ) -> None:
        if not self._is_replaced(record.info):
            return
        if not self._log.exists():
            _save(connection, self._log)
            self._has_saved.set()
        raise DisconnectionError(f"{self._log} was replaced")  # the pool connects again

    def _check_before_commit(self, connection: Connection) -> None:
        if self._is_replaced(connection.info):
            # SQLAlchemy does not roll back if a commit hook raises.
            connection.connection.rollback()
            raise StoreUnavailableError(
                f"{self._log} was removed while it was open",
                next_step="Do not touch the files next to a store while it is used.",
            )


def _save(connection: sqlite3.Connection, log: Path) -> None:
    """Copy the content of a removed log into the database."""
    try:
        is_busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    except sqlite3.Error as error:
        logger.warning("%s was removed while it was open, and cannot be saved: %s", log, error)
        return
    if not is_busy:
        logger.warning("%s was removed while it was open. Its content is in the database now", log)


def _identify(path: Path | str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
