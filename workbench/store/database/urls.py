"""Resolves the address of a database, and hides passwords for display."""

from __future__ import annotations

import difflib
import os
import re
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError

from workbench.foundation.errors import StoreError

VARIABLE = "WORKBENCH_STORE"
_ALLOWED = "the path of a SQLite file, or postgresql://USER@HOST/DATABASE"
_OF_SQLITE = ("-wal", "-shm", ".lock")
"""Endings of the files next to that of a store."""
_POSTGRESQL = ("postgresql", "postgres")
_DRIVER = "postgresql+psycopg"
# Up to the last @ of the address, because a password may hold one, or a slash, that was not
# escaped.
_PASSWORD = re.compile(r"(://[^:@/?#]*):(?:[^/?]*|[^@]*)@")
_PASSWORD_OPTION = re.compile(r"([?&](?:ssl)?password=)[^&]*")


def user_data_folder() -> Path:
    """Return the folder in which the workbench keeps the user's data."""
    import platformdirs

    return Path(platformdirs.user_data_dir("workbench", appauthor=False))


def usual_artifacts(url: URL) -> Path:
    """Return the default place of the files of runs."""
    beside_it = url.get_backend_name() == "sqlite"
    return (Path(str(url.database)).parent if beside_it else user_data_folder()) / "artifacts"


def hide_password(url: str) -> str:
    """Return the URL of a database as it may be shown."""
    return _PASSWORD_OPTION.sub(r"\1***", _PASSWORD.sub(r"\1:***@", url))


def is_shared(url: str) -> bool:
    """Return whether a store is a database server, which other machines reach as well."""
    return not url.startswith("sqlite")


def without_password(url: URL) -> tuple[str, bool]:
    """Return the URL of a database without its password, and whether it had one."""
    query = {
        name: value for name, value in url.query.items() if name not in ("password", "sslpassword")
    }
    kept = URL.create(
        url.get_backend_name(), url.username, None, url.host, url.port, url.database, query
    )  # `set` takes None for "as it is"
    shown = kept.render_as_string(hide_password=False)
    return shown, url.password is not None or kept.query != url.query


def as_typed(given: str) -> str:
    """Return a store address to type again, without its password; see PGPASSWORD or ~/.pgpass."""
    if "://" in given:
        return without_password(sa.make_url(given))[0]
    return given


def name_driver(url: str) -> str:
    """Return the URL of a database with the driver that is used where it names none."""
    backend, separator, rest = url.partition("://")
    if backend in _POSTGRESQL:
        return f"{_DRIVER}{separator}{rest}"
    return url


def describe(url: URL) -> str:
    """Return where a database is, as people write it and without its password."""
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    return hide_password(url.set(drivername=url.get_backend_name()).render_as_string())


def resolve_url(given: str | None) -> URL:
    """Resolve the URL of a database.

    Args:
        given: A SQLAlchemy URL or the path of a SQLite file; None for WORKBENCH_STORE or the
            default.

    Returns:
        The URL; for a SQLite file, with its absolute path.

    Raises:
        StoreError: If it is not a URL or a file, or for another kind of database.
    """
    text = given or os.environ.get(VARIABLE) or str(user_data_folder() / "store.sqlite")
    if "://" not in text:
        text = f"sqlite:///{text}"
    try:
        url = sa.make_url(name_driver(text))
    except (ArgumentError, ValueError) as error:  # a port that is not a number
        raise StoreError(
            f"{hide_password(text)!r} does not name a store", field="store", allowed=_ALLOWED
        ) from error
    if url.get_backend_name() == "postgresql" and url.drivername != _DRIVER:
        raise StoreError(
            f"a store cannot use the driver {url.drivername}",
            field="store",
            allowed="postgresql://USER@HOST/DATABASE, which uses psycopg",
        )
    if url.get_backend_name() == "postgresql":
        return url
    if url.get_backend_name() != "sqlite":
        raise StoreError(
            f"{url.get_backend_name()!r} is not a supported kind of database",
            field="store",
            allowed=_ALLOWED,
        )
    if url.database in (None, "", ":memory:"):
        raise StoreError(
            "a store in memory cannot be shared by the processes of a run",
            field="store",
            allowed=_ALLOWED,
        )
    return url.set(database=str(Path(str(url.database)).expanduser().absolute()))


def check_exists(given: str | None) -> None:
    """Reject a given SQLite file that is a folder or does not exist; opening would create it.

    Args:
        given: The argument of `resolve_url`. A user's default store need not exist.

    Raises:
        StoreError: If it is a folder, or does not exist. Files of similar names are listed.
    """
    named = given or os.environ.get(VARIABLE)
    if not named:
        return
    url = resolve_url(named)
    path = Path(str(url.database))
    if url.get_backend_name() != "sqlite" or path.is_file():
        return
    if path.is_dir():
        raise StoreError(
            f"{path} is a folder",
            field="store",
            next_step=f"Choose a file in it: {path / 'store.sqlite'}",
        )
    neighbours = path.parent.glob("*") if path.parent.is_dir() else ()
    names = [
        file.name for file in neighbours if file.is_file() and not file.name.endswith(_OF_SQLITE)
    ]
    near = difflib.get_close_matches(path.name, names)
    raise StoreError(
        f"there is no store at {path}{'' if given else f' (from {VARIABLE})'}",
        field="store",
        allowed=[str(path.with_name(name)) for name in near],
        next_step="Check the path. A sweep that is started there creates it.",
    )
