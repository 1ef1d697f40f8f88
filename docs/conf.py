"""Settings of the documentation, and the parts of it that are written from the code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import command_reference
import experiment_reference
import layers

import workbench

project = "Workbench"
release = version = workbench.__version__
copyright = "the Workbench authors"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
nitpicky = False  # types of other libraries are named without a link: nothing is fetched

html_theme = "furo"
html_title = f"Workbench {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["copy.js"]
html_search_scorer = str(Path(__file__).parent / "_static" / "scorer.js")
html_copy_source = False
html_show_copyright = False

default_role = "code"  # docstrings put names between single backticks
smartquotes = False  # options begin with two hyphens
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["myst.strikethrough"]

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "inherited-members": False}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False

_GENERATED = {
    "how-it-is-built": layers.pages,
    "reference/cli": command_reference.pages,
    "reference/experiment": experiment_reference.pages,
}


def _fill(_app: Any, name: str, source: list[str]) -> None:
    """Replace the marks `%% NAME` of a page by what is generated under this name."""
    if name in _GENERATED:
        for mark, text in _GENERATED[name]().items():
            source[0] = source[0].replace(f"%% {mark}", text)


def _leave_out(
    _app: Any, what: str, _name: str, _object: Any, _options: Any, lines: list[str]
) -> None:
    """Leave out what a module says to its developers."""
    if what == "module":
        lines.clear()


def _always_outdated(*_: Any) -> list[str]:
    """Have pages that are written from the code read again, whatever changed."""
    return list(_GENERATED)


def setup(app: Any) -> None:
    """Connect the generated parts."""
    app.connect("source-read", _fill)
    app.connect("autodoc-process-docstring", _leave_out)
    app.connect("env-get-outdated", _always_outdated)
