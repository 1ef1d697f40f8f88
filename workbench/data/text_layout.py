"""How the file of a text table is written: its encoding, its separator, and where its header is.

People export tables with a title above the header, a separator behind the last column, or in the
encoding of their country. Each file is examined before it is read. `number_texts` and `dates` say
how its columns are written.
"""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import lzma
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from workbench.foundation.errors import DataError
from workbench.foundation.text_tables import SIGNS, check_repeated, separator_in

UTF_8 = "utf-8-sig"
WESTERN = "cp1252"
_MARKS = {  # UTF-32 first, because its mark starts with the one of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_BEGINNINGS = {
    b"PK\x03\x04": ("a spreadsheet or an archive", ".xlsx, or to .zip"),
    b"\x1f\x8b": ("compressed with gzip", ".csv.gz"),
    b"PAR1": ("a Parquet file", ".parquet"),
    b"SQLite format 3": ("a SQLite file", ".sqlite"),
}
"""What files of other kinds start with, what they are, and their ending."""
_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_COMPRESSED = (*_OPENERS, ".zip", ".zst")
_NUM_BYTES = 2**20
_NUM_ROWS = 50
_ASIDE = 64
"""How many bytes of a chunk are examined again with the next one."""
_LEADING_ZEROS = re.compile(rb"(?<![\w.:/+-])0\d\d+(?![\w.:/-])")
_SAID = re.compile(r"sep=(.)\s*", re.IGNORECASE)
"""The first line with which Excel is told the separator."""
_NUMBER = re.compile(r"[+-]?[\d.,'\u2019\s]*\d[\d.,'\u2019\s]*%?")
_HIGH = re.compile(rb"[\x80-\xff]+")
# In Windows-1252, these are letters that Western languages hardly use. On a Mac, they are common.
_RARE = re.compile(rb"[\x83\x88\x8a\x8c\x8e\x98\x9a\x9c\x9e\x9f]")
_COMMON = re.compile(rb"[\xc0-\xff]")
_FEWEST_FILLED = 4
"""With fewer columns, a header of two names may be whole."""
_LEAST_ALIKE = 0.8
"""At least this share of the rows below a header has a cell for each of its names."""
_MOST_JOINED = 0.25
"""Up to this share of its letters with a mark may be three or more in a row in a Western text."""


@dataclass(frozen=True)
class TextLayout:
    """How the file of a text table is written.

    Attributes:
        encoding: Its encoding, as Python calls it.
        separator: The sign between its columns.
        names: The names of the columns, without spaces around them. A missing name is "".
        num_skipped: The number of lines before the header.
        has_trailing: Whether each row, but not the header, ends with a separator.
        may_have_codes: Whether it may hold whole numbers with leading zeros, such as 00501.
        notes: What the user should know about it.
    """

    encoding: str
    separator: str
    names: tuple[str, ...]
    num_skipped: int = 0
    has_trailing: bool = False
    may_have_codes: bool = False
    notes: tuple[str, ...] = ()

    def open(self, path: Path) -> IO[str]:
        """Return the opened text of a file, at the line of the header."""
        opened = io.TextIOWrapper(_open_bytes(path), encoding=self.encoding, newline="")
        for _ in range(self.num_skipped):
            opened.readline()
        return opened


def is_text_table(path: Path) -> bool:
    """Return whether a file has the ending of a text table, perhaps of a compressed one."""
    return _signs_of(path) is not None


def open_text(path: Path, *, field: str | None = "data.path") -> IO[str]:
    """Return the opened text of a text table, which may be compressed, in its encoding.

    Args:
        path: A file with the ending of a text table.
        field: The place of the file in errors.

    Raises:
        DataError: If it is not text, or in an unknown encoding.
        OSError: If it cannot be read.
    """
    encoding, _ = _encoding_of(path, field)
    return io.TextIOWrapper(_open_bytes(path), encoding=encoding, newline="")


