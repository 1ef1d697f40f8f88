"""The processes of Ray do not import what they do not use, and nobody notices that."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from workbench.cluster.head.ray_startup import sitecustomize
from workbench.cluster.head.ray_startup.sitecustomize import FOLDER

GRAMMAR = """
print("compiled")
def is_valid_syntax(rule, text):
    return (rule, text) == ("iri", "https://example.org")
other = 7
"""
USE = """
from {module} import is_valid_syntax
print("imported", is_valid_syntax("iri", "https://example.org"), is_valid_syntax("iri", "x"))
import {module} as module
print(module.other, module.__spec__.name)
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder with a package that takes long to import, and a `sitecustomize` of the user's."""
    (tmp_path / "rfc3987_syntax").mkdir()
    (tmp_path / "rfc3987_syntax" / "__init__.py").write_text(GRAMMAR)
    (tmp_path / "sitecustomize.py").write_text("print('own', __name__)")
    return tmp_path


def lines_of(packages: Path, *arguments: str) -> list[str]:
    path = os.pathsep.join((FOLDER, str(packages)))
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": path},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.splitlines()


def test_the_grammar_is_compiled_when_it_is_first_used(packages: Path) -> None:
    code = "import rfc3987_syntax; from rfc3987_syntax import is_valid_syntax; print('imported')"
    assert lines_of(packages, "-c", code) == ["own sitecustomize", "imported"]
    for name in (
        "unknown_name",
        "valid",
        "rule",
        "return",
    ):  # pickling looks for every name in every module
        code = f"import rfc3987_syntax; print(hasattr(rfc3987_syntax, {name!r}))"
        assert lines_of(packages, "-c", code) == ["own sitecustomize", "False"]

    assert lines_of(packages, "-c", USE.format(module="rfc3987_syntax")) == [
        "own sitecustomize",
        "compiled",
        "imported True False",
        "7 rfc3987_syntax",
    ]


def test_what_ray_rarely_uses_is_imported_when_it_does_or_somebody_else(packages: Path) -> None:
    (packages / "default_worker.py").write_text(
        "import sys; from ray._private.accelerators import tpu; print('requests' in sys.modules)\n"
        "print(tpu.requests.codes.ok); import requests, requests.sessions\n"
        "print(tpu.requests.Session is requests.sessions.Session)"
    )
    lines = lines_of(packages, "-u", str(packages / "default_worker.py"))
    assert lines == ["own sitecustomize", "False", "200", "True"]


def test_an_agent_without_a_dashboard_imports_no_parts_of_one(packages: Path) -> None:
    script = packages / "scripts" / "ray" / "dashboard" / "agent.py"
    script.parent.mkdir(parents=True)
    script.write_text(
        "import sys; from ray.dashboard.utils import DashboardAgentModule, get_all_modules\n"
        "print(get_all_modules(DashboardAgentModule), 'ray.dashboard.modules' in sys.modules)"
    )
    assert lines_of(packages, str(script), "--minimal") == ["own sitecustomize", "[] False"]


def test_what_a_worker_starts_does_not_see_the_folder(packages: Path) -> None:
    show = (
        "import os, sys; print(os.environ['PYTHONPATH'], [x for x in sys.path if 'ray_startup'"
        " in x])"
    )
    for name, seen in (("default_worker.py", str(packages)), ("raylet.py", f"{FOLDER}:{packages}")):
        (packages / name).write_text(show)
        assert lines_of(packages, "-u", str(packages / name)) == ["own sitecustomize", f"{seen} []"]


@pytest.mark.parametrize(
    ("titles", "is_preloaded"),
    [
        (("", "ray::IDLE", "ray::IDLE", "ray::IDLE"), True),
        (("", "ray::IDLE", "ray::IDLE", "ray::Pool"), False),  # its work came meanwhile
        (("ray::IDLE", "ray::Pool"), False),  # it had loaded just now, and its work came
        (("", "ray::Pool"), False),
    ],
)
def test_a_process_imports_ahead_only_once_it_has_stayed_idle(
    titles: tuple[str, ...], is_preloaded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "imported_ahead.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "imported_ahead", raising=False)
    monkeypatch.setitem(
        sys.modules, "ray._raylet", SimpleNamespace(getproctitle=iter(titles).__next__)
    )
    monkeypatch.setattr(sitecustomize, "_PRELOADED", ("imported_ahead",))
    monkeypatch.setattr(sitecustomize, "_IDLE_S", 0.0)
    sitecustomize._preload_while_idle()
    assert ("imported_ahead" in sys.modules) == is_preloaded


@pytest.mark.ray
def test_no_worker_of_ray_has_loaded_what_it_does_not_use(ray_head: Path) -> None:
    import ray

    @ray.remote(num_cpus=0)  # idle workers hold the CPUs
    def seen() -> tuple[set[str], set[str], str]:
        before = set(sys.modules)
        import jsonschema
        import requests

        assert not jsonschema.Draft202012Validator({"type": "string"}).is_valid(1)
        assert requests.Session().adapters
        return before, set(sys.modules), os.environ.get("PYTHONPATH", "")

    before, after, path = ray.get(seen.remote())
    assert "ray.runtime_env" in before
    assert not before & {"jsonschema", "requests", "ray.autoscaler.sdk"}
    assert {"jsonschema", "requests.sessions"} < after
    assert not [name for name in after if name.split(".")[0] == "lark"]
    assert FOLDER not in path
