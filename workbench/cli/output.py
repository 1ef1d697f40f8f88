"""Words, numbers and documents as they are printed."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from workbench.foundation.formatting import (
    printable,
)
from workbench.foundation.python_values import plain

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


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
