"""Every parameter of the command line is declared once, so that a name has one meaning."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest

from workbench.cli.declarations import DeclaredArgument, DeclaredOption
from workbench.cli.entry import group
from workbench.cli.parameters import HISTORY_FORMAT, LATENCY_LIMIT, PARAMETERS, of_argument
from workbench.experiment.actions import ACTIONS


def _commands(
    command: click.Command, words: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Context]]:
    context = click.Context(command, info_name=" ".join(words))
    yield " ".join(words), context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _commands(inner, (*words, name))


COMMANDS = dict(_commands(group))
TAKEN = [
    pytest.param(context, parameter, id=f"{words} {parameter.opts[0]}")
    for words, context in COMMANDS.items()
    for parameter in context.command.params
    if parameter.name != "version"
]


@pytest.mark.parametrize(("context", "parameter"), TAKEN)
def test_a_command_takes_its_parameters_from_the_table(
    context: click.Context, parameter: click.Parameter
) -> None:
    assert isinstance(parameter, DeclaredOption | DeclaredArgument)
    declared = parameter.declaration
    name = declared.option or str(declared.metavar)
    assert declared in (PARAMETERS[name], LATENCY_LIMIT, HISTORY_FORMAT)
    assert parameter.metavar == declared.metavar
    if declared.type is not None:
        assert parameter.type is declared.type
    if isinstance(parameter, DeclaredOption):
        assert parameter.opts == [declared.option]
        assert parameter.help == declared.help
        record = parameter.get_help_record(context)
        assert record is not None
        assert record[1].startswith(declared.help)


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_parameter_of_the_table_is_used_and_explained(name: str) -> None:
    declared = PARAMETERS[name]
    users = [
        words
        for words, context in COMMANDS.items()
        if any(getattr(each, "declaration", None) is declared for each in context.command.params)
    ]
    assert users
    if declared.option:
        assert re.fullmatch(r"[A-Za-z].*[.]", declared.help)
    if declared.type is not None:
        assert declared.metavar not in (None, "TEXT") or name in ("TEXT", "--match")
        assert not re.search("INTEGER|FLOAT|RANGE|STRING", str(declared.metavar))


def test_actions_that_share_an_option_agree_about_it() -> None:
    for action in ACTIONS.values():
        for argument in action.arguments:
            if argument.name == "path":
                continue
            own = of_argument(argument)
            declared = PARAMETERS[own.option or str(own.metavar)]
            assert (own.metavar, own.help) == (declared.metavar, declared.help), action.kind


def test_no_option_is_shortened_or_named_twice() -> None:
    for words, context in COMMANDS.items():
        options = [opt for param in context.command.params for opt in param.opts]
        assert len(options) == len(set(options)), words
