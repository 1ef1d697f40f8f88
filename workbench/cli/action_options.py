"""Options of the command line that follow from the table of actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from workbench.cli.options import read_settings
from workbench.experiment.actions import ACTIONS, Argument
from workbench.foundation.errors import ArgumentError

_Command = TypeVar("_Command", bound=Callable[..., Any])
_NAMES = {
    "count": "N",
    "count_or_auto": "N|auto",
    "duration": "DURATION",
    "settings": "NAME=VALUE",
    "folder": "PATH",
    "new_file": "PATH",
}


class _Type(click.ParamType):
    """Reads and checks the value of an argument of the table."""

    def __init__(self, argument: Argument) -> None:
        self.name = _NAMES.get(argument.kind, "TEXT")
        self._argument = argument

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if self._argument.kind in ("texts", "settings"):
            return value
        read = value
        if (
            self._argument.kind.startswith("count")
            and value.lstrip("-").isdecimal()
            and value.isascii()
        ):
            read = int(value)
        try:
            self._argument.check(read)
        except ArgumentError as error:
            self.fail(f"{value!r} is not valid; allowed: {error.allowed}", param, ctx)
        return read


def action_options(*kinds: str) -> Callable[[_Command], _Command]:
    """Let a command take the arguments of actions.

    Those of a single action that are required are required.

    Args:
        kinds: The kinds of the actions; the file and the cluster of an action are left to the
            command.
    """
    arguments = {one.name: one for kind in kinds for one in ACTIONS[kind].arguments}

    def decorate(command: _Command) -> _Command:
        for argument in reversed(arguments.values()):
            if argument.name not in ("path", "address"):
                command = _option(argument, is_required=argument.is_required and len(kinds) == 1)(
                    command
                )
        return command

    return decorate


def experiment_options(command: _Command) -> _Command:
    """Let a command take the options of `sweep` that change the experiment, and nothing else of it.

    It reads the assignments of `--set` itself, by `read_settings`.
    """
    for argument in reversed(ACTIONS["sweep"].arguments):
        if argument.setting is not None or argument.name == "settings":
            command = _option(argument, is_required=False, is_read=False)(command)
    return command


def _option(
    argument: Argument, *, is_required: bool, is_read: bool = True
) -> Callable[[_Command], _Command]:
    names = (argument.option_name, argument.name)
    if argument.kind == "flag":
        return click.option(
            *names,
            is_flag=True,
            help=argument.help,
            callback=lambda _context, _parameter, is_given: (
                argument.flag_value if is_given else None
            ),
        )
    is_repeated = argument.kind in ("texts", "settings")
    return click.option(
        *names,
        type=_Type(argument),
        metavar=argument.metavar or _NAMES.get(argument.kind),
        help=argument.help,
        multiple=is_repeated,
        required=is_required,
        callback=_read if is_read and argument.kind == "settings" else None,
    )


def _read(
    _context: click.Context, _parameter: click.Parameter, given: tuple[str, ...]
) -> dict[str, Any] | None:
    return read_settings(given) or None
