"""Pictures, tables and texts that a trial reports with its metrics, as bytes to store and show.

A value is recognised by its type, without an import of its library. It is cut to a size that a
browser can show.
"""

from __future__ import annotations

import io
import json
import math
import numbers
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from workbench.foundation.errors import ArgumentError

Kind = Literal["image", "table", "text"]

MAX_IMAGE_BYTES = 4 * 2**20
MAX_SIDE = 2048
"""Pixels of an array in one direction. In a larger one, some rows and columns are dropped."""
MAX_ROWS, MAX_COLUMNS, MAX_CELL_CHARS = 500, 50, 300
MAX_TABLE_BYTES = 2**20
MAX_TEXT_CHARS = 100_000

MEDIA_TYPES = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "svg": "image/svg+xml",
    "json": "application/json",
    "txt": "text/plain; charset=utf-8",
}
"""Media types by the ending of a file's name."""


@dataclass(frozen=True)
class Attachment:
    """A picture, a table or a text that a trial reported."""

    name: str
    kind: Kind
    suffix: str
    content: bytes


@dataclass(frozen=True)
class Table:
    """The content of a table's file."""

    columns: list[str]
    rows: list[list[Any]]
    num_rows: int
    """The number of rows that were reported. Only the first ones are kept."""


def attachment_of(name: str, value: Any) -> Attachment | None:
    """Return the attachment for a reported value, or None if it is not a picture, table or text.

    These are pictures: a NumPy array or a tensor with two or three dimensions, an image of Pillow,
    a figure of matplotlib, a `Path`. These are tables: a list of mappings, a mapping of lists, a
    data frame. A `str` is a text.

    Args:
        name: The name. A text with the name `image` is the path of a picture.
        value: The value.

    Raises:
        ArgumentError: If a picture cannot be read, or is too large.
    """
    if isinstance(value, Path) or (isinstance(value, str) and name == "image"):
        return _picture(name, _read(name, Path(value)))
    if isinstance(value, str):
        return Attachment(name, "text", "txt", _cut(value, MAX_TEXT_CHARS).encode(errors="replace"))
    figure = value
    if hasattr(value, "get_figure"):  # the axes of matplotlib, or what seaborn returns
        figure = value.get_figure()
    if hasattr(figure, "savefig"):
        return _picture(name, _saved(lambda buffer: figure.savefig(buffer, format="png")))
    if hasattr(value, "save") and hasattr(value, "convert"):
        return _picture(name, _saved(lambda buffer: value.save(buffer, "PNG")))
    if (rows := _rows_of(value)) is not None:
        return Attachment(name, "table", "json", _table(*rows))
    if getattr(value, "ndim", 0) in (2, 3) and hasattr(value, "shape"):
        return _picture(name, _png(name, value))
    return None


def read_table(content: bytes) -> Table:
    """Read the file of a table."""
    return Table(**json.loads(content))


def _picture(name: str, content: bytes) -> Attachment:
    suffix = _suffix_of(content)
    if suffix is None:
        raise ArgumentError(
            "the file is not a picture",
            field=f"report.{name}",
            allowed="PNG, JPEG, GIF, WebP and SVG files",
        )
    if len(content) > MAX_IMAGE_BYTES:
        raise ArgumentError(
            f"the picture has {len(content) / 2**20:.1f} MiB, which is too large",
            field=f"report.{name}",
            allowed=f"pictures up to {MAX_IMAGE_BYTES / 2**20:g} MiB",
        )
    return Attachment(name, "image", suffix, content)


def _suffix_of(content: bytes) -> str | None:
    """Return the kind of a picture by its content, because the name of the file may be wrong."""
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "png"
    if content.startswith(b"\xff\xd8\xff"):
        return "jpg"
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "gif"
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "webp"
    if b"<svg" in content[:2000].lower():
        return "svg"
    return None


def _read(name: str, path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_IMAGE_BYTES + 1)
    except OSError as error:
        raise ArgumentError(
            f"{path} cannot be read: {error.strerror}", field=f"report.{name}"
        ) from error


def _saved(save: Any) -> bytes:
    buffer = io.BytesIO()
    save(buffer)
    return buffer.getvalue()


