"""Tables from where people keep them: a file, a zip archive, a folder of files, a database.

`table_files` reads a single file. Here files of a folder are joined, an archive is opened, and a
query is sent to a database. The address of a database is used once and is never stored, since it
may hold a password.
"""

from __future__ import annotations

import re
import tempfile
import zipfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.data.number_texts import number_text_of
from workbench.data.options import existing_path
from workbench.data.plain_frames import PlainFrame, plain_frame
from workbench.data.table_files import TABLE_ENDINGS, read_columns, read_noted_table
from workbench.data.table_formats import split_part
from workbench.data.text_layout import is_text_table
from workbench.foundation.errors import ArgumentError, DataError
from workbench.foundation.text_tables import check_repeated

if TYPE_CHECKING:
    import pandas as pd

_ADDRESS = re.compile(r"[a-z][a-z0-9+]*://", re.IGNORECASE)
_ZIP = ".zip"


def is_address(source: object) -> bool:
    """Return whether a source is the address of a database, such as postgresql://host/shop."""
    return isinstance(source, str) and _ADDRESS.match(source) is not None


def name_of_source(source: str | Path) -> str | None:
    """Return a short name of a source for people, or None for an address, which may be secret."""
    if is_address(source):
        return None
    return Path(source).name.split(".")[0]


def read_source(
    source: str | Path,
    *,
    query: str | None = None,
    other_names: Collection[str] = (),
    decimal_commas: Collection[str] = (),
) -> PlainFrame:
    """Read a table from a file, an archive, a folder or a database.

    Args:
        source: A file that `read_noted_table` can read, a .zip with one such file, a folder with
            files of the same columns, or the SQLAlchemy address of a database.
        query: What to select from a database, such as SELECT * FROM orders.
        other_names: What may be written instead of a path, for the error if there is no such path.
        decimal_commas: As in `read_noted_table`.

    Raises:
        DataError: If it cannot be read.
        ArgumentError: If there is an address without a query, or a query without an address.
    """
    if is_address(source):
        return _read_query(str(source), query)
    if query is not None:
        raise ArgumentError(
            "only a database takes a query", field="query", next_step="Give its address as data."
        )
    path = Path(source).expanduser()
    file, part = split_part(path)
    existing_path(file, other_names=other_names)
    if path.is_dir():
        return _read_folder(path, decimal_commas)
    if file.suffix.lower() == _ZIP:
        return _read_archive(file, part, decimal_commas)
    return read_noted_table(path, decimal_commas=decimal_commas)


def _read_query(address: str, query: str | None) -> PlainFrame:
    import pandas as pd
    import sqlalchemy
    from sqlalchemy.exc import SQLAlchemyError

    if query is None:
        raise ArgumentError(
            "a database needs a query",
            field="query",
            next_step="Say what to select, such as SELECT * FROM orders.",
        )
    try:
        engine = sqlalchemy.create_engine(address)
        with engine.connect() as connection:
            answer = connection.execute(sqlalchemy.text(query))
            names = list(answer.keys())
            rows = pd.DataFrame(answer.fetchall(), columns=names)
        engine.dispose()
    except ImportError as error:
        raise DataError(
            f"the driver of this database is not installed: {error.name}",
            field="data",
            next_step=f"Install it with: pip install {error.name}",
        ) from None
    except SQLAlchemyError as error:
        # The text of some errors contains the whole address.
        said = str(getattr(error, "orig", None) or error).replace(address, "the address")
        raise DataError(
            f"the database did not answer the query: {said}",
            field="query",
            next_step="Try the query in a client of the database.",
        ) from None
    check_repeated("the answer to the query", names, field="query")
    return plain_frame(rows, keeps_others=True)


def _read_folder(folder: Path, decimal_commas: Collection[str]) -> PlainFrame:
    """Join the tables in a folder, in the order of their names."""
    files = sorted(filter(_is_table, folder.iterdir()))
    if not files:
        step = "Put the files into it, or give the path of one."
        if below := sorted(path.name for path in folder.iterdir() if path.is_dir()):
            step = f"Subfolders are not read. Give the path of one, such as {folder / below[0]}."
        raise DataError(
            f"the folder {folder} has no table",
            field="data.path",
            allowed=f"files that end in {', '.join(TABLE_ENDINGS)}",
            next_step=step,
        )
    return _joined(files, folder.name, decimal_commas)


