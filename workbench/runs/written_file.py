"""A path that a notebook shows as a link to the file that was written there.

Elsewhere it is a path like any other. Writing files is left to `figures` and `bundle`.
"""

from __future__ import annotations

import html
import json
import os
from pathlib import Path
from urllib.parse import quote

_PAGE = "workbench/api/runs/{run_id}/report"


class WrittenFile(type(Path())):  # PosixPath or WindowsPath
    """The path of a file, and the address of a page that shows it, if there is one."""

    url: str = ""

    def __repr__(self) -> str:
        """Return the path as text."""
        return str(self)

    def _repr_html_(self) -> str:
        text = html.escape(str(self))
        url = self.url or _below_here(self)
        return (
            f'<a href="{html.escape(url)}" target="_blank">{text}</a>'
            if url
            else f"<code>{text}</code>"
        )


def linked(path: Path, run_id: str = "") -> WrittenFile:
    """Return a path as notebooks show it.

    Args:
        path: A file or folder that was written.
        run_id: The run of which it is the report, so that the notebook's server can show it
            wherever it lies.
    """
    written = WrittenFile(path)
    if run_id and (server := _server_url()):
        written.url = server + _PAGE.format(run_id=quote(run_id, safe=""))
    return written


def _below_here(path: Path) -> str:
    """Return the address of a file below the notebook's folder.

    Nothing for folders and files elsewhere.
    """
    try:
        return quote(path.resolve().relative_to(Path.cwd()).as_posix()) if path.is_file() else ""
    except (OSError, ValueError):
        return ""


def _server_url() -> str:
    """Return the address, without host, of the Jupyter server that started this kernel.

    Empty outside one.
    """
    parent = os.environ.get("JPY_PARENT_PID")
    if parent is None:
        return ""
    from jupyter_core.paths import jupyter_runtime_dir

    try:
        known = json.loads((Path(jupyter_runtime_dir()) / f"jpserver-{parent}.json").read_text())
        return str(known["base_url"])
    except (OSError, ValueError, KeyError):
        return ""
