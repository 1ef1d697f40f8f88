"""Commands where the run is: with `--address http://...` a command runs on that cluster, and is seen here."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from workbench.cli.following import INTERRUPTED
from workbench.cli.lazy import words_of_command
from workbench.cli.options import given_store, jobs_address_option, token_file_option
from workbench.cli.printing import make_console, print_note
from workbench.errors import RunError

if TYPE_CHECKING:
    from workbench.run.relayed import Answer, Elsewhere, Stream

_OURS = ("--address", "--token-file", "--store")


class _Command(Protocol):
    __name__: str
    __doc__: str | None

    def __call__(self, *arguments: Any, **options: Any) -> Any: ...


def anywhere(
    *, brings: Mapping[str, str | None] | None = None, attaches: bool = False
) -> Callable[[_Command], Callable[..., Any]]:
    """Let a command be carried out on a cluster that takes jobs; outermost of its decorators but `command`.

    Args:
        brings: The options that say where it writes something, which is then brought here, each with where
            that is when it is left out; `{run_id}` stands for the run, None for nowhere.
        attaches: Whether the command itself knows an address of a cluster to attach to.
    """

    def decorate(command: _Command) -> Callable[..., Any]:
        @functools.wraps(command)
        def carried_out(*arguments: Any, address: str | None, token_file: Path | None, **options: Any) -> Any:
            from workbench.workers.jobs import is_jobs_address

            if address is None:
                if token_file is not None:
                    raise click.UsageError("--token-file belongs to a cluster: name that, too, by --address.")
                return command(*arguments, **options, **({"address": None} if attaches else {}))
            if is_jobs_address(address) or not attaches:
                return _carry_out_there(address, token_file, brings or {}, options)
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


def come_back(run_id: str, there: Elsewhere) -> None:
    """Say how to come back to a run elsewhere that is no longer followed."""
    click.echo(
        f"\nThe run goes on there. Come back: {shlex.join(['workbench', 'follow', run_id, *there.words])}\n"
        f"Stop it: {shlex.join(['workbench', 'stop', run_id, *there.words])}",
        err=True,
    )


def say_unknown(there: Elsewhere) -> None:
    """Say that something was asked for elsewhere, and nobody here knows what became of it."""
    look = shlex.join(["workbench", "list", *there.words])
    click.echo(
        f"\nNo longer waited for; what was asked before may still be done there. Look: {look}", err=True
    )


def _carry_out_there(
    address: str | None, token_file: Path | None, brings: Mapping[str, str | None], options: dict[str, Any]
) -> int:
    from workbench.run.submitting import check_place, put_down

    words = without_options(words_of_command(), _OURS)
    wanted = {
        name: value for name, usual in brings.items()
        if (value := _option(words, name) or (usual and usual.format(**options))) is not None
    }  # fmt: skip
    place = Path(wanted["--to"]) if "--to" in wanted else None
    if place is not None and words[0] == "report" and place.is_dir():
        raise RunError(f"{place} is a folder", field="--to", next_step="Name a file, such as report.html.")
    if place is not None:
        check_place(place, force=bool(options.get("force")))
    there = elsewhere(address, token_file)
    there.jobs.check()
    try:
        answer = _ask(there, words, wanted)
    except KeyboardInterrupt:
        if words[0] == "follow":
            come_back(options["run_id"], there)
        else:
            say_unknown(there)
        return INTERRUPTED
    if answer.exit_code == 0 and wanted:
        put_down(answer, place, wanted.get("--optuna"))
    if wanted:
        click.echo(answer.stdout, nl=False)
    return answer.exit_code


def _ask(there: Elsewhere, words: Sequence[str], wanted: Mapping[str, str]) -> Answer:
    """Carry a command out; what it writes to places that are wanted here is told when it is here."""
    from workbench.run.relayed import PLACE, STUDY_PLACE
    from workbench.store.urls import hide_password

    if not wanted:
        return there.ask(words, tell=tell)
    places = {"--to": PLACE, "--optuna": f"sqlite:///{STUDY_PLACE}"}
    given = [word for name in wanted for word in (name, places[name])]
    shown = {places["--optuna"]: hide_password(wanted.get("--optuna", ""))}

    def hear(stream: Stream, line: str) -> None:
        if stream == "place":
            shown[line] = str(Path(wanted.get("--to", "")).absolute())
        elif stream == "stderr":
            tell(stream, line)

    answer = there.ask([words[0], *given, *without_options(words[1:], list(wanted))], tell=hear, brings=True)
    said = answer.stdout
    for place, here in shown.items():
        said = said.replace(place, here)
    return dataclasses.replace(answer, stdout=said)


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
