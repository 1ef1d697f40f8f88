"""The front end is built where it has to be, and only there."""

from __future__ import annotations

import fnmatch
import importlib.util
import os
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


def load_hook() -> ModuleType:
    path = ROOT / "extensions" / "build_hook.py"
    spec = importlib.util.spec_from_file_location("build_hook", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The hook, in a source tree of its own whose files are all built."""
    module = load_hook()
    built = tuple(tmp_path / path.relative_to(ROOT) for path in module.BUILT)
    front_end = tmp_path / "extensions"
    for path in (*built, front_end / "package.json", front_end / "src" / "lab" / "index.ts"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (1000.0, 1000.0))
    monkeypatch.setattr(module, "FRONT_END", front_end)
    monkeypatch.setattr(module, "BUILT", built)
    return module


def test_what_is_built_is_what_the_package_takes_along() -> None:
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    for path in load_hook().BUILT:
        name = path.relative_to(ROOT).as_posix()
        assert any(fnmatch.fnmatch(name, pattern) for pattern in package["artifacts"]), name
        assert (path.parents[1] / "__init__.py").exists() or "labextension" in name, name


def asked(hook: ModuleType, tmp_path: Path) -> list[str]:
    return hook.FrontEndBuild(str(tmp_path), {}, None, None, str(tmp_path), "wheel").dependencies()


def test_what_is_built_already_is_left_and_asks_for_nothing(hook, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", "")

    assert not hook.is_stale()
    assert asked(hook, tmp_path) == []


def test_a_changed_source_or_a_missing_file_is_built(hook) -> None:
    source = hook.FRONT_END / "src" / "lab" / "index.ts"
    os.utime(source, (2000.0, 2000.0))
    assert hook.is_stale()
    os.utime(source, (1000.0, 1000.0))
    hook.BUILT[-1].unlink()
    assert hook.is_stale()


def test_node_is_asked_for_only_where_there_is_none(hook, tmp_path, monkeypatch) -> None:
    hook.BUILT[0].unlink()
    npm = tmp_path / "bin" / "npm"
    npm.parent.mkdir()
    npm.write_text("#!/bin/sh\n")
    npm.chmod(0o755)

    monkeypatch.setenv("PATH", str(npm.parent))
    assert asked(hook, tmp_path) == []
    monkeypatch.setenv("PATH", "")
    assert asked(hook, tmp_path) == [hook.NODE]
    npm.write_text("#!/bin/sh\necho no such module >&2\nexit 1\n")  # of another environment
    monkeypatch.setenv("PATH", str(npm.parent))
    assert asked(hook, tmp_path) == [hook.NODE]


def test_a_build_that_fails_says_what_and_why(hook, tmp_path, monkeypatch) -> None:
    npm = tmp_path / "bin" / "npm"
    npm.parent.mkdir()
    npm.write_text("#!/bin/sh\necho no such registry\nexit 7\n")
    npm.chmod(0o755)

    monkeypatch.setenv("PATH", "")
    with pytest.raises(RuntimeError, match=r"there is no npm\. Install Node 20"):
        hook.build()
    monkeypatch.setenv("PATH", f"{npm.parent}:/bin")
    with pytest.raises(RuntimeError, match=r"(?s)npm ci failed in .*no such registry"):
        hook.build()
