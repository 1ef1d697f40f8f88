"""What tooltips show about a trial: its configuration, one line per parameter."""

from __future__ import annotations

from collections.abc import Callable

from workbench.foundation.formatting import format_value
from workbench.runs.plots.run_data import RunData
from workbench.runs.plots.theme import plain, short

_MAX_PARAMETERS = 12
_MAX_LETTERS = 40


def hover_of(run: RunData) -> Callable[[int], str]:
    """Return a function that writes the configuration of a trial, by its number, as lines of a
    tooltip.
    """

    def write(number: int) -> str:
        items = list(run.history.trials[number].params.items())
        lines = [
            f"<br>{plain(name)}: {short(format_value(value), _MAX_LETTERS)}"
            for name, value in items[:_MAX_PARAMETERS]
        ]
        rest = len(items) - _MAX_PARAMETERS
        return "".join(lines) + (f"<br>and {rest} more" if rest > 0 else "")

    return write
