"""Documents that strict readers of JSON take.

Numbers that are not finite, which it cannot hold, are text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def plain(value: Any) -> Any:
    """Return a document of mappings, lists and plain values in which "NaN" and "Infinity" are text.

    Args:
        value: The document; tuples become lists, and keys text.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value
