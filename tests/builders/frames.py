"""Frames of the live view as a browser reads them, for tests of several rooms."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Frame:
    """A frame as a browser reads it."""

    head: dict[str, Any]
    numbers: bytes

    def column(self, place: dict[str, Any]) -> list[float]:
        kind = {"f32": "<f4", "f64": "<f8"}[place["type"]]
        return np.frombuffer(self.numbers, kind, place["count"], place["offset"]).tolist()


def read_frame(raw: bytes) -> Frame:
    (length,) = struct.unpack_from("<I", raw)
    return Frame(json.loads(raw[4 : 4 + length]), raw[4 + length :])
