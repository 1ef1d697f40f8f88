"""Writes the reference of the command line from its commands and exit codes."""

from __future__ import annotations

from collections.abc import Iterator

import click

from workbench.cli.entry import COMMANDS, group
from workbench.cli.errors import EXIT_CODES


def pages() -> dict[str, str]:
    """Return the generated parts of the page, by their marks."""
    return {"EXIT_CODES": _exit_codes(), "COMMANDS": "\n\n".join(_grouped())}


def _grouped() -> Iterator[str]:
    """Yield each heading of the help with its commands."""
    context = click.Context(group)
    for heading, names in COMMANDS.items():
        yield f"## {heading}"
        for name in names:
            command = group.get_command(context, name)
            assert command is not None
            yield from _described(["workbench", name], command)


def _exit_codes() -> str:
    rows = [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    return "\n".join(["| Exit code | Meaning |", "|---|---|", *rows])


def _described(words: list[str], command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=words[-1])
    if len(words) > 1:
        yield f"{'#' * (len(words) + 1)} {' '.join(words[1:])}"
        usage = " ".join([*words, *command.collect_usage_pieces(context)])
        yield f"```text\n{usage}\n```"
        text, _, examples = (command.help or "").partition("\b\nExample:\n")
        yield text.strip().replace("\b\n", "")
        if examples:
            lines = "\n".join(line.removeprefix("  ") for line in examples.rstrip().splitlines())
            yield f"```console\n{lines}\n```"
        if options := [
            _option(each, context) for each in command.params if isinstance(each, click.Option)
        ]:
            yield "\n".join(["| Option | Meaning |", "|---|---|", *options])
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _described([*words, name], inner)


def _option(option: click.Option, context: click.Context) -> str:
    record = option.get_help_record(context)
    assert record is not None
    name, text = (part.replace("|", "\\|") for part in record)
    return f"| `{name}` | {text} |"
