"""Widgets: faces of the workbench in a notebook that are made of ipywidgets.

`live` shows a run as the panel does, also without the extension of JupyterLab: it brings the view along.
It looks for the server first and shows the stored snapshot where there is none; nothing of it runs in the
kernel. What JupyterLab shows of a run without widgets is left to the front end in `extensions/`.
"""

from __future__ import annotations

from workbench.widgets.live_view import LiveView, live

__all__ = ["LiveView", "live"]
