"""What doctor finds in the packages that the workbench needs.

What is missing, and what is out of its range.

The ranges are those with which the workbench was installed. A part that was left out, such as the
packages that train, is one line.
"""

from __future__ import annotations

import importlib.metadata
import platform
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from workbench.foundation.errors import install_command

_SHOWN = (
    "torch",
    "ray",
    "optuna",
    "jupyterlab",
    "plotly",
    "sqlalchemy",
    "pydantic",
    "numpy",
    "pandas",
)
_PARTS = {
    "train": ("torch", "train here"),
    "lab": ("jupyterlab", "show runs in JupyterLab and notebooks"),
}
"""For each part the package without which it counts as left out, and what then cannot be done."""

Found = tuple[str, Literal["fine", "missing", "broken"], str, str | None]
"""Subject, state, text, and how to fix it."""


def find_packages() -> list[Found]:
    """Return what is found about Python, the workbench and the packages that it needs."""
    try:
        own = importlib.metadata.metadata("workbench")
    except importlib.metadata.PackageNotFoundError:
        folder = Path(__file__).parents[2]
        text = f"not installed, but imported from {folder}: which packages it needs is not known"
        return [("workbench", "broken", text, f"pip install --editable {folder}")]
    needed = [Requirement(text) for text in importlib.metadata.requires("workbench") or ()]
    found = [
        _check_python(own["Requires-Python"]),
        ("workbench", "fine", own["Version"], None),
    ]
    found += _check_all([item for item in needed if item.marker is None], part=None)
    for part in _PARTS:
        found += _check_all([item for item in needed if _extra_of(item) == part], part=part)
    return found


def _check_python(allowed: str) -> Found:
    version, shown = platform.python_version(), f"{platform.python_version()}, {sys.executable}"
    if not SpecifierSet(allowed).contains(version, prereleases=True):
        return ("python", "broken", f"{shown}; required: {allowed}", "Use another Python.")
    return ("python", "fine", shown, None)


def _extra_of(requirement: Requirement) -> str | None:
    match = re.fullmatch(r'extra == "([a-z]+)"', str(requirement.marker))
    return match and match[1]


def _check_all(requirements: Sequence[Requirement], part: str | None) -> Iterator[Found]:
    """Yield what is notable about some packages, and the versions that people ask for."""
    versions = {item.name: _version(item.name) for item in requirements}
    if part is not None and requirements and not versions.get(_PARTS[part][0]):
        text = f"not installed: this installation cannot {_PARTS[part][1]}"
        yield (f"workbench[{part}]", "missing", text, install_command(part))
        return
    for item in requirements:
        version, fix = versions[item.name], f"pip install '{item.name}{item.specifier}'"
        if version is None:
            yield (item.name, "broken", f"not installed; required: {item.specifier}", fix)
        elif not item.specifier.contains(version, prereleases=True):
            yield (item.name, "broken", f"{version} is installed; required: {item.specifier}", fix)
        elif item.name in _SHOWN:
            yield (item.name, "fine", version, None)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
