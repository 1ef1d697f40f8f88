"""Find the user's own line in the traceback of a failed trial.

The text alone is read: the trial may have run on another machine, or with an earlier version.
"""

from __future__ import annotations

import re
from pathlib import Path

_FRAME = re.compile(r'^[ |+]*File "(?P<path>.+)", line (?P<line>\d+)', re.MULTILINE)
_CHAINED = re.compile(
    r"^\s*(?:The above exception was the direct cause|During handling of the above exception)",
    re.MULTILINE,
)
_LIBRARY = re.compile(
    r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib(?:64)?[/\\]python\d[.\d]*[/\\]|^<frozen "
)
_CELL = re.compile(r"[/\\]ipykernel_\d+[/\\]|^<ipython-input-")
_PACKAGE = Path(__file__).parents[2]


def failure_place(traceback: str | None) -> str | None:
    """Return where the user's code failed, as file:line.

    Args:
        traceback: What Python printed; None where there is none.

    Returns:
        The innermost line that belongs neither to an installed package nor to Python nor to the
        workbench; of several chained exceptions, that of the last one. None without such a line.
    """
    for block in reversed(_CHAINED.split(traceback or "")):
        for frame in reversed(list(_FRAME.finditer(block))):
            path, line = frame["path"], frame["line"]
            if _CELL.search(path):
                return f"notebook cell:{line}"
            if not _LIBRARY.search(path) and not _is_part_of_the_workbench(path):
                return f"{path}:{line}"
    return None


def _is_part_of_the_workbench(path: str) -> bool:
    """Return whether a path ends like that of a file of this package, wherever it is installed."""
    parts = Path(path).parts
    return _PACKAGE.name in parts and any(
        (_PACKAGE / Path(*parts[index + 1 :])).is_file()
        for index, part in enumerate(parts)
        if part == _PACKAGE.name
    )
