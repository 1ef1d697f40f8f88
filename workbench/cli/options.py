"""The store, the run and the next step of a command, and the help of one."""

from __future__ import annotations

import inspect
import os
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from workbench.cli.parameters import given_store

if TYPE_CHECKING:
    from workbench.experiment.actions import Action
    from workbench.foundation.errors import Suggestion
    from workbench.runs import Run
    from workbench.store.database import Store

_Command = TypeVar("_Command", bound=Callable[..., Any])
_LOCAL_VERBS = ("doctor", "shutdown", "check", "advise", "alerts")
"""Commands that are only run on this machine."""


def described(action: Action, *more: str) -> Callable[[_Command], _Command]:
    """Give a command the help and the examples of an action; the innermost of its decorators.

    Args:
        action: The action.
        more: Further paragraphs of the help.
    """

    def add(command: _Command) -> _Command:
        command.__doc__ = "\n\n".join([action.help, *(" ".join(text.split()) for text in more)])
        return example(*action.examples)(command)

    return add


def example(*lines: str, needs: str = "") -> Callable[[_Command], _Command]:
    """Show examples below the help of a command; the innermost of its decorators.

    Args:
        *lines: The examples.
        needs: A paragraph on what they need, shown before them.
    """

    def add(command: _Command) -> _Command:
        # \\b keeps click from rewrapping the lines.
        shown = "\n".join(f"  {line}" for line in lines)
        parts = (inspect.cleandoc(command.__doc__ or ""), needs, f"\b\nExample:\n{shown}")
        command.__doc__ = "\n\n".join(part for part in parts if part)
        return command

    return add


def open_store() -> Store:
    """Open the store that `--store` names, or else the default one."""
    from workbench.store.database import Store

    return Store.open(given_store())


def open_existing_store() -> Store:
    """Open the store that `--store` or the environment names, which must exist, or else the default
    one.
    """
    from workbench.store.database.urls import check_exists

    check_exists(given_store())
    return open_store()


def attach(run_id: str) -> Run:
    """Return a run of the store that `--store` names, or else the default one."""
    from workbench.runs import Run

    store = open_existing_store()
    return Run(store, store.run(run_id).run_id)


def attach_newest(run_id: str, newest: Callable[[Store], str]) -> Run:
    """Return a run as `attach` does, but `last` is the newest that a command can use.

    Args:
        run_id: The argument.
        newest: Returns the id of that run.
    """
    from workbench.store.database.run_ids import NEWEST

    return attach(newest(open_existing_store()) if run_id in NEWEST else run_id)


def named_trial(run_id: str, trial: int | None) -> tuple[str, int | None]:
    """Return the run and the trial that RUN, RUN/TRIAL or RUN/best names.

    None for the chosen or best.

    Args:
        run_id: The argument.
        trial: What `--trial` names.

    Raises:
        UsageError: If it is another trial, or none.
    """
    run_id, separator, name = run_id.rpartition("/")
    if not separator:
        return name, trial
    if name != "best" and not name.isdecimal():
        raise click.UsageError(f"{name!r} is not a trial. Allowed: RUN, RUN/best, or RUN/NUMBER.")
    found = None if name == "best" else int(name)
    if trial is not None and trial != found:
        raise click.UsageError(f"--trial {trial} and {run_id}/{name} are different trials")
    return run_id, found


def command_line(verb: str, subject: str | None = None, **arguments: Any) -> str:
    """Return a command that the user can type next; arguments as in `suggest`."""
    from workbench.experiment.actions import suggest

    return write_for_shell(suggest(verb, subject, **arguments))


def write_for_shell(suggestion: Suggestion) -> str:
    """Return a next step as text for a shell; its command names the store if `--store` was given.

    For a user of a remote client, the command names the cluster instead.
    """
    from workbench.cluster.remote.relayed_commands import SHOWN_ADDRESS_VARIABLE
    from workbench.store.database.urls import as_typed

    verb, *rest = suggestion.words
    if address := os.environ.get(SHOWN_ADDRESS_VARIABLE):
        more = ["--address", address] if verb not in _LOCAL_VERBS else []
        verb = "submit" if verb == "sweep" else verb
    else:
        url = given_store()
        more = [] if url is None else ["--store", as_typed(url)]
    at = rest.index("--") if "--" in rest else len(rest)
    return suggestion.write(shlex.join(["workbench", verb, *rest[:at], *more, *rest[at:]]))


def is_relayed() -> bool:
    """Return whether a remote client, which is not part of this cluster, reads what is printed."""
    from workbench.cluster.remote.relayed_commands import SHOWN_ADDRESS_VARIABLE

    return SHOWN_ADDRESS_VARIABLE in os.environ
