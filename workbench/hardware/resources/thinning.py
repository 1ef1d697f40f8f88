"""How long rollups of a machine are kept: the older, the coarser, and bounded in number.

Where they are stored is left to the caller.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from workbench.hardware.resources.rollups import Rollup, merge


class Level(NamedTuple):
    """How rollups of one length are kept."""

    span_s: int
    """Their length; 0 for single samples."""
    kept_s: float
    """The age at which they are merged into longer ones, or deleted."""


LEVELS = (
    Level(0, 600.0),
    Level(10, 2 * 3600.0),
    Level(60, 24 * 3600.0),
    Level(600, 14 * 24 * 3600.0),
    Level(3600, 90 * 24 * 3600.0),
)


class Moment(NamedTuple):
    """The node of a rollup and when it begins (for a single sample, when it was taken)."""

    node: str
    time_unix_s: float


def outdated_before(level: Level, now_unix_s: float) -> float:
    """Return the time before which rollups of a level must be merged into longer ones.

    It is a boundary between two longer rollups, so none of them is built from incomplete parts.
    """
    longer = _longer(level)
    before = now_unix_s - level.kept_s
    return before if longer is None else math.floor(before / longer.span_s) * longer.span_s


def aggregate(level: Level, spans: Iterable[tuple[Moment, Rollup]]) -> dict[Moment, Rollup]:
    """Merge outdated rollups into longer ones; returns none if these are already the longest.

    Args:
        level: Their level.
        spans: All rollups before `outdated_before`, and any existing longer ones that they
            become part of.
    """
    longer = _longer(level)
    if longer is None:
        return {}
    gathered: dict[Moment, list[tuple[float, Rollup]]] = {}
    for moment, span in spans:
        begins = math.floor(moment.time_unix_s / longer.span_s) * longer.span_s
        gathered.setdefault(Moment(moment.node, float(begins)), []).append(
            (moment.time_unix_s, span)
        )
    return {
        moment: merge([span for _, span in sorted(parts, key=lambda part: part[0])])
        for moment, parts in gathered.items()
    }


def next_span_s(level: Level) -> int | None:
    """Return the length of the next longer rollups; None if those of this level are deleted."""
    longer = _longer(level)
    return None if longer is None else longer.span_s


def _longer(level: Level) -> Level | None:
    place = LEVELS.index(level) + 1
    return LEVELS[place] if place < len(LEVELS) else None
