"""Frames: an update as bytes, its numbers as plain columns behind one JSON header.

A frame is the length of the header (4 bytes, little-endian), the header (an `Update` as JSON,
padded with spaces), and the columns, each at a multiple of 8 bytes from the end of the header.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence

import numpy as np

from workbench.foundation.python_values import plain
from workbench.views.live_feed.protocol import Column, Update

_ALIGNMENT = 8
_LENGTH = struct.Struct("<I")


class Numbers:
    """The numeric columns of a frame, concatenated."""

    def __init__(self) -> None:
        """Start without columns."""
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, values: Sequence[float | None] | np.ndarray, *, exact: bool = False) -> Column:
        """Append a column.

        Args:
            values: Its numbers. None becomes NaN.
            exact: Store 64 instead of 32 bits per number, as long times need.
        """
        if not isinstance(values, np.ndarray):
            values = np.array(
                [math.nan if value is None else value for value in values], dtype=np.float64
            )
        raw = values.astype("<f8" if exact else "<f4").tobytes()
        column = Column(offset=self._size, count=len(values), type="f64" if exact else "f32")
        self._parts.append(raw + b"\0" * (-len(raw) % _ALIGNMENT))
        self._size += len(self._parts[-1])
        return column

    def to_bytes(self) -> bytes:
        """Return all columns as bytes."""
        return b"".join(self._parts)


def encode(update: Update, numbers: Numbers) -> bytes:
    """Encode an update as a frame.

    Args:
        update: The update. Parts that are None are omitted.
        numbers: The columns that it refers to.
    """
    parts = {name: part for name, part in update.model_dump().items() if part is not None}
    header = json.dumps(plain(parts), allow_nan=False, separators=(",", ":")).encode()
    header += b" " * (-(len(header) + _LENGTH.size) % _ALIGNMENT)
    return b"".join((_LENGTH.pack(len(header)), header, numbers.to_bytes()))
