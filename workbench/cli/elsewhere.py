"""Commands where the run is: with `--address http://...` a command runs on that cluster, and is seen here."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from workbench.cli.following import INTERRUPTED
from workbench.cli.lazy import words_of_command
from workbench.cli.options import given_store, jobs_address_option, token_file_option
from workbench.cli.printing import make_console, print_note

if TYPE_CHECKING:
    from workbench.run.relayed import Elsewhere, Stream

_OURS = ("--address", "--token-file", "--store")


class _Command(Protocol):
    __name__: str
    __doc__: str | None

    def __call__(self, *arguments: Any, **options: Any) -> Any: ...


def anywhere(
    *, brings: str | None = None, attaches: bool = False
) -> Callable[[_Command], Callable[..., Any]]:
    """Let a command be carried out on a cluster that takes jobs; outermost of its decorators but `command`.

    Args:
        brings: The option that says where it writes something, which is then brought here.
        attaches: Whether the command itself knows an address of a cluster to attach to.
    """

    def decorate(command: _Command) -> Callable[..., Any]:
        @functools.wraps(command)
        def carried_out(*arguments: Any, address: str | None, token_file: Path | None, **options: Any) -> Any:
            from workbench.workers.jobs import is_jobs_address

            if address is None and token_file is None:
                return command(*arguments, **options, **({"address": None} if attaches else {}))
            if is_jobs_address(address) or not attaches:
                return _carry_out_there(address, token_file, brings, options)
            return command(*arguments, **options, address=address)

        return token_file_option(jobs_address_option(attaches)(carried_out))

    return decorate


def elsewhere(address: str | None, token_file: Path | None) -> Elsewhere:
    """Name the cluster that options name, and say what a person should know about going there."""
    from workbench.run.relayed import Elsewhere

    there = Elsewhere(address, token_file=token_file, store=given_store())
    for note in there.notes:
        print_note(note)
    return there


def tell(stream: Stream, line: str) -> None:
    """Print a line of a command elsewhere as if it ran here."""
    if stream in ("stdout", "stderr"):
        click.echo(line, err=stream == "stderr")


def waiting_for_the_cluster(what: str) -> contextlib.AbstractContextManager[Any]:
    """Tell somebody who watches a terminal why nothing happens yet."""
    return make_console(stderr=True).status(what) if sys.stderr.isatty() else contextlib.nullcontext()


def _carry_out_there(
    address: str | None, token_file: Path | None, brings: str | None, options: dict[str, Any]
) -> int:
    from workbench.run.relayed import PLACE
    from workbench.run.submitting import check_place, put_down

    words = without_options(words_of_command(), _OURS)
    wanted = _option(words, brings) if brings else None
    if brings is not None and wanted is not None:
        check_place(Path(wanted), force=bool(options.get("force")))
        words = [*without_options(words, [brings]), brings, PLACE]
    there = elsewhere(address, token_file)
    there.jobs.check()

    try:
        answer = there.ask(words, tell=_telling(wanted), brings=wanted is not None)
    except KeyboardInterrupt:
        click.echo("\nNo longer waited for; what was asked before may still be done there.", err=True)
        return INTERRUPTED
    if answer.exit_code == 0 and wanted is not None:
        put_down(answer, Path(wanted))
    return answer.exit_code


def _telling(wanted: str | None) -> Callable[[Stream, str], None]:
    """Print what is said, with the place here instead of the one there."""
    there: list[str] = []

    def tell_here(stream: Stream, line: str) -> None:
        if stream == "place":
            there.append(line)
        elif wanted is not None and there:
            tell(stream, line.replace(there[0], str(Path(wanted).absolute())))
        else:
            tell(stream, line)

    return tell_here


def without_options(words: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the words of a command without some options, each of which takes a value."""
    kept: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            return [*kept, word, *rest]
        if word in names:
            next(rest, None)
        elif word.partition("=")[0] not in names:
            kept.append(word)
    return kept


def _option(words: Sequence[str], name: str) -> str | None:
    """Return the value of an option; the last one counts."""
    value = None
    for index, word in enumerate(words):
        if word == name and index + 1 < len(words):
            value = words[index + 1]
        elif word.startswith(f"{name}="):
            value = word.partition("=")[2]
    return value
