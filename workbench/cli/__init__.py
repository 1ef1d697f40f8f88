"""The command line: every command, its exit code, and what you see on a terminal.

Commands that only read load neither torch nor ray nor optuna. With `--json` a command prints one
document on stdout and everything else on stderr. A command passes your request on to the rooms
below, and shows what the store contains.
"""

from __future__ import annotations

import os
import signal
import sys

__all__ = ["main"]


def main() -> None:
    """Carry out the command of this process.

    Ctrl-C works from the start, before anything is imported.
    """
    # A script that starts this process in the background makes it ignore Ctrl-C. That is kept.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _end)
    from workbench.cli.entry import end_process
    from workbench.cli.entry import main as enter

    try:
        enter()
    except SystemExit as end:
        end_process(end.code if isinstance(end.code, int) else 1)


def _end(*_: object) -> None:
    # An exception raised during an import would look like an error of that import.
    sys.stderr.write("\ninterrupted\n")
    os._exit(130)