def _png(name: str, value: Any) -> bytes:
    """Write an array as PNG: height and width, with one, three or four channels last or first."""
    import numpy as np

    if hasattr(value, "detach"):  # a tensor of torch
        value = value.detach().cpu()
    array = np.asarray(value)
    if array.ndim == 3 and array.shape[2] not in (1, 3, 4) and array.shape[0] in (1, 3, 4):
        array = np.moveaxis(array, 0, 2)
    if (
        array.dtype.kind not in "buif"
        or not array.size
        or (array.ndim == 3 and array.shape[2] not in (1, 3, 4))
    ):
        raise ArgumentError(
            f"an array of {array.dtype} with the shape {array.shape} is not a picture",
            field=f"report.{name}",
            allowed="an array of height and width, with one, three or four channels",
        )
    array = array[tuple(slice(None, None, math.ceil(side / MAX_SIDE)) for side in array.shape[:2])]
    pixels = _bytes_of(array)
    height, width = pixels.shape[:2]
    rows = pixels.reshape(height, -1)
    # The codes of PNG for grey, RGB and RGBA. Each line starts with the number of its filter: none.
    colour = {1: 0, 3: 2, 4: 6}[rows.shape[1] // width]
    lines = np.concatenate([np.zeros((height, 1), np.uint8), rows], axis=1).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(lines, 6)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(part)) + kind + part + struct.pack(">I", zlib.crc32(kind + part))
        for kind, part in parts
    )


def _bytes_of(array: Any) -> Any:
    """Return brightness from 0 to 255. Values beyond the usual ranges are scaled to their range."""
    import numpy as np

    if array.dtype == np.uint8:
        return array
    values = np.nan_to_num(array.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    low, high = float(values.min()), float(values.max())
    if array.dtype.kind in "bf" and low >= 0 and high <= 1:
        values = values * 255
    elif low < 0 or high > 255:
        values = (values - low) * (255 / max(high - low, 1e-300))
    return np.rint(values).astype(np.uint8)


def _rows_of(value: Any) -> tuple[list[str], Sequence[Sequence[Any]]] | None:
    """Return the columns and rows of a table, or None if the value is not a table."""
    # A data frame of pandas or polars.
    if hasattr(value, "columns") and hasattr(value, "to_dict"):
        names = list(value.columns)
        return [str(name) for name in names], list(
            zip(*(list(value[name]) for name in names), strict=True)
        )
    if isinstance(value, Mapping) and value:
        columns = list(value.values())
        if all(
            isinstance(column, list | tuple) or getattr(column, "ndim", 0) == 1
            for column in columns
        ):
            return [str(name) for name in value], list(zip(*columns, strict=False))
        return None
    if isinstance(value, list | tuple) and value and all(isinstance(row, Mapping) for row in value):
        names = list(dict.fromkeys(name for row in value for name in row))
        return [str(name) for name in names], [[row.get(name) for name in names] for row in value]
    return None


def _table(columns: list[str], rows: Sequence[Sequence[Any]]) -> bytes:
    shown_rows = [[_cell(cell) for cell in row[:MAX_COLUMNS]] for row in rows[:MAX_ROWS]]
    names = [_cut(name, MAX_CELL_CHARS) for name in columns[:MAX_COLUMNS]]
    # Halve the rows until the file is small enough.
    while True:
        document = {"columns": names, "rows": shown_rows, "num_rows": len(rows)}
        content = json.dumps(document, ensure_ascii=False, allow_nan=False).encode(errors="replace")
        if len(content) <= MAX_TABLE_BYTES or len(shown_rows) < 2:
            return content
        shown_rows = shown_rows[: len(shown_rows) // 2]


def _cell(value: Any) -> Any:
    if hasattr(value, "item") and getattr(value, "size", 1) == 1:
        value = value.item()
    if value is None or isinstance(value, bool):
        return value
    # Browsers read larger whole numbers only approximately.
    if isinstance(value, numbers.Integral) and abs(int(value)) < 2**53:
        return int(value)
    if isinstance(value, numbers.Integral):
        return str(value)
    # JSON has neither NaN nor infinity.
    if isinstance(value, numbers.Real) and math.isfinite(value):
        return float(value)
    if isinstance(value, numbers.Real):
        return str(float(value))
    return _cut(str(value), MAX_CELL_CHARS)


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[: most - 1]}…"
