"""Starts the kept version of a script in another language, if the script has changed.

Python imports kept code by itself, see `kept_imports`. Any other interpreter reads the file in its
command. If the file has changed, the copy is put next to it during the trial, so that paths
relative to the script still work.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from workbench.foundation.errors import RunError
from workbench.training.programs.kept_imports import VARIABLE, KeptFiles

_ISOLATED = re.compile(r"-[A-Za-z]*[IES][A-Za-z]*")
"""Options that make Python ignore its environment variables, and so the kept code."""


@contextlib.contextmanager
def kept_scripts(arguments: Sequence[str]) -> Iterator[list[str]]:
    """Give the arguments of a command, with the kept versions of scripts that have changed.

    Args:
        arguments: The program and its arguments.

    Raises:
        RunError: If a copy cannot be put next to its script.
    """
    folder = os.environ.get(VARIABLE)
    if not folder:
        yield list(arguments)
        return
    kept, written = KeptFiles(folder), list[Path]()
    own = served_by_name(arguments)
    try:
        yield [
            _placed(argument, kept, written) if argument in own else argument
            for argument in arguments
        ]
    finally:
        for path in written:
            path.unlink(missing_ok=True)


def served_by_name(arguments: Sequence[str]) -> set[str]:
    """Return the arguments that `kept_scripts` replaces if scripts have changed.

    Args:
        arguments: The program and its arguments.
    """
    is_isolated = any(_ISOLATED.fullmatch(argument) for argument in arguments[1:])
    return {argument for argument in arguments if is_isolated or not argument.endswith(".py")}


def _placed(argument: str, kept: KeptFiles, written: list[Path]) -> str:
    if "\0" in argument:  # not a path
        return argument
    path = Path(os.path.abspath(argument))
    if kept.place(str(path)) is None or not kept.has_changed(str(path)):
        return argument
    copy = path.with_name(f".{path.stem}-kept-{os.getpid()}-{len(written)}{path.suffix}")
    try:
        copy.write_bytes(kept.content(str(path)))
        copy.chmod(0o755)
    except OSError as error:
        raise RunError(
            f"{path.name} has changed since the run started, and the kept version cannot be written"
            f" next to it: {error.strerror}",
            next_step="Continue the run with --code current, or restore the file.",
        ) from error
    written.append(copy)
    return str(copy)
