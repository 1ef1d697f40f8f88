"""Frames: a picture as bytes, its numbers as plain columns behind one JSON header.

A frame is the length of the header (4 bytes, little-endian), the header (a `Picture` as JSON, padded with
spaces), and the columns, each at a multiple of 8 bytes from the end of the header.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence

import numpy as np

from workbench.run.words import plain
from workbench.watch.protocol import Column, Picture

_ALIGNMENT = 8
_LENGTH = struct.Struct("<I")


class Numbers:
    """The columns of a frame, put one behind the other."""

    def __init__(self) -> None:
        """Begin without columns."""
        self._parts: list[bytes] = []
        self._size = 0

    def add(self, values: Sequence[float | None] | np.ndarray, *, exact: bool = False) -> Column:
        """Append a column.

        Args:
            values: Its numbers; None becomes NaN.
            exact: Keep 64 bits of each number rather than 32, as seconds of many days need.
        """
        if not isinstance(values, np.ndarray):
            values = np.array([math.nan if value is None else value for value in values], dtype=np.float64)
        raw = values.astype("<f8" if exact else "<f4").tobytes()
        column = Column(offset=self._size, count=len(values), type="f64" if exact else "f32")
        self._parts.append(raw + b"\0" * (-len(raw) % _ALIGNMENT))
        self._size += len(self._parts[-1])
        return column

    def to_bytes(self) -> bytes:
        """Return all columns."""
        return b"".join(self._parts)


def encode(picture: Picture, numbers: Numbers) -> bytes:
    """Write a picture as a frame.

    Args:
        picture: What is shown; parts that are None are left out.
        numbers: The columns that it names.
    """
    parts = {name: part for name, part in picture.model_dump().items() if part is not None}
    header = json.dumps(plain(parts), allow_nan=False, separators=(",", ":")).encode()
    header += b" " * (-(len(header) + _LENGTH.size) % _ALIGNMENT)
    return b"".join((_LENGTH.pack(len(header)), header, numbers.to_bytes()))
