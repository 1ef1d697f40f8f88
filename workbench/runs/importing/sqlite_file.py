"""Opens a SQLite file of another tool to read it, without changing it or the files next to it."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from workbench.foundation.errors import DataError

_MAGIC = b"SQLite format 3\x00"


def is_sqlite(path: Path) -> bool:
    """Return whether a file is a SQLite database."""
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


@contextlib.contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database to read it.

    Args:
        path: The file.

    Yields:
        A connection that cannot write.

    Raises:
        DataError: If it cannot be read, or another program has locked it.
    """
    connection = None
    with translated(path):
        try:
            connection = connect(path)
            yield connection
        finally:
            if connection is not None:
                connection.close()


def connect(path: Path) -> sqlite3.Connection:
    """Return a connection to a database that cannot write. The caller closes it."""
    connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)
    connection.execute("PRAGMA query_only = 1")
    return connection


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Translate the errors of SQLite for a file."""
    try:
        yield
    except sqlite3.Error as error:
        raise DataError(
            f"{path} cannot be read: {error}",
            next_step="Close the program that writes it, or import a copy.",
        ) from error


def tables_of(path: Path) -> frozenset[str]:
    """Return the names of the tables of a database.

    Raises:
        DataError: If it cannot be read.
    """
    with opened(path) as connection:
        return frozenset(
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        )


def columns_of(connection: sqlite3.Connection, table: str) -> frozenset[str]:
    """Return the columns of a table, whose name this package knows."""
    return frozenset(row[1] for row in connection.execute(f"PRAGMA table_info({table})"))
