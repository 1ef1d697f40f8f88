"""Drafts of experiments, edited in a form, as YAML or as Python, which stay in sync.

Plain Python without widgets: `protocol` defines what a form and its kernel exchange, and this
package makes it. Transport is left to the widgets, presentation to the front end, runs and models
to their own packages.
"""

from __future__ import annotations

from workbench.views.forms.draft import Draft

__all__ = ["Draft"]