def layout_of(path: Path, *, field: str | None = "data.path") -> TextLayout:
    """Return how the file of a text table is written.

    Args:
        path: A file with the ending of a text table.
        field: The place of the file in errors.

    Raises:
        DataError: If it is empty, not text, in an unknown encoding, or repeats a column.
        OSError: If it cannot be read.
    """
    encoding, may_have_codes = _encoding_of(path, field)
    notes = []
    if encoding == WESTERN:
        notes.append(
            f"{path.name} is not UTF-8: it is read as Windows-1252. If letters look wrong, save it"
            " as UTF-8"
        )
    with io.TextIOWrapper(_open_bytes(path), encoding=encoding, newline="") as opened:
        start = opened.read(_NUM_BYTES)
    said = _SAID.fullmatch(start.partition("\n")[0])
    signs = (said[1],) if said else _signs_of(path) or SIGNS[".csv"]
    headers = {sign: _header_in(start, sign, is_said=bool(said)) for sign in signs}
    # Commas in a title or in a text may look like separators.
    most_regular = max(header.regularity for header in headers.values())
    separator = separator_in(
        {
            sign: header.names
            for sign, header in headers.items()
            if header.regularity == most_regular
        }
    )
    header = headers[separator]
    if not any(header.names):
        raise DataError(
            f"{path} is empty",
            field=field,
            allowed="a line with the names of the columns, and rows",
            next_step="Write the file again from its source.",
        )
    check_repeated(path, header.names, field=field)
    if header.titles:
        lines = "line is" if len(header.titles) == 1 else f"{len(header.titles)} lines are"
        notes.append(f"the first {lines} above the table and skipped: {header.titles[0]!r}")
    return TextLayout(
        encoding=encoding,
        separator=separator,
        names=tuple(header.names),
        num_skipped=header.num_skipped,
        has_trailing=header.has_trailing,
        may_have_codes=may_have_codes,
        notes=tuple(notes),
    )


def plain_name(name: str) -> str:
    r"""Return the name of a column without spaces around it, and with composed letters.

    Example:
        >>> plain_name(" gro\u0308ße ") == "größe"
        True
    """
    return unicodedata.normalize("NFC", name.strip())


def _signs_of(path: Path) -> tuple[str, ...] | None:
    *_, before, last = ["", "", *(ending.lower() for ending in path.suffixes)]
    return SIGNS.get(before if last in _COMPRESSED else last)


def _open_bytes(path: Path) -> Any:
    return _OPENERS.get(path.suffix.lower(), open)(path, "rb")


def _encoding_of(path: Path, field: str | None) -> tuple[str, bool]:
    """Return the encoding of a file, and whether it may hold numbers with leading zeros."""
    with _open_bytes(path) as opened:
        chunk = opened.read(_NUM_BYTES)
        for mark, name in _MARKS.items():
            if chunk.startswith(mark):
                return name, True
        _check_beginning(path, chunk, field)
        if b"\0" in chunk:
            return _of_wide(path, chunk, field), True
        decoder = codecs.getincrementaldecoder("utf-8")()
        is_utf_8, may_have_codes = True, False
        high: list[bytes] = []
        last = b""
        while chunk:
            may_have_codes = may_have_codes or _LEADING_ZEROS.search(last + chunk) is not None
            last = chunk[-_ASIDE:]
            if is_utf_8:
                try:
                    decoder.decode(chunk)
                except UnicodeDecodeError:
                    is_utf_8 = False
            if not chunk.isascii():
                high += _HIGH.findall(chunk)
            chunk = opened.read(_NUM_BYTES)
    if is_utf_8:
        with suppress(UnicodeDecodeError):
            decoder.decode(b"", final=True)
            return UTF_8, may_have_codes
    if not _are_western(high):
        raise DataError(
            f"{path} is not UTF-8, and its encoding is not known",
            field=field,
            allowed="UTF-8, UTF-16 or Windows-1252",
            next_step="Save it as UTF-8.",
        )
    return WESTERN, may_have_codes


def _check_beginning(path: Path, start: bytes, field: str | None) -> None:
    for beginning, (kind, ending) in _BEGINNINGS.items():
        if start.startswith(beginning):
            raise DataError(
                f"{path} is {kind}, not a text table",
                field=field,
                next_step=f"Rename it to {ending}.",
            )


