"""An experiment that somebody is working on: edited in a form, as YAML or as Python, which stay in step.

Plain Python without widgets: what a form shows and asks is made here as documents that travel as JSON. How
it looks is left to the widgets and the front end; what a run, an advice or a model is, to their rooms.
"""

from __future__ import annotations

from workbench.forms.draft import Draft

__all__ = ["Draft"]
