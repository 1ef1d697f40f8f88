"""The names of Ray that are not documented exist in the installed Ray, and one module uses them.

`make compat` runs this with the lowest and the newest Ray that is allowed: a failure names what a
version lacks before a user meets it.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

import workbench
from workbench.cluster.ray_internals import OPTIONAL_NAMES, PRIVATE_NAMES

PACKAGE = Path(workbench.__file__).parent
ALLOWED = {
    "cluster/ray_internals.py",
    "cluster/head/ray_startup/sitecustomize.py",
    "cluster/head/head_start.py",
    "sweeps/tune_internals.py",
}
"""The modules that use such names; what the second and the third use is listed by the first."""
UNDOCUMENTED = re.compile(
    r"ray\.(_|core\.|experimental\.|scripts|dashboard|tune\.execution|tune\.progress_reporter"
    r"|air\.)|ray\..*\._"
)


def resolve(name: str) -> Any:
    """Return what a dotted name stands for."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        module = ".".join(parts[:length])
        try:
            resolved: Any = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is not None and not module.startswith(error.name):
                raise
            continue
        for part in parts[length:]:
            resolved = getattr(resolved, part)
        return resolved
    raise AttributeError(name)


def missing(names: dict[str, str]) -> dict[str, str]:
    """Return the names that the installed Ray lacks, and what each was used for."""
    gone = {}
    for name, reason in names.items():
        try:
            resolve(name)
        except (AttributeError, ImportError):
            gone[name] = reason
    return gone


def test_the_installed_ray_has_every_name_that_is_not_documented() -> None:
    assert missing(PRIVATE_NAMES) == {}


def test_a_name_that_is_gone_is_reported_with_its_use() -> None:
    assert missing({"ray._private.state.no_such_name": "shows it"}) == {
        "ray._private.state.no_such_name": "shows it"
    }


def test_ray_serve_has_them_where_it_is_installed() -> None:
    pytest.importorskip("ray.serve")
    assert missing(OPTIONAL_NAMES) == {}


def test_no_other_module_imports_what_ray_does_not_document() -> None:
    users = {
        path.relative_to(PACKAGE).as_posix()
        for path in files_with("ray")
        if any(UNDOCUMENTED.match(name) for name in imported_names(path))
    }
    assert users <= ALLOWED


def test_no_other_module_uses_a_private_attribute_of_ray() -> None:
    attributes = {name.rpartition(".")[2] for name in (*PRIVATE_NAMES, *OPTIONAL_NAMES)}
    private = {name for name in attributes if name.startswith("_")}
    users = {
        path.relative_to(PACKAGE).as_posix()
        for path in files_with(*private)
        if any(
            isinstance(node, ast.Attribute) and node.attr in private
            for node in ast.walk(ast.parse(path.read_text()))
        )
    }
    assert users <= ALLOWED


def files_with(*words: str) -> list[Path]:
    """Return the modules whose text has one of some words: parsing all of them takes seconds."""
    some = re.compile("|".join(rf"\b{re.escape(word)}\b" for word in words))
    return [path for path in PACKAGE.rglob("*.py") if some.search(path.read_text())]


def imported_names(path: Path) -> list[str]:
    """Return the dotted names that a module imports, at any place."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names
