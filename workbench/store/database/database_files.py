"""Watch the files of a SQLite database that is open: the database, and its write-ahead log.

SQLite continues in the files that it opened, which nobody else finds once they were moved or
removed. A log that was removed still holds what was stored last: the first process that notices
copies it into the database, unless another one has begun a new log meanwhile. Whether stored events
are gone is left to the writer.
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
"""How long to wait for others to save a log that was removed.

A driver notices within three seconds.
"""


def watch_files(engine: Engine, path: Path) -> None:
    """Refuse to continue if the database was moved or removed, and reconnect if its log was.

    Args:
        engine: The engine of the database, before its first connection.
        path: The file of the database.
    """
    _watch_database(engine, path)
    _watch_log(engine, path)


def _watch_database(engine: Engine, path: Path) -> None:
    opened: list[tuple[int, int]] = []

    def check(*_: object) -> None:
        if opened and _identify(path) != opened[0]:
            raise StoreError(
                f"{path} was moved or removed while it was open",
                field="store",
                next_step="Put it back, or name the store where it is now with --store.",
            )

    def remember(*_: object) -> None:
        identity = _identify(path)
        if not opened and identity is not None:
            opened.append(identity)

    event.listen(engine, "do_connect", check)
    event.listen(engine, "connect", remember)
    event.listen(engine, "checkout", check)


def _watch_log(engine: Engine, path: Path) -> None:
    log, index = path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")
    log_name = str(log)  # looked up at every commit, and a text is faster to look up
    has_saved = threading.Event()

    def is_replaced(info: dict[Any, Any]) -> bool:
        """Return whether a connection uses another log than the one that others find."""
        found_log = _identify(log_name)
        if found_log is not None and info.get(_FILES, (None, None))[1] == found_log:
            return False
        found = _identify(path), found_log
        if info.get(_FILES, found)[0] != found[0]:
            return False  # the database is elsewhere, and its log with it
        if info.get(_FILES, (None, None))[1] is None:  # the database had no log when it was opened
            info[_FILES] = found
        return info[_FILES] != found

    def wait_until_saved(*_: object) -> None:
        # The index of a log that was removed would be believed: those who still have the log open
        # save it.
        until_s = time.monotonic() + _PATIENCE_S
        while (
            index.exists()
            and not log.exists()
            and not has_saved.is_set()
            and time.monotonic() < until_s
        ):
            time.sleep(0.05)

    def remember(connection: sqlite3.Connection, record: Any) -> None:
        with contextlib.suppress(sqlite3.Error):  # reported when it is used
            connection.execute("PRAGMA schema_version").fetchone()  # opens the log
        record.info[_FILES] = _identify(path), _identify(log)

    def check_when_taken(connection: sqlite3.Connection, record: Any, _proxy: object) -> None:
        if not is_replaced(record.info):
            return
        if not log.exists():
            _save(connection, log)
            has_saved.set()
        raise DisconnectionError(f"{log} was replaced")  # the pool connects again

    def check_before_commit(connection: Connection) -> None:
        if is_replaced(connection.info):
            # where a commit is refused, SQLAlchemy leaves that to us
            connection.connection.rollback()
            raise StoreUnavailableError(
                f"{log} was removed while it was open",
                next_step="Leave the files beside a store alone while it is used.",
            )

    event.listen(engine, "do_connect", wait_until_saved)
    event.listen(engine, "connect", remember)
    event.listen(engine, "checkout", check_when_taken)
    event.listen(engine, "commit", check_before_commit)


def _save(connection: sqlite3.Connection, log: Path) -> None:
    """Copy what a removed log holds into the database."""
    try:
        is_busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    except sqlite3.Error as error:
        logger.warning("%s was removed while it was open, and cannot be saved: %s", log, error)
        return
    if not is_busy:
        logger.warning("%s was removed while it was open: what it held is in the database now", log)


def _identify(path: Path | str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
