"""Parameters as axes: where their values lie from 0 to 1, and which have ticks or colours.

As in `prepare`: frozen plain values. Drawing is left to the figures.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue

from workbench.experiment.space import Choice, Domain, Fixed, Int, Space
from workbench.foundation.formatting import format_number, format_value
from workbench.store.history import Trial

Scale = Literal["linear", "log", "category"]

MAX_PARAMETERS = 12
MAX_LEVELS = 8


@dataclass(frozen=True)
class ParameterAxis:
    """One parameter as an axis from 0 (its lowest value) to 1.

    Attributes:
        name: Name of the parameter, or of the objective.
        scale: How values are laid out.
        ticks: Positions from 0 to 1, each with its label.
        conditional: Whether some configurations do not have the parameter.
        low: The number at 0, or None on an axis of categories.
        high: The number at 1.
        is_whole: Whether its values are whole numbers.
        levels: All values with their positions, if they are few enough for a colour each.
    """

    name: str
    scale: Scale
    ticks: tuple[tuple[float, str], ...]
    conditional: bool = False
    low: float | None = field(default=None, compare=False)
    high: float | None = field(default=None, compare=False)
    is_whole: bool = field(default=False, compare=False)
    levels: tuple[tuple[float, str], ...] = field(default=(), compare=False)


def searched(space: Space, trials: Sequence[Trial]) -> list[str]:
    """Return the parameters that vary, in the order of the space, at most `MAX_PARAMETERS`."""
    return [
        name
        for name in searchable(space, trials)
        if _differ(trial.params[name] for trial in trials if name in trial.params)
    ][:MAX_PARAMETERS]


def _differ(values: Iterator[JsonValue]) -> bool:
    """Return whether at least two values differ. In most runs the first two already do."""
    texts = map(json.dumps, values)
    first = next(texts, None)
    return any(text != first for text in texts)


def searchable(space: Space, trials: Sequence[Trial]) -> list[str]:
    """Return the parameters that could vary and that a trial has, in the order of the space."""
    return [
        name
        for name, domain in space.root.items()
        if not isinstance(domain, Fixed)
        and domain.values() != [None]
        and any(name in trial.params for trial in trials)
    ]


class ParameterLayout:
    """The positions of a parameter's values on its axis."""

    def __init__(self, name: str, domain: Domain, trials: Sequence[Trial]) -> None:
        self.name = name
        self.categories: tuple[str, ...] = ()
        self.tick_every: int | None = None
        present = [trial.params[name] for trial in trials if name in trial.params]
        conditional = len(present) < len(trials)
        if isinstance(domain, Choice | Fixed):
            known = [format_value(value) for value in domain.values()]
            self.categories = tuple(
                dict.fromkeys([*known, *(format_value(value) for value in present)])
            )
            last = max(len(self.categories) - 1, 1)
            ticks = tuple((index / last, text) for index, text in enumerate(self.categories))
            levels = ()
            if len(ticks) <= MAX_LEVELS:
                levels = ticks
            self.axis = ParameterAxis(name, "category", ticks, conditional, levels=levels)
            return
        numbers = [float(value) for value in present if isinstance(value, int | float)]
        low, high = float(min([domain.low, *numbers])), float(max([domain.high, *numbers]))
        whole = isinstance(domain, Int)
        if domain.log:
            self.tick_every = max(1, math.ceil((math.log10(high) - math.log10(low)) / 6))
        elif whole and high - low <= 8:
            self.tick_every = 1
        self._set_numbers(low, high, domain.log, conditional, whole)
        allowed = domain.values()
        if allowed is None or allowed[MAX_LEVELS:]:
            return
        by_text = {
            format_number(value): value for value in sorted({*map(float, allowed), *numbers})
        }
        if len(by_text) <= MAX_LEVELS:
            levels = tuple((self.place(value), text) for text, value in by_text.items())
            self.axis = dataclasses.replace(self.axis, levels=levels)

    @classmethod
    def of_numbers(cls, name: str, values: Sequence[float]) -> ParameterLayout:
        """Return the layout of an axis without a domain, such as an objective."""
        layout = cls.__new__(cls)
        layout.name = name
        layout.categories = ()
        layout.tick_every = None
        layout._set_numbers(min(values, default=0.0), max(values, default=1.0), False, False)
        return layout

    def _set_numbers(
        self, low: float, high: float, log: bool, conditional: bool, whole: bool = False
    ) -> None:
        self.low, self.high, self.log = low, high, log
        scale: Scale = "linear"
        marks = _linear_marks(low, high)
        if log:
            scale = "log"
            marks = _log_marks(low, high)
        marks = [mark for mark in marks if not whole or mark.is_integer()]
        ticks = tuple((self.place(mark), format_number(mark)) for mark in marks)
        self.axis = ParameterAxis(
            name=self.name,
            scale=scale,
            ticks=ticks,
            conditional=conditional,
            low=low,
            high=high,
            is_whole=whole,
        )

    def place(self, value: float) -> float:
        """Return where a number lies on the axis, from 0 to 1."""
        if self.high == self.low:
            return 0.5
        low = self.low
        high = self.high
        if self.log:
            value, low, high = map(math.log, (value, low, high))
        return (value - low) / (high - low)

    def position(self, trial: Trial) -> float | None:
        """Return where a trial is on the axis, or None if it does not have the parameter."""
        value = trial.params.get(self.name)
        if self.name not in trial.params:
            return None
        if self.categories:
            return self.categories.index(format_value(value)) / max(len(self.categories) - 1, 1)
        if isinstance(value, int | float):
            return self.place(float(value))
        return None

    def coordinate(self, value: JsonValue) -> float | str:
        """Return a value as plotly places it: a number, or the name of a category."""
        if not self.categories and isinstance(value, int | float):
            return float(value)
        return format_value(value)


def _log_marks(low: float, high: float) -> list[float]:
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    every = max(1, math.ceil((last - first) / 5))
    marks = [10.0**power for power in range(first, last + 1, every)]
    if len(marks) < 2:
        return [low, high]
    return marks


def _linear_marks(low: float, high: float, about: int = 4) -> list[float]:
    if high <= low:
        return [low]
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(index * step, 12) for index in range(first, last + 1)]