def _of_wide(path: Path, start: bytes, field: str | None) -> str:
    """Return the encoding of a file with zero bytes: UTF-16 without a mark."""
    for encoding, zeros in (("utf-16-le", start[1::2]), ("utf-16-be", start[::2])):
        if 2 * zeros.count(0) > len(zeros):
            return encoding
    raise DataError(
        f"{path} is not text",
        field=field,
        allowed=", ".join(SIGNS) + " are text tables",
        next_step="Export it as a table again.",
    )


def _are_western(high: Sequence[bytes]) -> bool:
    """Return whether the bytes beyond ASCII, in the order of the text, may be Windows-1252."""
    joined = b"".join(high)
    try:
        joined.decode(WESTERN)
    except UnicodeDecodeError:
        return False
    num_joined = sum(len(run) for run in high if len(run) > 2)
    num_rare, num_common = len(_RARE.findall(joined)), len(_COMMON.findall(joined))
    return num_joined <= _MOST_JOINED * len(joined) and num_rare <= num_common


@dataclass(frozen=True)
class _Header:
    names: list[str]
    num_skipped: int = 0
    has_trailing: bool = False
    titles: tuple[str, ...] = ()
    regularity: int = 0
    """3 if it is the first row, has several names, and the rows below are as long. 1 if the row
    right below it is not, 2 if it is below a title, and 0 for all others."""


def _header_in(start: str, sign: str, *, is_said: bool) -> _Header:
    """Return where the header of a table is, if a sign separates its columns.

    Args:
        start: The start of the file.
        sign: The separator.
        is_said: Whether the first line only says the separator.
    """
    rows = [row for row in _rows_in(start, sign) if any(map(str.strip, row[2]))]
    if is_said:
        rows = rows[1:]
    if not rows:
        return _Header([])
    place = _place_of_header([cells for *_, cells in rows])
    before, _, cells = rows[place]
    names = [plain_name(cell) for cell in cells]
    below = [cells for *_, cells in rows[place + 1 :]]
    has_trailing = bool(below) and all(
        len(cells) == len(names) + 1 and not cells[-1].strip() for cells in below
    )
    titles = tuple(next(filter(None, map(str.strip, cells)), "") for *_, cells in rows[:place])
    regularity = 0
    if len(names) > 1 and _are_as_long(names, below):
        regularity = 2
        if place == 0:
            regularity = 3 if _are_as_long(names, below[:1]) else 1
    return _Header(names, before, has_trailing, titles, regularity)


def _rows_in(start: str, sign: str) -> Iterator[tuple[int, int, list[str]]]:
    """Yield the first rows with the number of lines before and after each."""
    reader = csv.reader(io.StringIO(start, newline=""), delimiter=sign, skipinitialspace=True)
    before = 0
    with suppress(csv.Error):  # reading the file reports it
        for _ in range(_NUM_ROWS):
            cells = next(reader, None)
            if cells is None:
                return
            yield before, reader.line_num, cells
            before = reader.line_num


def _place_of_header(rows: Sequence[Sequence[str]]) -> int:
    """Return the place of the header among the first rows: 0, or behind a title or comments."""
    for place, cells in enumerate(rows[:-1]):
        if not _is_title(cells, rows[place + 1 :]):
            return place if _is_header(rows[place:]) else 0
    return 0


def _is_title(cells: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Return whether a row is a title or a comment above the table."""
    if cells[0].startswith("#"):
        width = next((len(row) for row in below if not row[0].startswith("#")), len(cells))
        return len(cells) != width
    num_filled = _num_filled(cells)
    if not cells[0].strip() or not below:
        return False
    # Banks write lines such as an account and its number above the table.
    usual = sorted(map(_num_filled, below))[len(below) // 2]
    return num_filled == 1 or (usual >= _FEWEST_FILLED and 2 * num_filled <= usual)


def _num_filled(cells: Sequence[str]) -> int:
    return sum(bool(cell.strip()) for cell in cells)


def _is_header(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row has a name for each of several columns of the others."""
    names, below = rows[0], rows[1:]
    num_names = sum(bool(name.strip()) and not _NUMBER.fullmatch(name.strip()) for name in names)
    return num_names >= max(2, len(names) // 2) and _are_as_long(names, below)


def _are_as_long(names: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    num_like = sum(len(row) in (len(names), len(names) + 1) for row in below)
    return num_like >= _LEAST_ALIKE * len(below)
