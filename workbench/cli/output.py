"""Words, numbers and documents as they are printed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from workbench.cli.options import write_for_shell
from workbench.foundation.errors import PROBLEMS_VARIABLE, WorkbenchError
from workbench.foundation.formatting import (
    format_bytes,
    format_count,
    format_duration,
    format_params,
    printable,
)
from workbench.foundation.strict_json import plain

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from workbench.advisor.memory import MemoryForecast
    from workbench.training.probes.first_step import FirstStep

_MIN_COLUMNS = 30
_WIDE = 400
_COLOURS = {
    "complete": "green",
    "running": "cyan",
    "stopping": "yellow",
    "waiting": "bright_black",
    "pruned": "bright_black",
    "stopped": "yellow",
    "failed": "red",
    "lost": "red",
}


def print_json(document: Any) -> None:
    """Print one document that strict parsers read: what is no finite number is text."""
    click.echo(json.dumps(plain(document), indent=2, allow_nan=False))


def print_error(error: WorkbenchError) -> None:
    """Print an error on stderr: for a user, or as JSON for another process of ours."""
    if PROBLEMS_VARIABLE in os.environ:
        from workbench.experiment.actions import write_for_panel

        click.echo(json.dumps(error.to_json(write_for_panel)), err=True)
        return
    echo(f"error: {error.describe(write_for_shell)}", err=True, fg="red")


def print_note(message: str) -> None:
    """Print a note to the user on stderr."""
    echo(f"note: {without_backticks(message)}", err=True, fg="yellow")


def without_backticks(text: str) -> str:
    """Return text without the marks that are set as code where there is more than a terminal.

    Example:
        >>> without_backticks("`leaky` alone predicts `y`")
        'leaky alone predicts y'
    """
    return re.sub(r"`([^`\n]+)`", r"\1", text)


def echo(
    text: str = "", *, err: bool = False, fg: str | None = None, bold: bool | None = None
) -> None:
    """Print text that may come from outside, such as names, messages and tracebacks."""
    click.secho(printable(text), err=err, fg=fg, bold=bold)


def wrapped(text: str, indent: int) -> str:
    """Break a text at the width of the terminal, below its first word.

    Paths and addresses stay whole.

    Args:
        text: One line; unchanged where no terminal is.
        indent: The column in which it begins.
    """
    if not sys.stdout.isatty():
        return text
    room = max(_MIN_COLUMNS, shutil.get_terminal_size().columns - indent)
    return f"\n{'':<{indent}}".join(
        textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)
    )


def make_console(*, stderr: bool = False) -> Console:
    """Return a console; where no terminal is, its lines are long rather than broken."""
    from rich.console import Console
    from rich.segment import Segment

    class PrintableConsole(Console):
        """A console that text from outside cannot steer."""

        def render(self, *given: Any, **options: Any) -> Iterator[Segment]:
            for segment in super().render(*given, **options):
                yield segment if segment.control else segment._replace(text=printable(segment.text))

    file = sys.stderr if stderr else sys.stdout
    return PrintableConsole(
        file=file, width=None if file.isatty() else _WIDE, highlight=False, soft_wrap=False
    )


def waiting(what: str) -> contextlib.AbstractContextManager[Any]:
    """Show on a terminal, on stderr, what is being waited for; loading what draws it takes a while.

    Args:
        what: What is being done, such as `sending digits`.
    """
    return (
        make_console(stderr=True).status(what) if sys.stderr.isatty() else contextlib.nullcontext()
    )


def colour_of(state: str) -> str:
    """Return the colour in which a state of a run or trial is written."""
    return _COLOURS.get(state, "default")


_NOT_MADE = {
    "out of time": "it did not end within the time limit",
    "out of memory": "it needs more memory than is available here",
    "several workers": "it needs several workers",
}


def describe_first_steps(steps: Sequence[FirstStep]) -> Iterator[str]:
    """Yield which first steps were made, and of which it is not known whether they can be."""
    made = [step for step in steps if step.outcome == "fine"]
    if made:
        has_params = any(step.params for step in made)
        *others, last = (step.which for step in made)
        tried = f" with {', '.join(others)}{' and ' * bool(others)}{last}" if has_params else ""
        elapsed = format_duration(sum(step.elapsed_s for step in made))
        yield f"The first step of a trial succeeded{tried}, in {elapsed}."
    if lacking := next((step for step in made if step.unreported), None):
        yield (
            f"Its first report has {', '.join(lacking.reported)}, and not"
            f" {', '.join(lacking.unreported)}: report each objective later or return it, or the"
            " trial fails. To improve another metric: --set objectives.0.metric=NAME"
        )
    if num_empty := max((step.num_empty_clients for step in made), default=0):
        yield (
            f"{num_empty:,} of the clients have no training sample and train nothing: lower "
            "federated.clients, or give more data."
        )
    for note in dict.fromkeys(note for step in made for note in step.notes):
        yield f"Note: {note}."
    for step in made:
        if step.not_finite:
            yield (
                f"Warning: with {step.which} its first report is not finite in"
                f" {', '.join(step.not_finite)}, and such a trial fails as diverged:"
                f" {format_params(step.params)}"
            )
    for step in steps:
        if step.outcome != "fine":
            params = f": {format_params(step.params)}" if step.params else ""
            yield f"Not known for {step.which}: {_NOT_MADE[step.outcome]}{params}"


def describe_memory(forecast: MemoryForecast) -> str:
    """Say what a worker will hold, of what that consists, and what would fit."""
    step, law = forecast.step, forecast.law
    parts = {"parameters": step.parameters_bytes, "gradients": step.gradients_bytes}
    parts["optimizer"] = step.optimizer_bytes
    sizes = ", ".join(f"{name} {format_bytes(size)}" for name, size in parts.items())
    fits = "it fits" if forecast.fits else "it does not fit"
    largest = format_count(forecast.largest_micro_batch)
    if forecast.largest_micro_batch == forecast.num_train_samples:
        largest = f"all {largest} samples"
    lines = [
        "Memory of a worker, estimated from shapes alone, beside what Python and torch take:",
        f"  {format_bytes(forecast.peak_bytes)} with {forecast.plan.describe(in_full=True)}",
        f"  {sizes}, the rest activations; each sample adds {format_bytes(law.per_sample_bytes)}",
        (
            f"  {fits} the {format_bytes(forecast.limit_bytes)} that a {forecast.device} worker has"
            f" here; the largest micro batch that does: {largest}"
        ),
    ]
    return "\n".join(
        [*lines, f"  estimated for {format_params(forecast.params)}"] if forecast.params else lines
    )


def make_table(*columns: str, show_header: bool = True) -> Table:
    """Return a table in the common style."""
    from rich import box
    from rich.table import Table

    table = Table(
        box=box.SIMPLE_HEAD,
        show_header=show_header,
        show_edge=False,
        pad_edge=False,
        header_style="bold",
        padding=(0, 2, 0, 0),
    )
    for column in columns:
        table.add_column(column, no_wrap=column in ("run", "state"))
    return table