def _joined(files: Sequence[Path], name: str, decimal_commas: Collection[str]) -> PlainFrame:
    """Read files of the same columns as one table.

    Args:
        files: The files, at least one.
        name: What to call where they are.
        decimal_commas: As in `read_noted_table`.
    """
    import pandas as pd

    tables = [read_noted_table(path, decimal_commas=decimal_commas) for path in files]
    notes = dict.fromkeys(note for read in tables for note in read.notes)
    frames = [read.table for read in tables]
    for path, table in zip(files, frames, strict=True):
        _check_same_columns(files[0], frames[0], path, table)
    for column in map(str, frames[0].columns):
        notes |= dict.fromkeys(_with_same_kind(files, frames, column))
    joined = pd.concat(frames, ignore_index=True)
    joined.attrs |= frames[0].attrs
    if len(files) > 1:
        notes[f"{len(joined)} rows come from {len(files)} files in {name}"] = None
    return PlainFrame(joined, tuple(notes))


def _with_same_kind(files: Sequence[Path], frames: list[pd.DataFrame], column: str) -> list[str]:
    """Read a column as numbers in all files if it has numbers in some. Return notes.

    One file may write 12.5 and another one 12,5, or 12.5 kg.
    """
    from pandas.api import types

    places = [
        place
        for place, frame in enumerate(frames)
        if not types.is_numeric_dtype(frame[column]) and frame[column].notna().any()
    ]
    if not places or len(places) == len(frames):
        return []
    forms = {place: number_text_of(frames[place][column]) for place in places}
    for place, form in forms.items():
        if form is None:
            numbers = next(place for place in range(len(frames)) if place not in forms)
            return [
                f"{column} has texts in {files[place].name} and numbers in {files[numbers].name}:"
                " all are read as text"
            ]
    for place, form in forms.items():
        assert form is not None
        numbers_of_file = form.parse_all(frames[place][column])
        frames[place] = frames[place].assign(**{column: numbers_of_file})
    return [f"{column} is written differently in {len(places)} of {len(frames)} files"]


def _check_same_columns(
    first_path: Path, first: pd.DataFrame, path: Path, table: pd.DataFrame
) -> None:
    differing = sorted(set(map(str, first.columns)) ^ set(map(str, table.columns)))
    if differing:
        raise DataError(
            f"{path.name} and {first_path.name} have different columns: {', '.join(differing)}",
            field="data.path",
            allowed="the same columns in every file of a folder",
            next_step="Rename or remove columns, or move the file out of the folder.",
        )


def _read_archive(path: Path, part: str | None, decimal_commas: Collection[str]) -> PlainFrame:
    """Read the table in an archive, or several with the same columns as one."""
    try:
        with zipfile.ZipFile(path) as archive, tempfile.TemporaryDirectory() as folder:
            names = sorted(name for name in archive.namelist() if _is_table(Path(name)))
            chosen = [name for name in names if part in (None, name, Path(name).name)]
            if not chosen:
                problem = f"{path.name} has no table"
                raise DataError(
                    problem if part is None else f"{problem} {part!r}",
                    field="data.path",
                    allowed=names
                    or f"an archive with files that end in {', '.join(TABLE_ENDINGS)}",
                    next_step="Give the path of another file.",
                )
            files = [Path(archive.extract(name, folder)) for name in chosen]
            heads = {frozenset(read_columns(file)) for file in files}
            if len(heads) > 1:
                raise DataError(
                    f"{path.name} has {len(names)} tables with different columns",
                    field="data.path",
                    allowed=names,
                    next_step=f"Say which one, such as {path.name}#{names[0]}",
                )
            return _joined(files, path.name, decimal_commas)
    except (zipfile.BadZipFile, RuntimeError) as error:  # RuntimeError: it needs a password
        raise DataError(
            f"{path} cannot be opened: {error}",
            field="data.path",
            next_step="Extract it, and give the path of the file.",
        ) from error


def _is_table(path: Path) -> bool:
    # Archives that macOS makes hold a second, hidden file for each file.
    is_hidden = path.name.startswith(".") or path.parts[0] == "__MACOSX"
    # A .txt file next to tables describes them.
    is_table = path.suffix.lower() in TABLE_ENDINGS or is_text_table(path)
    return is_table and path.suffix.lower() != ".txt" and not is_hidden
