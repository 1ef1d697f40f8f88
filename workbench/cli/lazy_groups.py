"""Groups of commands that are imported when they are used, in the order in which people need
them.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import Any

import click

_WORDS = "workbench.words"


def typed_words(context: click.Context | None = None) -> list[str]:
    """Return what was typed of the command that is carried out: its name and all that follows.

    Args:
        context: The context of the command; None for the current one.
    """
    return list((context or click.get_current_context()).find_root().meta.get(_WORDS, ()))


class LazyGroup(click.Group):
    """A group whose commands are named by `module:object`."""

    def __init__(self, *arguments: Any, table: Mapping[str, str], **options: Any) -> None:
        """Make a group.

        Args:
            arguments: Those of `click.Group`.
            table: Where each command is, by its name.
            options: Those of `click.Group`.
        """
        super().__init__(*arguments, **options)
        self._table = table

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that was typed, and note how."""
        ctx.find_root().meta[_WORDS] = tuple(args)
        name = args[0]
        if (
            not (ctx.resilient_parsing or name.startswith("-"))
            and self.get_command(ctx, name) is None
        ):
            # click would suggest from its own table, which is empty here.
            known = self.list_commands(ctx)
            similar = difflib.get_close_matches(name, known, 1)
            if similar:
                ctx.fail(f"there is no command {name!r}. Did you mean {similar[0]}?")
            ctx.fail(f"there is no command {name!r}; allowed: {', '.join(known)}")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of the table."""
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None where there is none of that name."""
        if cmd_name not in self._table:
            return None
        module, _, name = self._table[cmd_name].partition(":")
        return getattr(importlib.import_module(module), name)
