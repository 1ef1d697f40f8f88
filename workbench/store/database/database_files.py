"""Watch the files of an open SQLite database: the database and its write-ahead log.

If these files are moved or removed, SQLite continues to use them, but no other process can find
them. A removed log still contains the last data. The first process that notices copies it into the
database, unless another process has started a new log in the meantime. The writer checks whether
stored events are missing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DisconnectionError

from workbench.foundation.errors import StoreError, StoreUnavailableError

logger = logging.getLogger(__name__)

_FILES = "the database and its log"
_PATIENCE_S = 6.0
"""How long to wait for others to save a removed log: a driver notices within three seconds."""


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
