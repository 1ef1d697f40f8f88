"""Groups of commands that are imported when they are used, in the order in which people need them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click


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

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, in the order of the table."""
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None where there is none of that name."""
        if cmd_name not in self._table:
            return None
        module, _, name = self._table[cmd_name].partition(":")
        return getattr(importlib.import_module(module), name)
