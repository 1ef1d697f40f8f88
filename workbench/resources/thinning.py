"""Which spans of a machine are kept for how long: the older, the fewer, and never more than so many.

It decides, and leaves to the caller where they lie.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from workbench.resources.spans import Span, merge


class Level(NamedTuple):
    """How spans of one length are kept."""

    span_s: int
    """Their length; 0 for single looks."""
    kept_s: float
    """The age at which they become longer ones, or are given up."""


LEVELS = (
    Level(0, 600.0),
    Level(10, 2 * 3600.0),
    Level(60, 24 * 3600.0),
    Level(600, 14 * 24 * 3600.0),
    Level(3600, 90 * 24 * 3600.0),
)


class Moment(NamedTuple):
    """Which span it is: of which node, and when it begins (for a look, when it was taken)."""

    node: str
    time_unix_s: float


def outdated_before(level: Level, now_unix_s: float) -> float:
    """Return the moment before which spans of a level are to become longer ones.

    It lies between two of the longer spans, so none of them is made of what is only a part of it.
    """
    longer = _longer(level)
    before = now_unix_s - level.kept_s
    return before if longer is None else math.floor(before / longer.span_s) * longer.span_s


def lengthen(level: Level, spans: Iterable[tuple[Moment, Span]]) -> dict[Moment, Span]:
    """Return the longer spans that outdated ones come to; none where these are the longest.

    Args:
        level: The level that they are of.
        spans: All spans before `outdated_before`, and whatever there is already of the longer ones that they
            become part of.
    """
    longer = _longer(level)
    if longer is None:
        return {}
    gathered: dict[Moment, list[tuple[float, Span]]] = {}
    for moment, span in spans:
        begins = math.floor(moment.time_unix_s / longer.span_s) * longer.span_s
        gathered.setdefault(Moment(moment.node, float(begins)), []).append((moment.time_unix_s, span))
    return {
        moment: merge([span for _, span in sorted(parts, key=lambda part: part[0])])
        for moment, parts in gathered.items()
    }


def next_span_s(level: Level) -> int | None:
    """Return the length of the spans that those of a level become; None where they are given up."""
    longer = _longer(level)
    return None if longer is None else longer.span_s


def _longer(level: Level) -> Level | None:
    place = LEVELS.index(level) + 1
    return LEVELS[place] if place < len(LEVELS) else None
