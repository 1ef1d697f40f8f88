"""A small static picture of curves, as SVG text, for places without plotly and the live view.

Readers of a saved notebook on a web site see it in place of the live view, so it is a few kilobytes
and contains no script. `prepare` prepares its data, as for the figures.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from workbench.runs.plots.prepare import CurvesData, Values
from workbench.runs.plots.series import thin_indices

WIDTH, HEIGHT = 640, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 24, 34
_MAX_POINTS = 40
# The colours of `theme`, which cannot be imported here because it loads plotly.
_INK, _MUTED, _GRID, _FAINT, _BEST = "#1b1f24", "#57606a", "#e6e9ec", "#aab4be", "#4b0082"
_FONT = (
    "font-family=\"Inter,'Helvetica Neue',Helvetica,Arial,'DejaVu Sans',sans-serif\""
    ' font-size="11"'
)

Point = tuple[float, float]


def curves_svg(data: CurvesData) -> str:
    """Draw curves, the best so far and the target.

    Args:
        data: The data. Its lines are drawn in their order, thinned to what this size can show.

    Returns:
        An `<svg>` element, or an empty string if no point is finite.
    """
    lines = {line.trial: _points(line.x, line.y) for line in data.lines}
    stair = _stair(_points(data.best_x, data.best_y))
    points = [point for line in (*lines.values(), stair) for point in line]
    if not points:
        return ""
    frame = _Frame(points, data)
    others = [
        frame.path(line, _FAINT, 1.0) for trial, line in lines.items() if trial != data.best_trial
    ]
    best = ""
    if data.best_trial is not None:
        best = frame.path(lines.get(data.best_trial, []), _BEST, 2.0)
    drawn = [*others, frame.path(stair, _BEST, 1.2, dashes="3 3"), best, frame.target(data.target)]
    title = f"{data.y_title}: curves of {len(lines)} of {data.num_trials} trials"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" role="img" {_FONT}><title>{html.escape(title)}</title>'
        f'<rect width="100%" height="100%" fill="white"/>{frame.axes(data)}'
        f'<g fill="none">{"".join(drawn)}</g></svg>'
    )


class _Frame:
    """Maps values to positions in the picture."""

    def __init__(self, points: Sequence[Point], data: CurvesData) -> None:
        x = [point[0] for point in points]
        y = [point[1] for point in points]
        if data.target is not None:
            y.append(data.target)
        self.x_low, self.x_high = _wide(min(x), max(x))
        self.y_low, self.y_high = data.y_range or _wide(min(y), max(y))

    def across(self, x: float) -> float:
        return _LEFT + (x - self.x_low) / (self.x_high - self.x_low) * (WIDTH - _LEFT - _RIGHT)

    def down(self, y: float) -> float:
        part = (min(max(y, self.y_low), self.y_high) - self.y_low) / (self.y_high - self.y_low)
        return HEIGHT - _BOTTOM - part * (HEIGHT - _TOP - _BOTTOM)

    def path(self, line: Sequence[Point], colour: str, width: float, dashes: str = "") -> str:
        if not line:
            return ""
        steps = "L".join(f"{self.across(x):.1f} {self.down(y):.1f}" for x, y in line)
        ends = ""
        if len(line) == 1:  # a line of one point is seen only with a round end
            ends = ' stroke-linecap="round"'
            steps += "h0"
        elif dashes:
            ends = f' stroke-dasharray="{dashes}"'
        return f'<path d="M{steps}" stroke="{colour}" stroke-width="{width}"{ends}/>'

    def target(self, target: float | None) -> str:
        if target is None:
            return ""
        y = f"{self.down(target):.1f}"
        return f'<path d="M{_LEFT} {y}H{WIDTH - _RIGHT}" stroke="{_INK}" stroke-dasharray="4 3"/>'

    def axes(self, data: CurvesData) -> str:
        parts = [f'<text x="{_LEFT}" y="15" fill="{_INK}">{html.escape(data.y_title)}</text>']
        for value in _ticks(self.y_low, self.y_high, 4):
            y = self.down(value)
            parts.append(f'<path d="M{_LEFT} {y:.1f}H{WIDTH - _RIGHT}" stroke="{_GRID}"/>')
            parts.append(_text(_LEFT - 6, y + 4, value, "end"))
        least = 0.0
        if data.x_title in ("Step", "Epoch"):
            least = 1.0
        ticks = _ticks(self.x_low, self.x_high, 6, least)
        parts += [_text(self.across(x), HEIGHT - 18, x, "middle") for x in ticks]
        title = html.escape(data.x_title)
        parts.append(
            f'<text x="{WIDTH - _RIGHT}" y="{HEIGHT - 4}" text-anchor="end"'
            f' fill="{_MUTED}">{title}</text>'
        )
        return "".join(parts)


def _text(x: float, y: float, value: float, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{_MUTED}">{value:.6g}</text>'
    )


def _points(x: Values, y: Values) -> list[Point]:
    points = [(a, b) for a, b in zip(x, y, strict=True) if a is not None and b is not None]
    kept: Iterable[int] = thin_indices(np.array([point[1] for point in points]), _MAX_POINTS)
    return [points[index] for index in kept]


def _stair(points: Sequence[Point]) -> list[Point]:
    """Return the corners of a step line: a best value holds until the next one."""
    corners = [(after[0], before[1]) for before, after in pairwise(points)]
    return [point for pair in zip(points, [*corners, *points[-1:]], strict=True) for point in pair]


def _wide(low: float, high: float) -> tuple[float, float]:
    if low == high:
        around = abs(low) * 0.05 or 0.5
        return low - around, high + around
    return low, high


def _ticks(low: float, high: float, about: int, least: float = 0.0) -> list[float]:
    """Return round numbers between `low` and `high`, at least `least` apart."""
    rough = max((high - low) / about, least)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]
