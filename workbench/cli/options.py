"""The store, the run and the next steps of a command, and the help of one."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import os
import shlex
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from workbench.cli.parameters import given_store

if TYPE_CHECKING:
    from workbench.experiment.actions import Action
    from workbench.foundation.errors import Suggestion
    from workbench.runs import Run
    from workbench.store.database import Store
    from workbench.store.history import History

_Command = TypeVar("_Command", bound=Callable[..., Any])
_LOCAL_VERBS = ("doctor", "shutdown", "check", "advise", "alerts")
"""Commands that can only run on this machine."""


def described(action: Action, *more: str) -> Callable[[_Command], _Command]:
    """Give a command the help and the examples of an action. Must be its innermost decorator.

    Args:
        action: The action.
        more: Further paragraphs of the help.
    """

    def add(command: _Command) -> _Command:
        command.__doc__ = "\n\n".join([action.help, *(" ".join(text.split()) for text in more)])
        return example(*action.examples)(command)

    return add


def example(*lines: str, needs: str = "") -> Callable[[_Command], _Command]:
    """Show examples below the help of a command. Must be its innermost decorator.

    Args:
        *lines: The examples.
        needs: A paragraph that says what they need, shown before them.
    """

    def add(command: _Command) -> _Command:
        # \\b keeps click from rewrapping the lines.
        shown = "\n".join(f"  {line}" for line in lines)
        parts = (inspect.cleandoc(command.__doc__ or ""), needs, f"\b\nExample:\n{shown}")
        command.__doc__ = "\n\n".join(part for part in parts if part)
        return command

    return add


def open_store() -> Store:
    """Open the store of `--store`, or the default one."""
    from workbench.store.database import Store

    store = Store.open(given_store())
    # A file of SQLite is whole once its connections are closed.
    weakref.finalize(store, store.database.engine.dispose)
    return store


def open_existing_store() -> Store:
    """Open the store of `--store` or of the environment, which must exist, or the default one."""
    from workbench.store.database.urls import check_exists

    check_exists(given_store())
    return open_store()


def attach(run_id: str) -> Run:
    """Return a run of the store of `--store`, or of the default one."""
    from workbench.runs import Run

    store = open_existing_store()
    return Run(store, store.run(run_id).run_id)


def attach_newest(run_id: str, newest: Callable[[Store], str]) -> Run:
    """Return a run as `attach` does, but `last` is the newest run that a command can use.

    Args:
        run_id: The run id that the user typed.
        newest: Returns the id of the newest run.
    """
    from workbench.store.database.rows import NEWEST

    if run_id in NEWEST:
        run_id = newest(open_existing_store())
    return attach(run_id)


def named_trial(run_id: str, trial: int | None) -> tuple[str, int | None]:
    """Return the run and the trial of RUN, RUN/TRIAL or RUN/best.

    The trial is None for the best, or for the one that was chosen by hand.

    Args:
        run_id: The word that the user typed.
        trial: The value of `--trial`.

    Raises:
        UsageError: If the word has no valid trial, or `--trial` is another one.
    """
    run_id, separator, name = run_id.rpartition("/")
    if not separator:
        return name, trial
    if name != "best" and not name.isdecimal():
        raise click.UsageError(f"{name!r} is not a trial. Allowed: RUN, RUN/best, or RUN/NUMBER.")
    number = None
    if name != "best":
        number = int(name)
    if trial is not None and trial != number:
        raise click.UsageError(f"--trial {trial} and {run_id}/{name} are different trials")
    return run_id, number


def command_line(verb: str, subject: str | None = None, **arguments: Any) -> str:
    """Return a command that the user can type next. The arguments are those of `suggest`."""
    from workbench.experiment.actions import suggest

    return write_for_shell(suggest(verb, subject, **arguments))


def write_for_shell(suggestion: Suggestion) -> str:
    """Return a next step as text for a shell.

    Its command includes `--store` if it was given, or `--address` for a user of a remote client.
    """
    from workbench.cluster.remote.relayed_commands import SHOWN_ADDRESS_VARIABLE
    from workbench.store.database.urls import as_typed

    verb, *rest = suggestion.words
    more: list[str] = []
    if address := os.environ.get(SHOWN_ADDRESS_VARIABLE):
        if verb not in _LOCAL_VERBS:
            more = ["--address", address]
        if verb == "sweep":
            verb = "submit"
    elif (url := given_store()) is not None:
        more = ["--store", as_typed(url)]
    options = list(itertools.takewhile(lambda word: word != "--", rest))
    operands = rest[len(options) :]
    return suggestion.write(shlex.join(["workbench", verb, *options, *more, *operands]))


def next_commands(
    run_id: str, state: str, history: History, *, has_report: bool = False
) -> list[str]:
    """Return the commands that the user may want next for a run, each with its purpose.

    Args:
        run_id: The id of the run.
        state: Its state.
        history: Its history.
        has_report: Whether its report has been written.
    """
    from workbench.experiment.actions import suggest
    from workbench.runs.descriptions import next_steps

    offers = next_steps(run_id, state, history)
    if history.best() is not None and not has_report:
        offers.append(suggest("report", run_id, lead="write the report"))
        if not history.is_imported:
            if len(history.objectives) > 1:  # no trial of a front is the best
                front = history.front()[0].number
                lead = "export one of the front"
                offers.append(suggest("export", run_id, lead=lead, trial=front, to="best"))
            else:
                offers.append(suggest("export", run_id, lead="export the best", to="best"))
    width = max((len(offer.lead) for offer in offers), default=0)
    return [
        f"{offer.lead:<{width}}  {write_for_shell(dataclasses.replace(offer, lead=''))}"
        for offer in offers
    ]


def is_relayed() -> bool:
    """Return whether a remote client outside this cluster reads the output."""
    from workbench.cluster.remote.relayed_commands import SHOWN_ADDRESS_VARIABLE

    return SHOWN_ADDRESS_VARIABLE in os.environ
