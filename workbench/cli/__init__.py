"""The command line: every command, its exit code, and how things look on a terminal.

Commands that only read load neither torch nor ray nor optuna. What a program may want to read comes with
`--json` as one document on stdout; everything else then goes to stderr. What runs do is left to the rooms
below: a command says what was asked, and shows what the store holds.
"""

from __future__ import annotations

from workbench.cli.entry import main

__all__ = ["main"]
