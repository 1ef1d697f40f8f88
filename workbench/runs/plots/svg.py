"""Figures as SVG: for the report, and for the still pictures of saved notebooks.

A figure is given in plotly's language, and this draws the part of it that our figures use, without
plotly's script. Whatever it does not know is an error, so that no picture lacks something silently.
What figures show is left to `figures`, and colours and fonts to `theme`.
"""

from __future__ import annotations

import base64
import html
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.foundation.errors import ExperimentError
from workbench.runs.plots.prepare import CurvesData, Values
from workbench.runs.plots.series import thin_indices
from workbench.runs.plots.theme import BEST, COLOURS, FAINT, FONT, GRID, INK, MUTED

Spec = Mapping[str, Any]
"""A part of a figure, as plotly's JSON describes it."""
WIDTH_PX = 800
_STILL_WIDTH_PX, _STILL_HEIGHT_PX, _STILL_POINTS = 640, 240, 40
_FONT_PX = 12
_ROW_PX = 20
_MAX_POINTS = 4000
"""Points of all lines of a figure. They are thinned so that no extreme is lost."""
_LEAST_POINTS = 40
_DASHES = {"dot": "1.5 3", "dash": "6 4"}
_PLACEHOLDER = re.compile(r"%\{([a-z]+)(?:\[(\d+)\])?(?::([^}]+))?\}")
_EXTRA = re.compile(r"<extra>(.*?)</extra>")
_COLOUR = re.compile(r"rgba?\(([^)]+)\)")
_EXPONENT = re.compile(r"e([+-])0*(\d+)$")
_WIDTHS = {**dict.fromkeys("iljtfr.,:;'|!()[] ", 0.3), **dict.fromkeys("mwMW%", 0.86)}
_SYMBOLS = {
    "diamond": "M0 -{r}L{r} 0L0 {r}L-{r} 0Z",
    "x-thin": "M-{r} -{r}L{r} {r}M-{r} {r}L{r} -{r}",
    "cross-thin": "M-{r} 0H{r}M0 -{r}V{r}",
    "line-ew-open": "M-{r} 0H{r}",
}


class HoverTexts:
    """Texts that marks share, such as the configuration of a trial: a page contains each once."""

    def __init__(self) -> None:
        """Start without a text."""
        self._places: dict[str, int] = {}

    def attributes(self, head: str, rest: str = "") -> str:
        """Return the attributes of a mark by which the script of the page writes its text.

        Args:
            head: The first line.
            rest: More lines, which other marks may have as well.
        """
        written = f' data-h="{html.escape(head, quote=True)}"'
        if rest:
            written += f' data-c="{self._places.setdefault(rest, len(self._places))}"'
        return written

    def all(self) -> list[str]:
        """Return the shared texts by their numbers."""
        return list(self._places)


def figure_svg(
    figure: Spec, *, width: int = WIDTH_PX, hover: HoverTexts | None = None, alone: bool = False
) -> str:
    """Draw a figure.

    Args:
        figure: `data` and `layout`, as `spec_of` returns them.
        width: Width in pixels, to which the sizes of texts refer.
        hover: Collects the texts of the marks. None draws marks without texts.
        alone: Whether it is an image by itself, with a white ground, and not part of a page.

    Returns:
        An `<svg>` element that needs nothing else.

    Raises:
        ExperimentError: If the figure contains something that this cannot draw.
    """
    return _Drawing(figure, width, hover).svg(alone=alone)


def spec_of(figure: Any) -> dict[str, Any]:
    """Return `data` and `layout` of a figure as plain values.

    Unlike plotly's own conversion this does not copy columns, of which long runs have many.

    Args:
        figure: A figure of plotly's.
    """
    traces = [
        {"type": trace.type, **{name: _plain_value(trace[name]) for name in trace}}
        for trace in figure.data
    ]
    return {"data": traces, "layout": figure.layout.to_plotly_json()}


def _plain_value(value: Any) -> Any:
    if hasattr(value, "to_plotly_json"):
        return value.to_plotly_json()
    return value


def curves_svg(data: CurvesData) -> str:
    """Draw curves, the best so far and the target as a small picture.

    Args:
        data: The data. Its lines are drawn in their order, thinned to what this size can show.

    Returns:
        An `<svg>` element, or an empty string if no point is finite.
    """
    points = [*(_finite(line.x, line.y) for line in data.lines), _finite(data.best_x, data.best_y)]
    if not any(points):
        return ""
    looks = [
        {"color": BEST, "width": 2.0}
        if line.trial == data.best_trial
        else {"color": "#aab4be", "width": 1.0}
        for line in data.lines
    ]
    looks.append({"color": BEST, "width": 1.2, "dash": "dot", "shape": "hv"})
    traces = [
        {
            "type": "scatter",
            "mode": "lines" if len(line) > 1 else "markers",
            "x": [x for x, _ in line],
            "y": [y for _, y in line],
            "line": look,
            "marker": {"color": look["color"], "size": 2 + 2 * look["width"]},
        }
        for line, look in zip(points, looks, strict=True)
    ]
    traces.sort(key=lambda trace: trace["line"] is looks[-1] or trace["line"]["width"])
    shapes = []
    if data.target is not None:
        dashed = {"color": INK, "width": 1, "dash": "dash"}
        shapes = [
            {"x0": 0, "x1": 1, "y0": data.target, "y1": data.target, "line": dashed}
            | {"type": "line", "xref": "x domain", "yref": "y"}
        ]
    x_axis: dict[str, Any] = {"title": {"text": data.x_title}}
    if data.x_title in ("Step", "Epoch", "Round"):
        x_axis["tickformat"] = ",d"
    layout = {
        "title": {"text": data.y_title},
        "height": _STILL_HEIGHT_PX,
        "xaxis": x_axis,
        "yaxis": {"range": data.y_range},
        "shapes": shapes,
    }
    title = f"{data.y_title}: curves of {len(data.lines)} of {data.num_trials:,} trials"
    drawn = figure_svg({"data": traces, "layout": layout}, width=_STILL_WIDTH_PX, alone=True)
    return drawn.replace(">", f"><title>{html.escape(title)}</title>", 1)


