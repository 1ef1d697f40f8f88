"""Options that several commands share, and what they stand for."""

from __future__ import annotations

import inspect
import math
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from workbench.run import Run
    from workbench.store import Store

_Command = TypeVar("_Command", bound=Callable[..., Any])
_STORE = "workbench.store"
_COMMAND_ABOUT_RUN = re.compile(
    r"\bworkbench (?:show|follow|stop|enqueue|set|extend|resume|replay|report|export) \w(?:[\w.-]*\w)?"
    r"(?!\.?[\w-]| --(?:address|store))"
)

launcher_option = click.option(
    "--launcher", default="ray", show_default=True,
    help="ray: a driver that outlives this command; inline: this process, to its end.",
)  # fmt: skip
address_option = click.option(
    "--address", metavar="HOST:PORT", help="A Ray cluster; without it, the one of this machine."
)
detach_option = click.option(
    "--detach", is_flag=True, help="Return at once; the run id is the last word on stdout."
)
token_file_option = click.option(
    "--token-file", type=click.Path(path_type=Path), metavar="FILE",
    help="Holds the cluster's token. [env: RAY_AUTH_TOKEN_PATH]",
)  # fmt: skip
_JOBS_ADDRESS = click.option(
    "--address", metavar="URL",
    help="A cluster that the run was submitted to, such as http://HOST:8265. Without it the run is one of "
    "this machine's store, also where RAY_API_SERVER_ADDRESS is set, which only submit goes by.",
)  # fmt: skip
_ANY_ADDRESS = click.option(
    "--address", metavar="HOST:PORT|URL",
    help="A Ray cluster to attach to, or http://HOST:8265 for a run that was submitted there; without it, "
    "the Ray of this machine, also where RAY_API_SERVER_ADDRESS is set, which only submit goes by.",
)  # fmt: skip


def jobs_address_option(attaches: bool) -> Callable[[_Command], _Command]:
    """Let a command take the address of a cluster that takes jobs, or also of one to attach to."""
    return _ANY_ADDRESS if attaches else _JOBS_ADDRESS


def _keep_store(context: click.Context, _parameter: click.Parameter, url: str | None) -> None:
    if url is not None:
        context.find_root().meta[_STORE] = url


def store_option(command: _Command) -> _Command:
    """Let a command take `--store`."""
    return click.option(
        "--store", metavar="URL", callback=_keep_store, expose_value=False,
        help="Where runs are kept: the path of a SQLite file, or postgresql://USER@HOST/DATABASE. "
        "[env: WORKBENCH_STORE]",
    )(command)  # fmt: skip


def example(*lines: str) -> Callable[[_Command], _Command]:
    """Show what a person could type, below the help of a command; the innermost of its decorators."""

    def add(command: _Command) -> _Command:
        # The \\b is how click is told to leave lines as they are.
        shown = "\n".join(f"  {line}" for line in lines)
        command.__doc__ = f"{inspect.cleandoc(command.__doc__ or '')}\n\n\b\nExample:\n{shown}"
        return command

    return add


def json_option(command: _Command) -> _Command:
    """Let a command take `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")(command)


class FiniteRange(click.FloatRange):
    """A range of numbers without nan, which no bound keeps out, and without infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read one; arguments as click gives them."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


def _read_batches(_context: click.Context, _parameter: click.Parameter, text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and int(word) > 0 for word in words):
        raise click.BadParameter(f"{text!r}; allowed: whole numbers greater than 0, such as 128,256,512")
    return tuple(sorted({int(word) for word in words}))


def batches_option(command: _Command) -> _Command:
    """Let a command take global batches to compare; it is given them once each, the smallest first."""
    return click.option(
        "--batches",
        metavar="B,B,...",
        required=True,
        callback=_read_batches,
        help="Global batches to compare.",
    )(command)


def run_argument(command: _Command) -> _Command:
    """Let a command take a run."""
    return click.argument("run_id", metavar="RUN")(command)


def open_store() -> Store:
    """Open the store that `--store` names, or else the usual one."""
    from workbench.store import Store

    return Store.open(given_store())


def attach(run_id: str) -> Run:
    """Take hold of a run in the store that is meant."""
    from workbench.run import Run

    store = open_store()
    return Run(store, store.run(run_id).run_id)


def command_line(*words: str) -> str:
    """Write the command that a person can type next; it names the store where `--store` did.

    For somebody elsewhere, it names the cluster instead.
    """
    from workbench.run.relayed import SHOWN_ADDRESS_VARIABLE
    from workbench.store.urls import as_typed

    if address := os.environ.get(SHOWN_ADDRESS_VARIABLE):
        command = "submit" if words[0] == "sweep" else words[0]
        return shlex.join(["workbench", command, *words[1:], "--address", address])
    url = given_store()
    return shlex.join(["workbench", *words, *([] if url is None else ["--store", as_typed(url)])])


def complete_commands(text: str) -> str:
    """Complete the commands in a message of another room as `command_line` does."""
    return _COMMAND_ABOUT_RUN.sub(lambda found: command_line(*found[0].split()[1:]), text)


def is_asked_from_elsewhere() -> bool:
    """Tell whether somebody on a machine that is no part of this cluster reads what is printed."""
    from workbench.run.relayed import SHOWN_ADDRESS_VARIABLE

    return SHOWN_ADDRESS_VARIABLE in os.environ


def given_store() -> str | None:
    """Return the store that `--store` names."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.find_root().meta.get(_STORE)


def read_seconds(field: str, text: str, *, may_be_zero: bool = False) -> float:
    """Read a duration from a command line: with units, or a number of seconds.

    Args:
        field: The option.
        text: What was given.
        may_be_zero: Whether no time at all makes sense.

    Raises:
        ExperimentError: If it is none.
    """
    from workbench.errors import ExperimentError
    from workbench.experiment.sections import parse_duration_s

    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = float(parse_duration_s(text))
        except ExperimentError as error:
            raise error.about(field) from None
    if not math.isfinite(seconds) or seconds < 0 or (seconds == 0 and not may_be_zero):
        raise ExperimentError(
            f"{text} is no duration" + ("" if may_be_zero else " greater than 0"), field=field,
            allowed="such as 90s, 10m, 1h30m, or a number of seconds",
        )  # fmt: skip
    return seconds


def read_settings(assignments: tuple[str, ...]) -> dict[str, Any]:
    """Read `name=value` texts.

    Args:
        assignments: Each a dotted path, `=`, and a value in YAML.

    Raises:
        ExperimentError: If one has no `=`, or its value is no YAML.
    """
    from workbench.errors import ExperimentError
    from workbench.experiment.yaml_file import read_yaml

    settings: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name.strip():
            raise ExperimentError(
                f"{assignment!r} sets nothing", field="--set", allowed="NAME=VALUE, such as training.epochs=5"
            )
        document = read_yaml(f"value: {value}", source=f"--set {assignment!r}")
        settings[name.strip()] = document["value"]
    return settings
