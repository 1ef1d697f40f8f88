"""Print the best trial of a run, or the front where it has several objectives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workbench.cli.output import make_table
from workbench.foundation.formatting import format_number, format_params, format_value
from workbench.runs.descriptions import format_numbers
from workbench.store.history.certainty import certainty_lines
from workbench.store.history.history import chosen_by_hand, describe_choice
from workbench.store.history.lineage import lineage

if TYPE_CHECKING:
    from workbench.store.history import History, Trial


def print_best(console: Any, history: History) -> None:
    """Print the best trial; with several objectives the front, and the best value of each.

    Ahead of it stands the trial that was chosen by hand, if one was.
    """
    from rich.text import Text

    if (chosen := chosen_by_hand(history)) is not None:
        console.print()
        console.print(Text(f"Chosen by hand: trial {chosen.number}", style="bold"))
        console.print(Text(f"  {describe_choice(history)}"))
        console.print(Text(f"  {format_params(chosen.params)}"))
    front = history.front() if len(history.objectives) > 1 else []
    if front:
        console.print()
        numbers = format_numbers([trial.number for trial in front])
        console.print(
            Text(f"On the front, beaten by no other in every objective: {numbers}", style="bold")
        )
    best = history.best()
    if best is None:
        return
    if front:
        facts = make_table(show_header=False)
        for metric, trial in history.extremes().items():
            value = Text(format_number(trial.values[metric]), style="bold")
            facts.add_row(
                f"best {metric}", value, f"trial {trial.number}", format_params(trial.params)
            )
        console.print(facts)
        return
    console.print()
    console.print(Text(f"Best: trial {best.number}", style="bold"))
    facts = make_table(show_header=False)
    num_repeats = len(history.repeats_of(best))
    note = f"mean of {num_repeats} trials" if num_repeats > 1 else ""
    for name, value in history.mean_values(best).items():
        facts.add_row(name, Text(format_number(value), style="bold"), note)
    for name, value in best.params.items():
        facts.add_row(name, format_value(value))
    if plan := best.plan.describe(in_full=True):
        facts.add_row("plan", plan)
    console.print(facts)
    parts = lineage(history.trials, best)
    if len(parts) > 1:
        _print_parts(console, parts, "epoch" if history.experiment.trains_model else "step")
    for line in certainty_lines(history):
        console.print(Text(f"  {line}."))


def _print_parts(console: Any, parts: list[Trial], unit: str) -> None:
    """Print with which parameters each part of a training was trained: those that changed in it."""
    from rich.text import Text

    console.print()
    console.print(Text("How it was trained", style="bold"))
    names = [
        name
        for name in parts[-1].params
        if any(part.params.get(name) != parts[-1].params[name] for part in parts)
    ]
    table = make_table(f"until {unit}", "trial", "member", *names)
    for part in parts:
        assert part.segment is not None
        values = [format_value(part.params[name]) if name in part.params else "" for name in names]
        table.add_row(str(part.segment.end), str(part.number), str(part.segment.member), *values)
    console.print(table)
