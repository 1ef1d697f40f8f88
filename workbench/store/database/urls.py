"""Resolve the address of a database, and hide passwords for display."""

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
"""Endings of the files next to a SQLite store."""
_POSTGRESQL = ("postgresql", "postgres")
_DRIVER = "postgresql+psycopg"
# Up to the last @ of the address, because a password may contain an @ or a slash that is not
# escaped.
_PASSWORD = re.compile(r"(://[^:@/?#]*):(?:[^/?]*|[^@]*)@")
_PASSWORD_OPTION = re.compile(r"([?&](?:ssl)?password=)[^&]*")


def user_data_folder() -> Path:
    """Return the folder in which the workbench keeps the user's data."""
    import platformdirs

    return Path(platformdirs.user_data_dir("workbench", appauthor=False))


def usual_artifacts(url: URL) -> Path:
    """Return the default place of the files of runs."""
    if url.get_backend_name() == "sqlite":
        return Path(str(url.database)).parent / "artifacts"
    return user_data_folder() / "artifacts"


def hide_password(url: str) -> str:
    """Return the URL of a database with its password hidden."""
    return _PASSWORD_OPTION.sub(r"\1***", _PASSWORD.sub(r"\1:***@", url))


def is_shared(url: str) -> bool:
    """Return whether a store is a database server, which other machines can also reach."""
    return not url.startswith("sqlite")


def without_password(url: URL) -> tuple[str, bool]:
    """Return the URL of a database without its password, and whether it had one."""
    query = {
        name: value for name, value in url.query.items() if name not in ("password", "sslpassword")
    }
    kept = URL.create(
        url.get_backend_name(), url.username, None, url.host, url.port, url.database, query
    )  # not `url.set`, which keeps the password if it gets None
    shown = kept.render_as_string(hide_password=False)
    return shown, url.password is not None or kept.query != url.query


def as_typed(address: str) -> str:
    """Return a store's address to type again, without its password."""
    if "://" in address:
        return without_password(sa.make_url(address))[0]
    return address


def name_driver(url: str) -> str:
    """Return the URL of a database, with psycopg as the driver for PostgreSQL."""
    backend, separator, location = url.partition("://")
    if backend in _POSTGRESQL:
        return f"{_DRIVER}{separator}{location}"
    return url


def describe(url: URL) -> str:
    """Return the address of a database as people write it, without its password."""
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    return hide_password(url.set(drivername=url.get_backend_name()).render_as_string())


def resolve_url(address: str | None) -> URL:
    """Resolve the URL of a database.

    Args:
        address: A SQLAlchemy URL or the path of a SQLite file. None means WORKBENCH_STORE or the
            default.

    Returns:
        The URL. A SQLite file has its absolute path.

    Raises:
        StoreError: If it is a folder, or not a URL or a file, or the kind of database is not
            supported.
    """
    text = address or os.environ.get(VARIABLE) or str(user_data_folder() / "store.sqlite")
    if "://" not in text:
        text = f"sqlite:///{text}"
    try:
        url = sa.make_url(name_driver(text))
    except (ArgumentError, ValueError) as error:  # a port that is not a number
        raise StoreError(
            f"{hide_password(text)!r} is not the address of a store",
            field="store",
            allowed=_ALLOWED,
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
            "the processes of a run cannot share a store in memory",
            field="store",
            allowed=_ALLOWED,
        )
    path = Path(str(url.database)).expanduser().absolute()
    if os.path.isdir(path):  # False as well if its folder cannot be read
        raise StoreError(
            f"{path} is a folder",
            field="store",
            next_step=f"Choose a file in it: {path / 'store.sqlite'}",
        )
    return url.set(database=str(path))


def check_exists(address: str | None) -> None:
    """Raise an error if a SQLite file does not exist, because opening would create it.

    Args:
        address: The argument of `resolve_url`. The user's default store need not exist.

    Raises:
        StoreError: If it is a folder, or does not exist. Files of similar names are listed.
    """
    chosen = address or os.environ.get(VARIABLE)
    if not chosen:
        return
    url = resolve_url(chosen)
    path = Path(str(url.database))
    if url.get_backend_name() != "sqlite" or path.is_file():
        return
    neighbours = path.parent.glob("*") if path.parent.is_dir() else ()
    names = [
        file.name for file in neighbours if file.is_file() and not file.name.endswith(_OF_SQLITE)
    ]
    near = difflib.get_close_matches(path.name, names)
    raise StoreError(
        f"there is no store at {path}{'' if address else f' (from {VARIABLE})'}",
        field="store",
        allowed=[str(path.with_name(name)) for name in near],
        next_step="Check the path. The first sweep that uses it creates it.",
    )
