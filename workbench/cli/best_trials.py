"""Print the best trial of a run, or the front where it has several objectives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.cli.output import make_table
from workbench.formatting import format_number, format_params, format_value
from workbench.history.certainty import certainty_of
from workbench.runs.descriptions import format_numbers

if TYPE_CHECKING:
    from workbench.history import History


def print_best(console: Any, history: History) -> None:
    """Print the best trial; with several objectives the front, and the best value of each."""
    from rich.text import Text

    front = history.front() if len(history.objectives) > 1 else []
    if front:
        console.print()
        numbers = format_numbers([trial.number for trial in front])
        console.print(Text(f"On the front, beaten by no other in every objective: {numbers}", style="bold"))
    best = history.best()
    if best is None:
        return
    if front:
        facts = make_table(show_header=False)
        for metric, trial in history.extremes().items():
            value = Text(format_number(trial.values[metric]), style="bold")
            facts.add_row(f"best {metric}", value, f"trial {trial.number}", format_params(trial.params))
        console.print(facts)
        return
    console.print()
    console.print(Text(f"Best: trial {best.number}", style="bold"))
    facts = make_table(show_header=False)
    for name, value in best.values.items():
        facts.add_row(name, Text(format_number(value), style="bold"))
    for name, value in best.params.items():
        facts.add_row(name, format_value(value))
    if plan := best.plan.describe(in_full=True):
        facts.add_row("plan", plan)
    console.print(facts)
    if (certainty := certainty_of(history)) is not None:
        console.print(Text(f"  {certainty.describe()}"))
