"""Installations with fewer packages than the environment of the tests has."""

from __future__ import annotations

import csv
import functools
import importlib.metadata
import os
import site
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement

REFUSE = """
import sys

ABSENT = {absent!r}

class _Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, _Absent())

import importlib.metadata
import importlib.util
found, version = importlib.util.find_spec, importlib.metadata.version
def find_spec(name, package=None):
    return None if name.partition(".")[0] in ABSENT else found(name, package)
def version_of(name):
    if name.lower().replace("-", "_").replace(".", "_") in ABSENT | {distributions!r}:
        raise importlib.metadata.PackageNotFoundError(name)
    return version(name)
importlib.util.find_spec, importlib.metadata.version = find_spec, version_of
"""


def normalized(name: str) -> str:
    return name.lower().replace("-", "_").replace(".", "_")


def needed_by(requirements: Iterable[str]) -> set[str]:
    """Return what pip installs for requirements.

    The distributions, and what they and their extras need.
    """
    needed: set[tuple[str, str]] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        requirement = waiting.pop()
        name = normalized(requirement.name)
        for extra in {"", *requirement.extras} - {
            extra for known, extra in needed if known == name
        }:
            needed.add((name, extra))
            try:
                texts = importlib.metadata.requires(name) or []
            except importlib.metadata.PackageNotFoundError:
                continue
            waiting += [
                item
                for item in map(Requirement, texts)
                if (item.marker.evaluate({"extra": extra}) if item.marker else not extra)
            ]
    return {name for name, _ in needed}


@functools.cache
def owners_of_modules() -> dict[str, set[str]]:
    """Return which distributions a module comes from.

    Python 3.10 knows it for some of them only.
    """
    owners: dict[str, set[str]] = {}
    # Not what a library brings along and adds to the path, as Ray does once it is imported.
    for distribution in importlib.metadata.distributions(path=site.getsitepackages()):
        name = distribution.metadata["Name"]
        for path in csv.reader((distribution.read_text("RECORD") or "").splitlines()):
            top, _, rest = path[0].partition("/")
            first = top.partition(".")[0]
            if first.isidentifier() and (rest or top.endswith((".py", ".so"))):
                owners.setdefault(first, set()).add(name)
    return owners


def installed_with(requirements: Iterable[str], folder: Path) -> dict[str, str]:
    """Return the variables of processes that can import only what pip installs for some
    requirements.

    Args:
        requirements: As pip takes them.
        folder: An empty one for what such processes run first.
    """
    kept = needed_by(requirements)
    modules = owners_of_modules()
    absent = {
        module
        for module, owners in modules.items()
        if not any(normalized(owner) in kept for owner in owners)
    }
    owners = {normalized(owner) for module in absent for owner in modules[module]}
    startup = folder / "startup"
    startup.mkdir()
    (startup / "sitecustomize.py").write_text(REFUSE.format(absent=absent, distributions=owners))
    return {**os.environ, "PYTHONPATH": f"{startup}:{Path(__file__).parents[2]}"}
