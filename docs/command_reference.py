"""Writes the reference of the command line from its commands and exit codes."""

from __future__ import annotations

from collections.abc import Iterator

import click

from workbench.cli.entry import group
from workbench.cli.exit_codes import MEANINGS

GROUPS = {
    "Define and start": [
        "check",
        "init",
        "import",
        "advise",
        "what-if",
        "sweep",
        "automl",
        "submit",
    ],
    "Watch and steer": [
        "list",
        "show",
        "follow",
        "set",
        "enqueue",
        "stop",
        "resume",
        "extend",
        "replay",
    ],
    "Keep runs in order": ["rename", "tag", "note", "pin", "archive", "delete"],
    "Use the results": ["report", "trace", "compare", "choose", "export", "ensemble", "predict"],
    "Deploy": ["measure", "compress", "serve", "drift", "place"],
    "Machines and storage": ["doctor", "shutdown", "cluster", "alerts", "backup", "restore"],
}


def pages() -> dict[str, str]:
    """Return the generated parts of the page, by their marks.

    Raises:
        ValueError: If a command is in no group, or a group has a command that does not exist.
    """
    listed = {name for names in GROUPS.values() for name in names}
    if difference := listed ^ set(group.list_commands(click.Context(group))):
        raise ValueError(f"correct GROUPS in docs/command_reference.py: {sorted(difference)}")
    commands = "\n\n".join(_grouped())
    return {"EXIT_CODES": _exit_codes(), "COMMANDS": commands}


def _grouped() -> Iterator[str]:
    context = click.Context(group)
    for title, names in GROUPS.items():
        yield f"## {title}"
        for name in names:
            command = group.get_command(context, name)
            assert command is not None
            yield from _described(["workbench", name], command)


def _exit_codes() -> str:
    rows = [f"| {code} | {meaning} |" for code, meaning in MEANINGS.items()]
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
