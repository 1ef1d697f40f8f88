"""Files that code refers to as text are found."""

from __future__ import annotations

import itertools
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from workbench.cluster.remote import code_dependencies
from workbench.cluster.remote.code_dependencies import ModuleFiles, find_named_files


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in {
        "loop.py": (
            '"""Reads notes.txt, or so it claims."""\nimport subprocess\n'
            'subprocess.run("python scripts/fit.py --rows ./rows.csv", shell=True)\n'
        ),
        "scripts/fit.py": 'import helper\nopen("tables")',
        "scripts/helper.py": "import json",
        "rows.csv": "a,b",
        "tables/first.csv": "1",
        "tables/deep/second.csv": "2",
        "tables/__pycache__/third.pyc": "3",
        "notes.txt": "unread",
        "start.sh": "exec python scripts/fit.py",
        "big.bin": "x" * 1000,
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def names(project: Path, *values: object, max_bytes: int = 500) -> tuple[list[str], list[str]]:
    named_files = find_named_files(
        values, {"loop.py": project / "loop.py"}, project, max_bytes=max_bytes
    )
    return sorted(named_files.files), named_files.too_large


def test_scripts_are_found_with_what_they_import_and_read(project: Path) -> None:
    assert names(project) == (
        [
            "rows.csv",
            "scripts/fit.py",
            "scripts/helper.py",
            "tables/deep/second.csv",
            "tables/first.csv",
        ],
        [],
    )


def test_options_name_files_too(project: Path) -> None:
    (project / "loop.py").write_text("")
    assert names(project, 1, None, {"files": ["start.sh", "absent.txt"]})[0] == [
        "scripts/fit.py",
        "scripts/helper.py",
        "start.sh",
        "tables/deep/second.csv",
        "tables/first.csv",
    ]


def test_what_is_too_large_is_named_instead(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "loop.py").write_text("")
    assert names(project, "big.bin", "rows.csv") == (["rows.csv"], ["big.bin"])
    monkeypatch.setattr(code_dependencies, "_MAX_FILES", 1)
    assert names(project, "tables") == ([], ["tables"])


@pytest.mark.parametrize(
    "text", ["/etc/passwd", "../outside.txt", "~/.bashrc", ".git", "", ".", "\0", "x" * 300]
)
def test_nothing_outside_the_folder_is_found(project: Path, text: str) -> None:
    (project / "loop.py").write_text("")
    (project.parent / "outside.txt").write_text("")
    (project / ".git").mkdir()
    (project / ".git" / "config").write_text("")
    assert names(project, text) == ([], [])


_FORMS = {"nothing": [], "folder": ["part.py"], "package": ["__init__.py"], "file": [".py"]}
"""The files of a module in an entry of the search path, after its name."""


@pytest.mark.parametrize("forms", list(itertools.product(_FORMS, repeat=3)), ids="-".join)
def test_a_module_lies_where_python_finds_it(
    forms: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [tmp_path / name for name in ("first", "second", "usual")]
    for entry, form in zip(entries, forms, strict=True):
        entry.mkdir()
        for name in _FORMS[form]:
            path = entry / ("my_module" + (name if name == ".py" else f"/{name}"))
            path.parent.mkdir(exist_ok=True)
            path.touch()
    first, second, usual = map(str, entries)
    monkeypatch.setattr(sys, "path", [usual])
    spec = PathFinder.find_spec("my_module", [first, second, usual])
    places = [] if spec is None else list(spec.submodule_search_locations or [spec.origin])
    modules = ModuleFiles()
    for _ in range(2):  # the second time, all was looked at
        assert list(map(str, modules.places_of({"my_module"}, [first, second]))) == places
