"""How commands print text, tables, notes and JSON documents."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sys
import textwrap
import time
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TextIO

import click

from workbench.foundation.formatting import printable
from workbench.foundation.python_values import plain

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


_MIN_COLUMNS = 30
_WIDE = 400
_SHOWN_EVERY_S = 0.2
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
    """Print one document for strict parsers: NaN and infinity become text."""
    click.echo(json.dumps(plain(document), indent=2, allow_nan=False))


def print_note(message: str) -> None:
    """Print a note to the user on stderr."""
    echo(f"note: {without_backticks(message)}", err=True, fg="yellow")


@contextlib.contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Print warnings for users as notes, such as those about unread columns of a table."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_where: print_note(str(message))
        yield


@contextlib.contextmanager
def progress(first: str) -> Iterator[Callable[[str], None]]:
    """Show what is done on stderr, a few times a second, if that is a terminal.

    Args:
        first: What is done first.

    Yields:
        Shows what is done from now on.
    """
    console = make_console(stderr=True)
    if not console.is_terminal:
        yield lambda _line: None
        return
    shown_s = 0.0
    with console.status(first) as status:

        def show(line: str) -> None:
            nonlocal shown_s
            if time.monotonic() - shown_s > _SHOWN_EVERY_S:
                shown_s = time.monotonic()
                status.update(line)

        yield show


def without_backticks(text: str) -> str:
    """Return text without backticks, which mark code in notebooks and in JupyterLab.

    Example:
        >>> without_backticks("`leaky` alone predicts `y`")
        'leaky alone predicts y'
    """
    return re.sub(r"`([^`\n]+)`", r"\1", text)


def echo(
    text: str = "", *, err: bool = False, fg: str | None = None, bold: bool | None = None
) -> None:
    """Print text that may come from users or their code, such as names and tracebacks."""
    click.secho(printable(text), err=err, fg=fg, bold=bold)


def wrapped(text: str, indent: int) -> str:
    """Break a text at the width of the terminal, and align its lines with its first word.

    Paths and addresses are not broken. Without a terminal the text is unchanged.

    Args:
        text: One line.
        indent: The column of its first word.
    """
    if not sys.stdout.isatty():
        return text
    room = max(_MIN_COLUMNS, shutil.get_terminal_size().columns - indent)
    return f"\n{'':<{indent}}".join(
        textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)
    )


def make_console(*, stderr: bool = False) -> Console:
    """Return a console. Without a terminal, it does not break lines."""
    from rich.console import Console
    from rich.segment import Segment

    class PrintableConsole(Console):
        """A console that shows control characters in names and messages as text."""

        def render(self, *given: Any, **options: Any) -> Iterator[Segment]:
            for segment in super().render(*given, **options):
                if segment.control:
                    yield segment
                else:
                    yield segment._replace(text=printable(segment.text))

        def on_broken_pipe(self) -> None:
            """Leave it to the command line, for which a reader that goes away is no failure."""
            raise BrokenPipeError

    file, width = stream_of(stderr=stderr), None
    if not file.isatty():
        width = _WIDE
    return PrintableConsole(file=file, width=width, highlight=False, soft_wrap=False)


def stream_of(*, stderr: bool) -> TextIO:
    """Return stderr or stdout."""
    if stderr:
        return sys.stderr
    return sys.stdout


def waiting(activity: str) -> contextlib.AbstractContextManager[Any]:
    """Show an activity on stderr while it takes place, if that is a terminal.

    Args:
        activity: For example `sending digits`.
    """
    if not sys.stderr.isatty():  # then rich, which takes a while to load, is not needed
        return contextlib.nullcontext()
    return make_console(stderr=True).status(activity)


def colour_of(state: str) -> str:
    """Return the colour of a state of a run or trial."""
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
