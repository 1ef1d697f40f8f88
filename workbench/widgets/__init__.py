"""Widgets: faces of the workbench in a notebook that are made of ipywidgets.

`app` defines an experiment, asks the advisor, runs it and shows what came out; `model`, `data`, `space`,
`advice`, `run` and `result` are its parts. `live` shows a run as the panel does, also without the extension
of JupyterLab: it brings the view along, looks for the server first and shows the stored snapshot where there
is none. What JupyterLab shows of a run without widgets is left to the front end in `extensions/`, what an
experiment is while somebody edits it to `workbench.forms`.
"""

from __future__ import annotations

from workbench.widgets.experiment_form import ExperimentForm, app
from workbench.widgets.live_view import LiveView, live
from workbench.widgets.parts import advice, data, model, result, run, space

__all__ = [
    "ExperimentForm",
    "LiveView",
    "advice",
    "app",
    "data",
    "live",
    "model",
    "result",
    "run",
    "space",
]