class _Axis:
    """One axis: its range, its ticks, and where its values lie in the picture."""

    def __init__(self, name: str, layout: Spec) -> None:
        self.name = name
        self.layout = layout
        self.is_vertical = name.startswith("y")
        self.kind = layout.get("type") or "linear"
        self.is_visible = layout.get("visible") is not False
        self.has_labels = self.is_visible and layout.get("showticklabels") is not False
        self.has_marks = False
        self.places: list[float] = []
        self.low, self.high = 0.0, 1.0
        self.begin = self.end = 0.0
        self._categories: dict[str, int] = {}
        for text in _column(layout.get("categoryarray")):
            self._categories.setdefault(str(text), len(self._categories))

    def place(self, value: Any) -> float:
        """Return where a value lies on the axis, in the unit of its range. NaN if nowhere."""
        if isinstance(value, str) and self.kind != "category":
            self.kind = "category"
        if value is None:
            return math.nan
        if self.kind == "category":
            return float(self._categories.setdefault(str(value), len(self._categories)))
        number = float(value)
        if self.kind == "log":
            return math.log10(number) if number > 0 else math.nan
        return number

    def take(self, places: Iterable[float]) -> None:
        """Let the range contain some places."""
        self.places += [place for place in places if math.isfinite(place)]

    def settle(self) -> None:
        """Choose the range, once all places are known."""
        given = self.layout.get("range")
        if given is not None:
            self.low, self.high = (float(end) for end in given)
        elif self.kind == "category":
            self.low, self.high = -0.5, len(self._categories) - 0.5
        elif self.places:
            self._contain(min(self.places), max(self.places))
        if self.low == self.high:
            around = abs(self.low) * 0.05 or 0.5
            self.low, self.high = self.low - around, self.high + around
        if self.layout.get("autorange") == "reversed":
            self.low, self.high = self.high, self.low

    def _contain(self, low: float, high: float) -> None:
        part = 0.01
        if self.is_vertical or self.has_marks:
            part = 0.05
        margin = part * (high - low)
        from_zero = self.layout.get("rangemode") == "tozero" and self.kind == "linear"
        if from_zero and low >= 0:
            self.low, self.high = 0.0, high + part * high
        elif from_zero and high <= 0:
            self.low, self.high = low + part * low, 0.0
        else:
            self.low, self.high = low - margin, high + margin

    def at(self, place: float) -> float:
        """Return the pixel of a place."""
        return self.begin + (place - self.low) / (self.high - self.low) * (self.end - self.begin)

    def contains(self, place: float) -> bool:
        low, high = sorted((self.low, self.high))
        slack = 1e-6 * (high - low)
        return low - slack <= place <= high + slack

    def ticks(self) -> list[tuple[float, str]]:
        """Return the places of the ticks with their labels, as many as fit without touching."""
        length = abs(self.end - self.begin)
        given = self.layout.get("tickvals")
        if given is not None:
            values = _column(given)
            labels = self.layout.get("ticktext")
            written = [*_column(labels)] if labels is not None else map(self.write, values)
            ticks = [
                (self.place(value), plain_text(text))
                for value, text in zip(values, written, strict=True)
            ]
        elif self.kind == "category":
            return [
                (float(place), _cut(plain_text(text), length / len(self._categories) - 4))
                if not self.is_vertical
                else (float(place), plain_text(text))
                for text, place in self._categories.items()
            ]
        else:
            ticks = [(self.place(value), self.write(value)) for value in self._round(length)]
        return self._apart([tick for tick in ticks if self.contains(tick[0])])

    def write(self, value: float) -> str:
        """Return a number as the axis labels it."""
        wanted = self.layout.get("tickformat") or ",.6g"
        if wanted.endswith("d"):
            return format(round(value), wanted)
        if wanted == ",":
            wanted = ",.6g"
        return _EXPONENT.sub(r"e\1\2", format(value, wanted)).replace("e+", "e")

    def _round(self, length: float) -> list[float]:
        """Return round values for ticks."""
        most = max(2, int(length / (50, 36)[self.is_vertical]))
        most = min(most, self.layout.get("nticks") or most)
        low, high = sorted((self.low, self.high))
        wanted = self.layout.get("dtick")
        if self.kind != "log":
            least = 0.0
            if (self.layout.get("tickformat") or "").endswith("d"):
                least = 1.0
            if isinstance(wanted, int | float) and (high - low) / wanted <= 2 * most:
                least = float(wanted)
                most = max(most, round((high - low) / wanted))
            return _round_values(low, high, most, least)
        if high - low < 1:
            values = _round_values(10**low, 10**high, most, 0.0)
            return [value for value in values if value > 0]
        first, last = math.ceil(low - 1e-9), math.floor(high + 1e-9)
        every = max(-(-(last - first) // most), int(wanted or 1))
        digits = (1, 2, 5) if high - low < 2 and not wanted else (1,)
        return [
            digit * 10.0**decade for decade in range(first - 1, last + 1, every) for digit in digits
        ]

    def _apart(self, ticks: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
        """Drop ticks whose labels would touch the one before."""
        kept: list[tuple[float, str]] = []
        for place, text in sorted(ticks, key=lambda tick: self.at(tick[0])):
            if kept:
                before, last = kept[-1]
                needed = 14.0
                if not self.is_vertical:
                    needed = (text_px(last) + text_px(text)) / 2 + 8
                if self.at(place) - self.at(before) < needed:
                    continue
            kept.append((place, text))
        return kept


class _Drawing:
    """A figure while it is drawn."""

    def __init__(self, figure: Spec, width: int, hover: HoverTexts | None) -> None:
        self.traces: list[Spec] = [
            trace for trace in figure["data"] if trace.get("visible") is not False
        ]
        self.layout: Spec = figure["layout"]
        self.hover = hover
        self.width = width
        self.height = int(self.layout.get("height") or 420)
        self.axes: dict[str, _Axis] = {}
        for trace in self.traces:
            self._axis(trace.get("xaxis") or "x")
            self._axis(trace.get("yaxis") or "y")
        for letter in "xy":
            self._axis(letter)
        self.xy = [self._places(trace) for trace in self.traces]
        self._match()
        for axis in self.axes.values():
            axis.settle()
        self.legend = self._legend_rows()
        self._lay_out()

    def _axis(self, name: str) -> _Axis:
        if name not in self.axes:
            layout = self.layout.get(f"{name[0]}axis{name[1:]}") or {}
            self.axes[name] = _Axis(name, layout)
        return self.axes[name]

    def _axes_of(self, trace: Spec) -> tuple[_Axis, _Axis]:
        return self.axes[trace.get("xaxis") or "x"], self.axes[trace.get("yaxis") or "y"]

    def _places(self, trace: Spec) -> tuple[list[float], list[float]]:
        """Return the places of the marks of a trace, and let its axes contain them."""
        kind = trace.get("type") or "scatter"
        if kind not in ("scatter", "bar", "heatmap"):
            raise ExperimentError(
                f"no picture of {kind}", field="type", allowed=("scatter", "bar", "heatmap")
            )
        places: list[list[float]] = []
        for letter, axis in zip("xy", self._axes_of(trace), strict=True):
            own = [axis.place(value) for value in _column(trace.get(letter))]
            places.append(own)
            axis.take(own)
            if "markers" in _mode(trace):
                axis.has_marks = True
            for low, high in zip(*_spread(trace.get(f"error_{letter}"), own), strict=True):
                axis.take((low, high))
        x_axis, y_axis = self._axes_of(trace)
        if kind == "heatmap":
            x_axis.take((-0.5, len(places[0]) - 0.5))
            y_axis.take((-0.5, len(places[1]) - 0.5))
        if kind == "bar":
            base = _column(trace.get("base")) or [0.0]
            x_axis.take(base)
            x_axis.take(map(sum, zip(base, places[0], strict=False)))
            half = float(trace.get("width") or 0.8) / 2
            y_axis.take(place + side for place in places[1] for side in (-half, half))
        return places[0], places[1]

    def _match(self) -> None:
        """Give axes that match each other the same places, and contain lines across the figure."""
        for axis in self.axes.values():
            if axis.layout.get("matches") in self.axes:
                self.axes[axis.layout["matches"]].take(axis.places)
        for axis in self.axes.values():
            if axis.layout.get("matches") in self.axes:
                axis.places = self.axes[axis.layout["matches"]].places
        for shape in self.layout.get("shapes") or ():
            for letter in "xy":
                axis = self.axes.get(shape.get(f"{letter}ref") or letter)
                if axis is not None:
                    axis.take(axis.place(shape[f"{letter}{end}"]) for end in (0, 1))

    def _legend_rows(self) -> list[list[Spec]]:
        """Return the traces that the legend lists, by row."""
        if self.layout.get("showlegend") is False:
            return []
        listed = [
            trace
            for trace in self.traces
            if trace.get("name") and trace.get("showlegend") is not False
        ]
        if len(listed) < 2 and not self.layout.get("showlegend"):
            return []
        rows: list[list[Spec]] = []
        left = 0.0
        for trace in listed:
            width = _legend_px(trace)
            if not rows or left + width > self.width - 80:
                rows.append([])
                left = 0.0
            rows[-1].append(trace)
            left += width
        return rows

    def _lay_out(self) -> None:
        """Give every axis its pixels."""
        title = _text_of(self.layout.get("title"))
        notes = self.layout.get("annotations") or ()
        has_note_above = any(
            note.get("yref") == "paper" and (note.get("y") or 0) > 1 for note in notes
        )
        self.top = 8.0 + _ROW_PX * (len(self.legend) + bool(title) + has_note_above)
        x_axes = [axis for axis in self.axes.values() if not axis.is_vertical]
        self.bottom = 12.0
        if any(axis.has_labels for axis in x_axes):
            self.bottom += 18
        if any(_text_of(axis.layout.get("title")) for axis in x_axes if axis.is_visible):
            self.bottom += 18
        self.left = self.right = 16.0
        if self._colour_bar() is not None:
            self.right += 74
        for axis in self.axes.values():
            if axis.is_vertical:
                self._span(axis)
        for axis in self.axes.values():
            if axis.is_vertical and self._side_of(axis) == 0.0:
                self.left = max(self.left, self._labels_px(axis))
        for axis in x_axes:
            self._span(axis)
        for axis in self.axes.values():
            self._keep_scale(axis)

    def _side_of(self, axis: _Axis) -> float:
        return float((self._partner(axis).layout.get("domain") or (0.0, 1.0))[0])

    def _labels_px(self, axis: _Axis) -> float:
        """Return the width of the labels and the title of a vertical axis."""
        if not axis.is_visible:
            return 16.0
        width = 12.0
        if axis.has_labels:
            width += max((text_px(text) for _, text in axis.ticks()), default=0.0)
        return width + (20 if _text_of(axis.layout.get("title")) else 4)

    def _span(self, axis: _Axis) -> None:
        low, high = axis.layout.get("domain") or (0.0, 1.0)
        if axis.is_vertical:
            length = self.height - self.top - self.bottom
            axis.begin = self.height - self.bottom - low * length
            axis.end = self.height - self.bottom - high * length
        else:
            length = self.width - self.left - self.right
            axis.begin, axis.end = self.left + low * length, self.left + high * length

    def _keep_scale(self, axis: _Axis) -> None:
        """Give two axes the same pixels a unit where a figure asks for it."""
        other = self.axes.get(axis.layout.get("scaleanchor") or "")
        if other is None:
            return
        scales = [
            abs(scaled.end - scaled.begin) / abs(scaled.high - scaled.low)
            for scaled in (axis, other)
        ]
        for scaled, scale in zip((axis, other), scales, strict=True):
            scaled.end = scaled.begin + (scaled.end - scaled.begin) * min(scales) / scale

    def _partner(self, axis: _Axis) -> _Axis:
        """Return the axis at whose beginning another is drawn."""
        other = ("y", "x")[axis.is_vertical]
        anchor = axis.layout.get("anchor")
        if anchor not in self.axes:
            anchor = other + axis.name[1:]
        return self.axes.get(anchor) or self.axes[other]

    def svg(self, *, alone: bool) -> str:
        namespace = ""
        if alone:
            namespace = ' xmlns="http://www.w3.org/2000/svg"'
        parts = [
            f'<svg{namespace} viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'height="{self.height}" font-family="{html.escape(FONT, quote=True)}" '
            f'font-size="{_FONT_PX}">'
        ]
        if alone:
            parts.append('<rect width="100%" height="100%" fill="white"/>')
        if title := _text_of(self.layout.get("title")):
            parts.append(_label(title, (self.left, 17), INK))
        parts += self._legend_svg()
        for axis in self.axes.values():
            parts += self._axis_svg(axis)
        parts += self._shapes("below")
        parts += self._marks()
        parts += self._shapes("above")
        parts += [self._annotation(note) for note in self.layout.get("annotations") or ()]
        parts += self._colour_bar_svg()
        return "".join((*parts, "</svg>"))

    def _axis_svg(self, axis: _Axis) -> Iterator[str]:
        if not axis.is_visible or not axis.places:
            return
        across = self._partner(axis)
        ticks = axis.ticks()
        if axis.layout.get("showgrid", axis.is_vertical):
            lines = "".join(
                _between(axis, axis.at(place), (across.begin, across.end)) for place, _ in ticks
            )
            if lines:
                yield f'<path d="{lines}" stroke="{GRID}" fill="none"/>'
        if not axis.is_vertical:
            yield (
                f'<path d="M{axis.begin:.1f} {across.begin:.1f}H{axis.end:.1f}" '
                f'stroke="{FAINT}" fill="none"/>'
            )
        colour = (axis.layout.get("tickfont") or {}).get("color") or MUTED
        for place, text in ticks if axis.has_labels else ():
            at = axis.at(place)
            if axis.is_vertical:
                yield _label(text, (across.begin - 7, at + 4), colour, "end")
            else:
                yield _label(text, (at, across.begin + 16), colour, "middle")
        if title := _text_of(axis.layout.get("title")):
            yield self._axis_title(axis, across, title)

    def _axis_title(self, axis: _Axis, across: _Axis, title: str) -> str:
        middle = (axis.begin + axis.end) / 2
        shown = _cut(title, abs(axis.end - axis.begin) + 24)
        if not axis.is_vertical:
            below = across.begin + (34 if axis.has_labels else 18)
            return _label(shown, (middle, below), MUTED, "middle")
        x = across.begin - self._labels_px(axis) + 14
        turned = f' transform="rotate(-90 {x:.1f} {middle:.1f})"'
        return _label(shown, (x, middle), MUTED, "middle", more=turned)

    def _marks(self) -> Iterator[str]:
        """Draw the traces, those of each pair of axes cut off at their ends."""
        by_axes: dict[tuple[str, str], list[int]] = {}
        for index, trace in enumerate(self.traces):
            x_axis, y_axis = self._axes_of(trace)
            by_axes.setdefault((x_axis.name, y_axis.name), []).append(index)
        for (x_name, y_name), indices in by_axes.items():
            x_axis, y_axis = self.axes[x_name], self.axes[y_name]
            left, top = min(x_axis.begin, x_axis.end) - 6, min(y_axis.begin, y_axis.end) - 6
            wide = abs(x_axis.end - x_axis.begin) + 12
            high = abs(y_axis.end - y_axis.begin) + 12
            box = f"{left:.1f} {top:.1f} {wide:.1f} {high:.1f}"
            yield (
                f'<svg x="{left:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{high:.1f}" '
                f'viewBox="{box}" fill="none">'
            )
            before: list[tuple[float, float]] = []
            for index in indices:
                trace = _Trace(self.traces[index], (x_axis, y_axis), self.xy[index], self.hover)
                yield from trace.svg(before)
                before = trace.pixels()
            yield "</svg>"

    def _at(self, value: Any, ref: str, letter: str, *, is_place: bool = False) -> float:
        """Return the pixel of a value that refers to an axis, to its length, or to the figure."""
        if ref == "paper":
            if letter == "x":
                return self.left + value * (self.width - self.left - self.right)
            bottom = self.height - self.bottom
            return bottom - value * (bottom - self.top)
        if ref.endswith(" domain"):
            axis = self._axis(ref.removesuffix(" domain"))
            return axis.begin + value * (axis.end - axis.begin)
        axis = self._axis(ref)
        if is_place and axis.kind == "log":
            return axis.at(float(value))
        return axis.at(axis.place(value))

    def _shapes(self, layer: str) -> Iterator[str]:
        for shape in self.layout.get("shapes") or ():
            if (shape.get("layer") or "above") != layer:
                continue
            if shape.get("type") != "line":
                raise ExperimentError(
                    f"no picture of a {shape.get('type')}", field="shapes", allowed=("line",)
                )
            x0, x1, y0, y1 = (
                self._at(shape[f"{letter}{end}"], shape.get(f"{letter}ref") or letter, letter)
                for letter in "xy"
                for end in (0, 1)
            )
            yield f'<path d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}"{_stroke(shape["line"])}/>'

    def _annotation(self, note: Spec) -> str:
        x_ref, y_ref = note.get("xref") or "x", note.get("yref") or "y"
        x = self._at(note.get("x", 0.5), x_ref, "x", is_place=True) + (note.get("xshift") or 0)
        y = self._at(note.get("y", 0.5), y_ref, "y", is_place=True) - (note.get("yshift") or 0)
        font = note.get("font") or {}
        anchor = {"left": "start", "right": "end"}.get(note.get("xanchor") or "", "middle")
        x += 6 * str(note.get("text")).startswith(" ")
        y += {"top": 13.0, "bottom": -5.0}.get(note.get("yanchor") or "", 4.0)
        text = str(note.get("text") or "")
        more = ""
        if text.startswith("<b>"):
            more = ' font-weight="600"'
        if note.get("bgcolor"):
            more += (
                ' paint-order="stroke" stroke="white" stroke-width="4" stroke-opacity="0.85"'
                ' stroke-linejoin="round"'
            )
        return _label(plain_text(text), (x, y), font.get("color") or INK, anchor, more=more)

    def _legend_svg(self) -> Iterator[str]:
        first = 14.0 + _ROW_PX * bool(_text_of(self.layout.get("title")))
        for index, row in enumerate(self.legend):
            x = self.left
            y = first + index * _ROW_PX
            for trace in row:
                yield _legend_mark(trace, x, y)
                yield _label(plain_text(str(trace["name"])), (x + 26, y + 4), INK)
                x += _legend_px(trace)

    def _colour_bar(self) -> Spec | None:
        for holder in (self.layout.get("coloraxis"), *(t.get("marker") for t in self.traces)):
            if holder and holder.get("colorbar") and holder.get("colorscale"):
                return holder
        return None

    def _colour_bar_svg(self) -> Iterator[str]:
        scale = self._colour_bar()
        if scale is None:
            return
        x, high = self.width - self.right + 12, self.height - self.top - self.bottom
        num_steps = 40
        for step in range(num_steps):
            y = self.top + high * (1 - (step + 1) / num_steps)
            colour = _shade(scale["colorscale"], step / (num_steps - 1))
            yield (
                f'<rect x="{x:.1f}" y="{y:.1f}" width="12" '
                f'height="{high / num_steps + 0.5:.1f}" fill="{colour}"/>'
            )
        bar = scale["colorbar"]
        axis = _Axis("y", {"tickvals": bar.get("tickvals"), "ticktext": bar.get("ticktext")})
        axis.low, axis.high = float(scale.get("cmin") or 0.0), float(scale.get("cmax") or 1.0)
        axis.begin, axis.end = self.height - self.bottom, self.top
        if axis.low == axis.high:
            axis.high = axis.low + 1.0
        for place, text in axis.ticks():
            yield _label(_cut(text, 46), (x + 16, axis.at(place) + 4), MUTED)
        title = _cut(_text_of(bar.get("title")), high)
        middle = self.top + high / 2
        turned = f' transform="rotate(-90 {x + 70:.1f} {middle:.1f})"'
        yield _label(title, (x + 70, middle), MUTED, "middle", more=turned)


class _Trace:
    """A trace while it is drawn."""

    def __init__(
        self,
        trace: Spec,
        axes: tuple[_Axis, _Axis],
        places: tuple[list[float], list[float]],
        hover: HoverTexts | None,
    ) -> None:
        self.trace = trace
        self.x_axis, self.y_axis = axes
        self.x, self.y = places
        self.tooltip = None
        if hover is not None and trace.get("hoverinfo") != "skip":
            self.tooltip = _Tooltip(trace, hover)

    def pixels(self) -> list[tuple[float, float]]:
        return [
            (self.x_axis.at(x), self.y_axis.at(y)) for x, y in zip(self.x, self.y, strict=False)
        ]

    def svg(self, before: Sequence[tuple[float, float]]) -> Iterator[str]:
        """Draw it. `before` are the pixels of the trace before, to which an area may reach."""
        kind = self.trace.get("type") or "scatter"
        if kind == "bar":
            yield from self._bars()
        elif kind == "heatmap":
            yield from self._cells()
        else:
            yield from self._area(before)
            yield from self._spreads()
            if "lines" in _mode(self.trace):
                yield from self._lines()
            if "markers" in _mode(self.trace):
                yield from self._points()

    def _area(self, before: Sequence[tuple[float, float]]) -> Iterator[str]:
        if self.trace.get("fill") != "tonexty":
            return
        outline = [*before, *self.pixels()[::-1]]
        corners = "L".join(f"{x:.1f} {y:.1f}" for x, y in outline if math.isfinite(x + y))
        if corners:
            fill = self.trace.get("fillcolor") or FAINT
            yield f'<path d="M{corners}Z" fill="{fill}" stroke="none"/>'

    def _lines(self) -> Iterator[str]:
        line = self.trace.get("line") or {}
        if line.get("width") == 0:
            return
        pieces = list(_pieces(self.x, self.y))
        most = max(_LEAST_POINTS, _MAX_POINTS // max(1, len(pieces)))
        yield f"<g{_stroke(line)}{_opacity(self.trace)}>"
        for indices in pieces:
            kept = indices
            if len(indices) > most:
                values = np.array([self.y[index] for index in indices])
                kept = [indices[place] for place in thin_indices(values, most)]
            pixels = [(self.x_axis.at(self.x[i]), self.y_axis.at(self.y[i])) for i in kept]
            written = ""
            if self.tooltip is not None:
                written = self.tooltip.of_line(kept)
            yield f'<path d="{_path(pixels, line.get("shape"))}"{written}/>'
        yield "</g>"

    def _points(self) -> Iterator[str]:
        marker = self.trace.get("marker") or {}
        symbol = str(marker.get("symbol") or "circle")
        colour = marker.get("color") or (self.trace.get("line") or {}).get("color") or COLOURS[0]
        border = marker.get("line") or {}
        looks = f"{_opacity({**self.trace, **marker})}"
        is_thin = symbol.endswith(("thin", "open"))
        if is_thin or border:
            edge = border.get("color")
            if is_thin or edge is None:
                edge = edge or colour
            looks += f' stroke="{edge}" stroke-width="{border.get("width") or 1.4}"'
        colours = _column(colour) if not isinstance(colour, str) else []
        if isinstance(colour, str):
            looks += f' fill="{"none" if is_thin else _visible(colour)}"'
        radius = float(marker.get("size") or 6) / 2
        yield f"<g{looks}>"
        for index, (x, y) in enumerate(zip(self.x, self.y, strict=False)):
            if not (self.x_axis.contains(x) and self.y_axis.contains(y)):
                continue
            own = ""
            if len(colours):
                own = f' fill="{colours[index]}"'
            if self.tooltip is not None:
                own += self.tooltip.of_mark(index)
            yield _mark(symbol, (self.x_axis.at(x), self.y_axis.at(y)), radius, own)
        yield "</g>"

    def _spreads(self) -> Iterator[str]:
        """Draw the intervals of points or bars."""
        for letter, axis, own in (("x", self.x_axis, self.x), ("y", self.y_axis, self.y)):
            error: Spec = self.trace.get(f"error_{letter}") or {}
            drawn = []
            lows, highs = _spread(error, own)
            for low, high, x, y in zip(lows, highs, self.x, self.y, strict=False):
                if not math.isfinite(low + high + x + y):
                    continue
                across = self.y_axis.at(y) if letter == "x" else self.x_axis.at(x)
                drawn.append(_between(axis, across, (axis.at(low), axis.at(high)), turned=True))
            if drawn:
                look = {"color": error.get("color"), "width": error.get("thickness") or 1.2}
                yield f'<path d="{"".join(drawn)}"{_stroke(look)}/>'

    def _bars(self) -> Iterator[str]:
        if self.trace.get("orientation") != "h":
            raise ExperimentError("no picture of upright bars", field="orientation", allowed=("h",))
        colour = (self.trace.get("marker") or {}).get("color") or COLOURS[0]
        colours = [colour] * len(self.x) if isinstance(colour, str) else _column(colour)
        base = _column(self.trace.get("base")) or [0.0] * len(self.x)
        half = float(self.trace.get("width") or 0.8) / 2
        yield "<g>"
        for index, (size, y) in enumerate(zip(self.x, self.y, strict=True)):
            if not math.isfinite(size + y):
                continue
            left, right = sorted((self.x_axis.at(base[index]), self.x_axis.at(base[index] + size)))
            top, bottom = sorted((self.y_axis.at(y - half), self.y_axis.at(y + half)))
            written = self.tooltip.of_mark(index) if self.tooltip else ""
            yield (
                f'<rect x="{left:.1f}" y="{top:.1f}" width="{max(right - left, 0.6):.1f}" '
                f'height="{max(bottom - top, 0.6):.1f}" fill="{colours[index]}"{written}/>'
            )
        yield "</g>"
        yield from self._spreads()

    def _cells(self) -> Iterator[str]:
        low, high = float(self.trace["zmin"]), float(self.trace["zmax"])
        scale = self.trace["colorscale"]
        texts = self.trace.get("text")
        has_texts = bool(self.trace.get("texttemplate"))
        for row, values in enumerate(_column(self.trace["z"])):
            top, bottom = sorted(self.y_axis.at(row + side) for side in (-0.5, 0.5))
            for column, value in enumerate(values):
                left, right = sorted(self.x_axis.at(column + side) for side in (-0.5, 0.5))
                fill = _shade(scale, (value - low) / (high - low))
                written = self.tooltip.of_cell(row, column) if self.tooltip else ""
                yield (
                    f'<rect x="{left + 0.5:.1f}" y="{top + 0.5:.1f}" '
                    f'width="{right - left - 1:.1f}" height="{bottom - top - 1:.1f}" '
                    f'fill="{fill}"{written}/>'
                )
                if has_texts and texts is not None:
                    at = ((left + right) / 2, (top + bottom) / 2 + 4)
                    shown = _cut(plain_text(str(texts[row][column])), right - left)
                    yield _label(shown, at, INK, "middle", more=' pointer-events="none"')


class _Tooltip:
    """Writes the texts of the marks of a trace from its template."""

    def __init__(self, trace: Spec, hover: HoverTexts) -> None:
        template = str(trace.get("hovertemplate") or "")
        extra = _EXTRA.search(template)
        template = _EXTRA.sub("", template)
        if extra is not None and extra[1]:
            template = f"{extra[1]}: {template}"
        self._template = template
        self._hover = hover
        self._columns = {
            name: _column(trace.get(name)) for name in ("x", "y", "text", "hovertext", "customdata")
        }
        self._texts: dict[tuple[int, int], str] = {}

    def of_mark(self, index: int) -> str:
        """Return the attributes of the mark at an index."""
        return self._write(lambda name, part: _part_of(self._columns[name][index], part))

    def of_cell(self, row: int, column: int) -> str:
        """Return the attributes of a cell of a heatmap."""
        return self._write(lambda name, part: _part_of(self._columns[name][row][column], part))

    def of_line(self, indices: Sequence[int]) -> str:
        """Return the attributes of a line. The script fills in the values of its nearest point."""
        if not self._template:
            return ""
        first = indices[0]

        def read(name: str, part: int | None) -> Any:
            if name in ("x", "y"):
                return f"\u2060{name}\u2060"
            return _part_of(self._columns[name][first], part)

        written = self._write(read)
        if "\u2060" not in written:
            return written
        x, y = self._columns["x"], self._columns["y"]
        points = " ".join(f"{_short(x[index])} {_short(y[index])}" for index in indices)
        return f'{written} data-v="{points}"'

    def _write(self, read: Any) -> str:
        if not self._template:
            return ""
        rest: list[str] = []

        def fill(placeholder: re.Match[str]) -> str:
            name, part, form = placeholder.groups()
            value = read(name, None if part is None else int(part))
            if not isinstance(value, str):
                return format(value, form or "")
            head, line_break, more = value.partition("<br>")
            if line_break:  # lines that other marks of this trial have as well
                rest.append(more)
            return head

        text = _PLACEHOLDER.sub(fill, self._template)
        lines = [plain_text(line) for line in text.split("<br>")]
        shared = "\n".join(plain_text(line) for more in rest for line in more.split("<br>"))
        return self._hover.attributes("\n".join(lines), shared)


def plain_text(text: str) -> str:
    """Return a text of plotly's without its markup."""
    return html.unescape(re.sub(r"</?b>", "", text)).replace("% {", "%{")


def text_px(text: str) -> float:
    """Return about how wide a text is, in pixels."""
    return _FONT_PX * sum(
        _WIDTHS.get(letter, 0.68 if letter.isupper() else 0.57) for letter in text
    )


def _cut(text: str, most_px: float) -> str:
    """Shorten a text to a width."""
    if text_px(text) <= most_px:
        return text
    kept = text
    while len(kept) > 1 and text_px(f"{kept}...") > most_px:
        kept = kept[:-1]
    return f"{kept}..."


def _label(
    text: str, at: tuple[float, float], colour: str, anchor: str = "start", *, more: str = ""
) -> str:
    if anchor != "start":
        more = f' text-anchor="{anchor}"{more}'
    shown = html.escape(text, quote=False)
    return f'<text x="{at[0]:.1f}" y="{at[1]:.1f}" fill="{colour}"{more}>{shown}</text>'


def _text_of(title: Any) -> str:
    text = (title or {}).get("text")
    return plain_text(str(text)) if text else ""


def _column(values: Any) -> Any:
    """Return the values of a column, which plotly writes as bytes if they are numbers."""
    if values is None:
        return []
    if isinstance(values, Mapping):
        array = np.frombuffer(base64.b64decode(values["bdata"]), dtype=values["dtype"])
        if shape := values.get("shape"):
            array = array.reshape([int(size) for size in str(shape).split(",")])
        return array.tolist()
    if isinstance(values, np.ndarray):
        return values.tolist()
    if isinstance(values, list | tuple):
        return values
    return _Repeated(values)


@dataclass(frozen=True)
class _Repeated:
    """A value that every mark of a trace has."""

    value: Any

    def __getitem__(self, index: int) -> Any:
        return self.value

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _part_of(value: Any, part: int | None) -> Any:
    if part is None:
        return value
    return value[part]


def _finite(x: Values, y: Values) -> list[tuple[float, float]]:
    points = [(a, b) for a, b in zip(x, y, strict=True) if a is not None and b is not None]
    kept = thin_indices(np.array([point[1] for point in points]), _STILL_POINTS)
    return [points[index] for index in kept]


def _pieces(x: Sequence[float], y: Sequence[float]) -> Iterator[list[int]]:
    """Yield the indices of each line of a trace. Gaps separate lines."""
    piece: list[int] = []
    for index, (across, up) in enumerate(zip(x, y, strict=False)):
        if math.isfinite(across) and math.isfinite(up):
            piece.append(index)
        elif piece:
            yield piece
            piece = []
    if piece:
        yield piece


def _path(pixels: Sequence[tuple[float, float]], shape: str | None) -> str:
    if shape == "hv":  # a value holds until the next one
        steps = "".join(f"H{x:.1f}V{y:.1f}" for x, y in pixels[1:])
        return f"M{pixels[0][0]:.1f} {pixels[0][1]:.1f}{steps}"
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in pixels)


def _between(axis: _Axis, at: float, ends: tuple[float, float], *, turned: bool = False) -> str:
    """Return a line across an axis at a pixel, or along it if it is turned."""
    if axis.is_vertical != turned:
        return f"M{ends[0]:.1f} {at:.1f}H{ends[1]:.1f}"
    return f"M{at:.1f} {ends[0]:.1f}V{ends[1]:.1f}"


def _mark(symbol: str, at: tuple[float, float], radius: float, more: str) -> str:
    x, y = at
    if symbol.startswith("circle"):
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.3g}"{more}/>'
    if symbol == "star":
        corners = []
        for corner in range(10):
            far = radius * (1.0, 0.45)[corner % 2]
            turn = math.pi * corner / 5
            corners.append(f"{far * math.sin(turn):.1f} {-far * math.cos(turn):.1f}")
        outline = f"M{'L'.join(corners)}Z"
    elif symbol in _SYMBOLS:
        outline = _SYMBOLS[symbol].format(r=f"{radius:.3g}")
    else:
        raise ExperimentError(f"no picture of a {symbol}", field="symbol", allowed=_SYMBOLS)
    return f'<path transform="translate({x:.1f} {y:.1f})" d="{outline}"{more}/>'


def _mode(trace: Spec) -> str:
    if (trace.get("type") or "scatter") != "scatter":
        return ""
    return str(trace.get("mode") or "lines+markers")


def _spread(error: Any, own: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return the lower and the upper ends of the intervals of a trace."""
    if not error or error.get("array") is None:
        return [], []
    up = _column(error["array"])
    down = up
    if error.get("arrayminus") is not None:
        down = _column(error["arrayminus"])
    return (
        [place - size for place, size in zip(own, down, strict=True)],
        [place + size for place, size in zip(own, up, strict=True)],
    )


def _stroke(line: Spec) -> str:
    dashes = ""
    if line.get("dash") in _DASHES:
        dashes = f' stroke-dasharray="{_DASHES[line["dash"]]}"'
    width = f"{line.get('width') or 1.5:.3g}"
    return f' stroke="{line.get("color") or INK}" stroke-width="{width}"{dashes}'


def _opacity(look: Spec) -> str:
    opacity = look.get("opacity")
    return "" if opacity is None else f' opacity="{opacity:.3g}"'


def _visible(colour: str) -> str:
    return "none" if colour == "rgba(0,0,0,0)" else colour


def _legend_px(trace: Spec) -> float:
    return 26 + text_px(plain_text(str(trace["name"]))) + 18


def _legend_mark(trace: Spec, x: float, y: float) -> str:
    marker = trace.get("marker") or {}
    colour = marker.get("color")
    if not isinstance(colour, str):
        colour = next(iter(_column(colour)), None) or COLOURS[0]
    if trace.get("type") == "bar":
        return f'<rect x="{x:.1f}" y="{y - 5:.1f}" width="18" height="10" fill="{colour}"/>'
    if trace.get("fill"):
        fill = trace.get("fillcolor") or FAINT
        return f'<rect x="{x:.1f}" y="{y - 5:.1f}" width="18" height="10" fill="{fill}"/>'
    if "lines" in _mode(trace):
        return f'<path d="M{x:.1f} {y:.1f}h18"{_stroke(trace.get("line") or {})}/>'
    border = marker.get("line") or {}
    symbol = str(marker.get("symbol") or "circle")
    fill = "none" if symbol.endswith(("thin", "open")) else _visible(colour)
    edge = border.get("color") or colour
    width = border.get("width") or 1
    look = f' fill="{fill}" stroke="{edge}" stroke-width="{width}"'
    return _mark(symbol, (x + 9, y), min(float(marker.get("size") or 6) / 2, 5), look)


def _shade(scale: Any, part: float) -> str:
    """Return the colour at a part of a scale, from 0 to 1."""
    stops = [
        (index / (len(scale) - 1), stop) if isinstance(stop, str) else (float(stop[0]), stop[1])
        for index, stop in enumerate(scale)
    ]
    part = min(max(part, 0.0), 1.0)
    below = max((stop for stop in stops if stop[0] <= part), key=lambda stop: stop[0])
    above = min((stop for stop in stops if stop[0] >= part), key=lambda stop: stop[0])
    share = 0.0
    if above[0] > below[0]:
        share = (part - below[0]) / (above[0] - below[0])
    mixed = [
        low + share * (high - low)
        for low, high in zip(_parts(below[1]), _parts(above[1]), strict=True)
    ]
    red, green, blue = (round(value) for value in mixed[:3])
    if mixed[3] == 1:
        return f"#{red:02x}{green:02x}{blue:02x}"
    return f"rgba({red},{green},{blue},{mixed[3]:.2g})"


def _parts(colour: str) -> tuple[float, ...]:
    written = _COLOUR.match(colour)
    if written is None:
        return (*(int(colour[at : at + 2], 16) for at in (1, 3, 5)), 1.0)
    numbers = [float(number) for number in written[1].split(",")]
    return (*numbers, 1.0)[:4]


def _short(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:.5g}"


def _round_values(low: float, high: float, most: int, least: float) -> list[float]:
    """Return round numbers from `low` to `high`, at least `least` apart."""
    rough = max((high - low) / most, least)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    if least and step % least:
        step = least * math.ceil(step / least)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]
