"""Declares a parameter of the command line once, for all commands that take it.

The parameters themselves are in `parameters`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclasses.dataclass(frozen=True, eq=False)
class Declaration:
    """A parameter: its name, type, help and placeholder.

    A command adds only the default, and whether the parameter is required or repeatable.
    """

    name: str
    """Its name in Python."""
    option: str
    """The option. It is empty for an operand, which has no name on the command line."""
    type: click.ParamType | None
    """None for a flag."""
    metavar: str | None
    """What the help shows for its value. None for a flag."""
    help: str = ""
    callback: Callable[[click.Context, click.Parameter, Any], Any] | None = None
    is_eager: bool = False
    is_passed: bool = True
    """Whether the command receives its value."""
    variable: str = ""
    """The environment variable that is used if the option is not given."""
    is_variable_read: bool = False
    """Whether click reads the variable. Otherwise the code that uses the value does."""

    def __call__(
        self, *, default: Any = None, is_required: bool = False, is_repeatable: bool = False
    ) -> Taken:
        """Return the parameter as one command takes it.

        Args:
            default: Its value if it is not given.
            is_required: Whether it must be given.
            is_repeatable: Whether it may be given several times.
        """
        return Taken(self, default, is_required, is_repeatable)


@dataclasses.dataclass(frozen=True)
class Taken:
    """A parameter as one command takes it. See `Declaration.__call__` for the attributes."""

    declaration: Declaration
    default: Any = None
    is_required: bool = False
    is_repeatable: bool = False
    name: str = ""
    """Its name in Python, if this command uses another one."""

    def add_to(self, command: _Command) -> _Command:
        """Add the parameter to a command."""
        declared, name = self.declaration, self.name or self.declaration.name
        more: dict[str, Any] = {
            "type": declared.type,
            "callback": declared.callback,
            "is_eager": declared.is_eager,
            "expose_value": declared.is_passed,
            "metavar": declared.metavar,
        }
        if self.default is not None:
            more["default"] = self.default
        if not declared.option:
            if self.is_repeatable:
                more["nargs"] = -1
            return click.argument(
                name,
                cls=DeclaredArgument,
                declaration=declared,
                required=self.is_required,
                **more,
            )(command)
        if declared.type is None:
            more["is_flag"] = True
        if declared.is_variable_read:
            more["envvar"] = declared.variable
        return click.option(
            declared.option,
            name,
            cls=DeclaredOption,
            declaration=declared,
            help=declared.help,
            required=self.is_required,
            multiple=self.is_repeatable,
            **more,
        )(command)


class DeclaredArgument(click.Argument):
    """An operand of a command."""

    def __init__(self, *arguments: Any, declaration: Declaration, **options: Any) -> None:
        """Make an operand.

        Args:
            arguments: As for `click.Argument`.
            declaration: Its declaration.
            options: As for `click.Argument`.
        """
        super().__init__(*arguments, **options)
        self.declaration = declaration

    def make_metavar(self, ctx: click.Context) -> str:
        """Return its placeholder, in brackets if it is optional."""
        if self.required:
            return str(self.metavar)
        return f"[{self.metavar}]"


class DeclaredOption(click.Option):
    """An option of a command. Its help ends with its default and other facts in brackets."""

    def __init__(self, *arguments: Any, declaration: Declaration, **options: Any) -> None:
        """Make an option.

        Args:
            arguments: As for `click.Option`.
            declaration: Its declaration.
            options: As for `click.Option`.
        """
        super().__init__(*arguments, **options)
        self.declaration = declaration

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the option and its help, as click shows them."""
        record = super().get_help_record(ctx)
        if record is None:
            return None
        shown = str(self.help)
        if facts := self._facts():
            shown += f"  [{'; '.join(facts)}]"
        return record[0], shown

    def _facts(self) -> Sequence[str]:
        facts = []
        if self.declaration.variable:
            facts.append(f"env: {self.declaration.variable}")
        if isinstance(self.default, tuple):
            facts.append(f"default: {', '.join(map(str, self.default))}")
        elif isinstance(self.default, str | int | float) and not self.is_flag:
            facts.append(f"default: {self.default}")
        if self.required:
            facts.append("required")
        if self.multiple:
            facts.append("repeatable")
        return facts


def takes(*parameters: Declaration | Taken | Sequence[Taken]) -> Callable[[_Command], _Command]:
    """Add parameters to a command. Its help lists them in this order.

    Args:
        parameters: Parameters as they are declared, or as the command takes them.
    """
    taken: list[Taken] = []
    for parameter in parameters:
        if isinstance(parameter, Declaration):
            taken.append(parameter(is_required=not parameter.option))
        elif isinstance(parameter, Taken):
            taken.append(parameter)
        else:
            taken += parameter

    def add(command: _Command) -> _Command:
        for parameter in reversed(taken):
            command = parameter.add_to(command)
        return command

    return add
