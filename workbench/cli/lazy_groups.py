"""Groups of commands. A command is imported when it is used."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import Any

import click

_WORDS = "workbench.words"


def typed_words(context: click.Context | None = None) -> list[str]:
    """Return the words that the user typed, from the name of the command on.

    Args:
        context: The context of the command. By default the current one.
    """
    return list((context or click.get_current_context()).find_root().meta.get(_WORDS, ()))


_OTHER_NAMES = {
    "wait": "follow",
    "watch": "follow",
    "attach": "follow",
    "logs": "show",
    "status": "show",
    "run": "sweep",
    "start": "sweep",
    "tune": "sweep",
    "cancel": "stop",
    "kill": "stop",
    "ls": "list",
    "runs": "list",
    "rm": "delete",
    "diff": "compare",
    "continue": "resume",
}
"""Commands of other tools, and what they are called here."""


class LazyGroup(click.Group):
    """A group with a table of its commands, each as `module:object`."""

    def __init__(self, *arguments: Any, table: Mapping[str, str], **options: Any) -> None:
        """Make a group.

        Args:
            arguments: As for `click.Group`.
            table: Module and object of each command, by its name.
            options: As for `click.Group`.
        """
        super().__init__(*arguments, **options)
        self._table = table

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, and remember the words that were typed."""
        ctx.find_root().meta[_WORDS] = tuple(args)
        name = args[0]
        if (
            not (ctx.resilient_parsing or name.startswith("-"))
            and self.get_command(ctx, name) is None
        ):
            # click would suggest from its own table, which is empty here.
            commands = self.list_commands(ctx)
            other = _OTHER_NAMES.get(name, "")
            similar = [other] if other in commands else difflib.get_close_matches(name, commands, 1)
            if similar:
                ctx.fail(f"there is no command {name!r}. Did you mean {similar[0]}?")
            ctx.fail(f"there is no command {name!r}; allowed: {', '.join(commands)}")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of the table."""
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command, or return None if there is none of that name."""
        if cmd_name not in self._table:
            return None
        module, _, name = self._table[cmd_name].partition(":")
        return getattr(importlib.import_module(module), name)
