"""JSON that strict readers take: numbers that are not finite, for which JSON has no notation, become text."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def strict_json(document: Any, *, indent: int | None = None) -> str:
    """Write a document as JSON.

    Args:
        document: Mappings, lists, tuples and plain values.
        indent: As in `json.dumps`.
    """
    return json.dumps(_plain(document), indent=indent, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value
