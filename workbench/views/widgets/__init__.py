"""Notebook widgets: the experiment form and the live view.

`app` defines an experiment, requests advice, runs it and shows its result. `model`, `data`,
`space`, `advice`, `run` and `result` are its parts. `live` shows a run like the panel of
JupyterLab, also without the extension: it contains the view, prefers the server, and falls back to
the kernel and to a stored snapshot. `tiers` shows what exit thresholds give, and tiers while they
run. Output of runs without widgets is left to the front end in `extensions/`, drafts to
`workbench.views.forms`.
"""

from __future__ import annotations

from workbench.views.widgets.experiment_form import (
    ExperimentForm,
    advice,
    app,
    data,
    model,
    result,
    run,
    space,
)
from workbench.views.widgets.live_view import LiveView, live
from workbench.views.widgets.tiers_view import TiersView, tiers

__all__ = [
    "ExperimentForm",
    "LiveView",
    "TiersView",
    "advice",
    "app",
    "data",
    "live",
    "model",
    "result",
    "run",
    "space",
    "tiers",
]
