"""The documentation is built without a warning, with a search of its own, and needs no network."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.code_blocks import ROOT


@pytest.fixture(scope="module")
def site() -> Path:
    """The site where `make docs` builds it. It is built again if anything has changed since."""
    folder = ROOT / "docs" / "_build" / "html"
    if _is_fresh(folder / "searchindex.js"):
        return folder
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going"]
    done = subprocess.run(
        [*command, ROOT / "docs", folder], check=False, capture_output=True, text=True
    )
    if done.returncode:
        shutil.rmtree(folder)  # a page that was read once is not warned of again
    assert done.returncode == 0, done.stderr
    return folder


def _is_fresh(last_file: Path) -> bool:
    """Return whether a build ended after the last change of a page, a picture or a docstring."""
    if not last_file.exists():
        return False
    sources = [path for path in (ROOT / "docs").rglob("*") if "_build" not in path.parts]
    sources += (ROOT / "workbench").rglob("*.py")
    return last_file.stat().st_mtime > max(path.stat().st_mtime for path in sources)


def test_every_page_is_built_and_found_by_the_search(site: Path) -> None:
    pages = {
        path.relative_to(ROOT / "docs").with_suffix("").as_posix()
        for path in (ROOT / "docs").rglob("*.md")
        if "_build" not in path.parts
    }
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    names = re.search(r'"docnames":\[(.*?)\]', index)
    assert names is not None
    assert {name.strip('"') for name in names[1].split(",")} == pages


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    loads = re.compile(
        r"""<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=["']?(?:https?:)?//[^"'>]*|@import\s+url\(.?https?:[^)]*"""
    )
    found = [
        (path.name, match[0])
        for path in site.rglob("*")
        if path.suffix in (".html", ".css")
        for match in loads.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_the_references_name_every_setting_and_every_command(site: Path) -> None:
    from workbench.cli.entry import group
    from workbench.experiment import Experiment

    settings = (site / "reference" / "experiment.html").read_text(encoding="utf-8")
    commands = (site / "reference" / "cli.html").read_text(encoding="utf-8")
    assert [name for name in Experiment.model_fields if f">{name}<" not in settings] == []
    assert [name for name in group.list_commands(None) if f'id="{name}"' not in commands] == []
    assert "%%" not in settings + commands
