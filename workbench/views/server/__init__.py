"""The Jupyter server extension.

Shows runs in a browser, and carries out the actions that a browser requests.

One feed reads the store for all browsers. Each browser subscribes to what it shows and receives
only what changed in it. Actions are carried out as on the command line. The Jupyter server decides
who may read and change runs. The front end in `extensions/` draws, and `workbench.runs.plots`
builds the figures. Importing this package loads neither torch nor ray nor optuna.
"""

from __future__ import annotations

from typing import Any


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    from workbench.views.server.extension import WorkbenchExtension

    return [{"module": "workbench.views.server", "app": WorkbenchExtension}]
