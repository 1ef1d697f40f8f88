"""The Jupyter server extension: what a browser sees of runs, and what it may ask of them.

One watch reads the store for all browsers; each browser says what it shows and is sent what changed in
that. Everything asked of a run goes the way that the command line goes. Who may look and who may ask is
decided by the Jupyter server. Drawing is left to the front end in `extensions/`, figures to the plots.
Importing this room loads neither torch nor ray nor optuna.
"""

from __future__ import annotations

from typing import Any


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    from workbench.server.extension import WorkbenchExtension

    return [{"module": "workbench.server", "app": WorkbenchExtension}]
