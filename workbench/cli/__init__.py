"""The command line: every command, its exit code, and how things look on a terminal.

Commands that only read load neither torch nor ray nor optuna. What a program may want to read comes
with `--json` as one document on stdout; everything else then goes to stderr. What runs do is left
to the rooms below: a command states what was requested, and shows what the store holds.
"""

from __future__ import annotations

import os
import signal
import sys

__all__ = ["main"]


def main() -> None:
    """Carry out the command of this process.

    Interrupting it is understood before anything is imported.
    """
    # What a script sends to the background ignores Ctrl-C, and shall go on doing so.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _end)
    from workbench.cli.entry import main as enter

    enter()


def _end(*_: object) -> None:
    # An exception could be taken for one of the import that it ends.
    sys.stderr.write("\ninterrupted\n")
    os._exit(130)
