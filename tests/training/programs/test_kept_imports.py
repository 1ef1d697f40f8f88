"""Real interpreters that run kept code, after the files on the disk have been edited."""

from __future__ import annotations

import json
import marshal
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workbench.cluster.remote.code_archive import unpack
from workbench.cluster.remote.code_origin import Origin
from workbench.cluster.remote.kept_code import keep
from workbench.experiment import Experiment
from workbench.training.programs.kept_imports import (
    INDEX,
    MANIFEST,
    SEEN_VARIABLE,
    KeptFiles,
    variables,
)
from workbench.training.programs.kept_scripts import kept_scripts

SCRIPT = """
from __future__ import annotations
import inspect, multiprocessing, pathlib, sys
import lib
from pkg.sub import deep

def version():
    return "main 1"

def of_child(_):
    return f"{version()}, {lib.NAME}"

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print("child", pool.map(of_child, [0])[0])
    print("here", version(), lib.NAME, deep.NAME, inspect.getsource(version).strip()[-8:])
    print("place", __file__, sys.path[0], sys.argv, __spec__, __package__)
    print("beside", pathlib.Path(__file__).with_name("beside.txt").read_text())
    if "--fail" in sys.argv:
        lib.fail()
"""
FILES = {
    "train.py": SCRIPT,
    "lib.py": "NAME = 'lib 1'\n\n\ndef fail():\n    raise ValueError(NAME)  # as kept\n",
    "pkg/__init__.py": "",
    "pkg/sub/__init__.py": "",
    "pkg/sub/deep.py": "NAME = 'deep 1'\n",
    "pkg/start.py": (
        "from .sub import deep\nimport lib\nprint('here', __name__, deep.NAME, lib.NAME)\n"
    ),
    "beside.txt": "data",
    "run.sh": '#!/bin/sh\ncd "$(dirname "$0")"\necho shell 1\nexec "$PYTHON" train.py "$@"\n',
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "work"
    for name, content in FILES.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(content)
    return place


def kept_in(folder: Path, command: str) -> Path:
    experiment = Experiment(
        command=f"{command} {{x}}",
        objectives=[{"metric": "loss", "goal": "minimize"}],
        search={"x": {"choices": [1, 2]}},
    )
    code = keep(experiment, Origin(str(folder)))
    assert code is not None
    unpack(code.content, folder.parent / "kept")
    return folder.parent / "kept"


def edit(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.suffix in (".py", ".sh"):
            path.write_text(path.read_text().replace("1", "2").replace("as kept", "edited"))


def run(folder: Path, kept: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHON": sys.executable}
    return subprocess.run(
        arguments,
        cwd=folder,
        env=environment | variables(str(kept), environment),
        text=True,
        capture_output=True,
        check=False,
    )


def test_a_script_runs_as_it_was_kept_with_all_that_it_imports(folder: Path) -> None:
    kept = kept_in(folder, "python train.py")
    edit(folder)
    ended = run(folder, kept, sys.executable, "train.py", "--fail")
    assert ended.stdout.splitlines() == [
        "child main 1, lib 1",
        'here main 1 lib 1 deep 1 "main 1"',
        f"place {folder / 'train.py'} {folder} ['train.py', '--fail'] None None",
        "beside data",
    ]
    lines = ended.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    # Nothing of how it is served.
    assert lines[1].startswith(f'  File "{folder / "train.py"}", line ')
    assert "raise ValueError(NAME)  # as kept" in ended.stderr
    assert lines[-1] == "ValueError: lib 1"


def test_a_script_that_was_not_edited_runs_like_any_other(folder: Path) -> None:
    kept = kept_in(folder, "python train.py")
    (folder / "lib.py").write_text("NAME = 'lib 2'\n")
    assert "here main 1 lib 1" in run(folder, kept, sys.executable, "train.py").stdout


def test_a_module_is_started_from_the_copy(folder: Path) -> None:
    kept = kept_in(folder, "python -m pkg.start")
    edit(folder)
    ended = run(folder, kept, sys.executable, "-m", "pkg.start")
    assert ended.stdout == "here __main__ deep 1 lib 1\n", ended.stderr


def test_modules_that_are_gone_or_new_do_not_matter(folder: Path) -> None:
    kept = kept_in(folder, "python train.py")
    (folder / "lib.py").unlink()
    (folder / "train.py").unlink()
    (folder / "pkg" / "sub" / "deep.py").rename(folder / "pkg" / "sub" / "other.py")
    ended = run(folder, kept, sys.executable, "train.py")
    assert "here main 1 lib 1 deep 1" in ended.stdout, ended.stderr


def test_a_shell_script_and_the_python_below_it_run_as_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = kept_in(folder, "sh run.sh")
    edit(folder)
    monkeypatch.chdir(folder)
    for name, value in variables(str(kept), os.environ).items():
        monkeypatch.setenv(name, value)
    with kept_scripts(["sh", "run.sh"]) as arguments:
        assert len(list(folder.glob(".run-kept-*"))) == 1
        ended = run(folder, kept, *arguments)
    assert "shell 1" in ended.stdout, ended.stderr
    assert "here main 1 lib 1" in ended.stdout
    assert list(folder.glob(".run-kept-*")) == []


def test_a_command_that_sets_where_python_imports_from_runs_as_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["env", "PYTHONPATH=..", "ROUND=1", sys.executable, "train.py"]
    kept = kept_in(folder, " ".join(command))
    (folder.parent / "above.py").write_text("")
    edit(folder)
    monkeypatch.setenv("WORKBENCH_KEPT_CODE", str(kept))
    with kept_scripts(command) as arguments:
        ended = run(folder, kept, *arguments)
        found = run(folder, kept, *arguments[:-1], "-c", "import above")
    assert "here main 1 lib 1" in ended.stdout, ended.stderr
    assert found.returncode == 0, "the folder of the user still counts"


@pytest.fixture
def startup(tmp_path: Path) -> Path:
    place = tmp_path / "startup of the user"
    place.mkdir()
    (place / "sitecustomize.py").write_text("print('startup of the user')\n")
    return place


def test_a_startup_file_of_the_user_still_runs(folder: Path, startup: Path) -> None:
    kept = kept_in(folder, "python train.py")
    environment = {**os.environ, "PYTHONPATH": str(startup)}
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys; print([entry for entry in sys.path if {str(kept)!r} in entry])",
        ],
        env=environment | variables(str(kept), environment),
        text=True,
        capture_output=True,
        check=True,
    )
    assert done.stdout == "startup of the user\n[]\n"


def test_without_its_copy_no_program_runs_other_code(folder: Path) -> None:
    kept = kept_in(folder, "python train.py")
    (kept / "index.bin").unlink()
    ended = run(folder, kept, sys.executable, "train.py")
    assert ended.returncode == 1
    assert "the kept code of the run cannot be used" in ended.stderr


@pytest.mark.parametrize(
    "index_of_another_version",
    [
        pytest.param(lambda manifest: {**manifest, "directory": ""}, id="without the names"),
        pytest.param(lambda manifest: {"format": 99}, id="of a newer version"),
    ],
)
def test_code_that_another_version_packed_is_read_from_its_manifest(
    folder: Path, index_of_another_version: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    kept = kept_in(folder, "python train.py")
    own = KeptFiles(str(kept))
    manifest = json.loads((kept / MANIFEST).read_text())
    (kept / INDEX).write_bytes(marshal.dumps(index_of_another_version(manifest), 2))
    edit(folder)
    read = KeptFiles(str(kept))
    assert (read.names, read.tops, read.paths) == (own.names, own.tops, own.paths)
    assert b"lib 1" in read.content(str(folder / "lib.py"))


@pytest.mark.parametrize(
    ("before", "is_served"),
    [
        ([sys.executable], True),
        ([sys.executable, "-I"], False),
        (["env", "-i", sys.executable], False),
    ],
)
def test_a_program_shows_that_kept_code_reaches_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, before: list[str], is_served: bool
) -> None:
    kept = kept_in(folder, "python train.py")
    seen = folder / "seen"
    monkeypatch.setenv(SEEN_VARIABLE, str(seen))
    (folder / "only.py").write_text("print(1)\n")
    run(folder, kept, *before, "only.py")
    assert not seen.exists()  # it runs nothing that was kept
    run(folder, kept, *before, "train.py")
    assert seen.exists() is is_served
