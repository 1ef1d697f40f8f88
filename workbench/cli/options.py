"""Options that several commands share, and what they stand for."""

from __future__ import annotations

import inspect
import math
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from workbench.experiment.actions import Action
    from workbench.foundation.errors import Suggestion
    from workbench.runs import Run
    from workbench.store.database import Store

_Command = TypeVar("_Command", bound=Callable[..., Any])
_STORE = "workbench.store.database"
_LOCAL_VERBS = ("doctor", "shutdown", "check", "advise", "alerts")
"""Commands that are only run on this machine."""


PATH = click.Path(path_type=Path)


def option(
    names: str,
    text: str,
    kind: Any = None,
    *,
    default: Any = None,
    show_default: bool | None = None,
    **more: Any,
) -> Callable[[_Command], _Command]:
    """Let a command take an option; a default is shown in its help.

    Args:
        names: Its names, and where it differs that of the argument, separated by spaces.
        text: Its help.
        kind: The type of its value.
        default: Its value where it is not given.
        show_default: Whether the help shows the default; by default where there is one.
        more: Further arguments of `click.option`.
    """
    if default is not None:
        more |= {"default": default, "show_default": show_default is not False}
    elif show_default is not None:
        more["show_default"] = show_default
    return click.option(*names.split(), type=kind, help=text, **more)


def _refuse_detached(context: click.Context, parameter: click.Parameter, launcher: str) -> str:
    if launcher == "inline" and context.params.get("detach"):
        raise click.UsageError(
            "--detach needs a driver that outlives this command: omit --launcher inline."
        )
    return launcher


launcher_option = click.option(
    "--launcher",
    default="ray",
    show_default=True,
    callback=_refuse_detached,
    help=(
        "Choose what drives the run: ray, a driver that outlives this command; inline, this"
        " process."
    ),
)
address_option = click.option(
    "--address", metavar="HOST:PORT", help="Use this Ray cluster instead of the local one."
)
detach_option = click.option(
    "--detach",
    is_flag=True,
    is_eager=True,
    help="Return immediately; the run id is the last word on stdout.",
)
token_file_option = click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Read the cluster's token from this file. [env: RAY_AUTH_TOKEN_PATH]",
)
_JOBS_ADDRESS = click.option(
    "--address",
    metavar="URL",
    help=(
        "Run the command on the cluster that the run was submitted to, such as http://HOST:8265;"
        " without it, the run is looked up in the local store (RAY_API_SERVER_ADDRESS is used only"
        " by submit)."
    ),
)
_ANY_ADDRESS = click.option(
    "--address",
    metavar="HOST:PORT|URL",
    help=(
        "Attach to this Ray cluster, or give http://HOST:8265 for a run that was submitted there;"
        " without it, the local Ray is used (RAY_API_SERVER_ADDRESS is used only by submit)."
    ),
)


def jobs_address_option(attaches: bool) -> Callable[[_Command], _Command]:
    """Let a command take the address of a cluster that takes jobs, or also of one to attach to."""
    return _ANY_ADDRESS if attaches else _JOBS_ADDRESS


def _keep_store(context: click.Context, _parameter: click.Parameter, url: str | None) -> None:
    if url is not None:
        context.find_root().meta[_STORE] = url


def store_option(command: _Command) -> _Command:
    """Let a command take `--store`."""
    return click.option(
        "--store",
        metavar="URL",
        callback=_keep_store,
        expose_value=False,
        help=(
            "Use this store of runs: the path of a SQLite file, or postgresql://USER@HOST/DATABASE."
            " [env: WORKBENCH_STORE]"
        ),
    )(command)


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


def json_option(command: _Command) -> _Command:
    """Let a command take `--json`."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print one JSON document on stdout."
    )(command)


class Count(click.IntRange):
    """A range of whole numbers."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read a number; arguments as click passes them."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            allowed = f"a whole number from {self.min:g}" + (
                "" if self.max is None else f" to {self.max:g}"
            )
            self.fail(f"{value!r} is not valid; allowed: {allowed}", param, ctx)


class FiniteRange(click.FloatRange):
    """A range of finite numbers.

    Without infinity, and without NaN, which passes any comparison of bounds.
    """

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read a number; arguments as click passes them."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


def _read_batches(
    _context: click.Context, _parameter: click.Parameter, text: str
) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and int(word) > 0 for word in words):
        raise click.BadParameter(
            f"{text!r}; allowed: whole numbers greater than 0, such as 128,256,512"
        )
    return tuple(sorted({int(word) for word in words}))


def batches_option(command: _Command) -> _Command:
    """Let a command take global batches to compare.

    It receives them sorted and without duplicates.
    """
    return click.option(
        "--batches",
        metavar="B,B,...",
        required=True,
        callback=_read_batches,
        help="Compare these global batches.",
    )(command)


def run_argument(command: _Command) -> _Command:
    """Let a command take a run."""
    return click.argument("run_id", metavar="RUN")(command)


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
        raise click.UsageError(f"--trial {trial} is not the trial that {run_id}/{name} names.")
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
    return suggestion.write(shlex.join(["workbench", verb, *rest, *more]))


def is_relayed() -> bool:
    """Return whether a remote client, which is not part of this cluster, reads what is printed."""
    from workbench.cluster.remote.relayed_commands import SHOWN_ADDRESS_VARIABLE

    return SHOWN_ADDRESS_VARIABLE in os.environ


def given_store() -> str | None:
    """Return the value of `--store`; None where it was not given."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.find_root().meta.get(_STORE)


def read_settings(assignments: tuple[str, ...]) -> dict[str, Any]:
    """Read `name=value` texts.

    Args:
        assignments: Each a dotted path, `=`, and a value in YAML.

    Raises:
        ArgumentError: If one has no `=`.
        ExperimentError: If a value is not YAML.
    """
    from workbench.experiment.yaml_file import read_yaml
    from workbench.foundation.errors import ArgumentError

    settings: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name.strip():
            raise ArgumentError(
                f"{assignment!r} is not an assignment",
                field="--set",
                allowed="NAME=VALUE, such as training.epochs=5",
            )
        document = read_yaml(f"value: {value}", source=f"--set {assignment!r}")
        settings[name.strip()] = document["value"]
    return settings
