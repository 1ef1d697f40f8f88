"""The packages that are built: one version, and everything inside that an installation needs."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import workbench
from tests.builders.installations import installed_with
from workbench.experiment.yaml_file import read_yaml_file
from workbench.version import DISTRIBUTION

ROOT = Path(__file__).parents[1]
BUILT = {
    "workbench/views/server/static/view.js",
    "workbench/views/server/static/view.css",
    "workbench/views/widgets/static/widget.js",
    "workbench/views/widgets/static/form.js",
    "workbench/views/widgets/static/tiers.js",
}
EXPERIMENT = """
model: mlp
data: breast_cancer
objectives: [{metric: val_loss, goal: minimize}]
search: {lr: {low: 0.001, high: 0.1, log: true}}
training: {epochs: 2}
budget: {trials: 2}
"""

IMPORT_EACH = """
import importlib, json, sys
for name in json.load(sys.stdin):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing != name and not name.startswith(missing + "."):
            print(json.dumps([name, missing]))
    except ImportError as error:
        print(json.dumps([name, str(error)]))
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a wheel and a source distribution of this tree."""
    folder = tmp_path_factory.mktemp("packages")
    with_npm = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", folder],
        cwd=ROOT,
        check=True,
        capture_output=True,
        env={**os.environ, "PATH": with_npm},
    )
    return folder


def test_there_is_one_version(packages: Path) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    front_end = json.loads((ROOT / "extensions" / "package.json").read_text())
    locked = json.loads((ROOT / "extensions" / "package-lock.json").read_text())

    assert "version" in settings["project"]["dynamic"]
    assert front_end["version"] == locked["version"] == workbench.__version__
    assert {path.name for path in packages.iterdir()} >= {
        f"tuning_workbench-{workbench.__version__}.tar.gz",
        f"tuning_workbench-{workbench.__version__}-py3-none-any.whl",
    }


def test_both_packages_hold_the_built_front_end(packages: Path) -> None:
    (wheel,) = packages.glob("*.whl")
    (sdist,) = packages.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as opened:
        in_wheel = set(opened.namelist())
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}

    assert BUILT | {"workbench/search_spaces/digits.yaml"} <= in_wheel
    assert BUILT | {"extensions/labextension/package.json"} <= in_sdist
    assert any(name.endswith("labextensions/@workbench/lab/package.json") for name in in_wheel)
    assert not any(name.startswith(("docs/_build", "extensions/node_modules")) for name in in_sdist)


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Path]:
    """The programs of an empty virtual environment, and no Node on the path.

    Ends the head that is left.
    """
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "environment"], check=True)
    programs = tmp_path / "environment" / "bin"
    yield programs
    if (programs / "workbench").exists():
        subprocess.run(
            [programs / "workbench", "shutdown"], check=False, env=alone(programs, tmp_path)
        )


def alone(programs: Path, folder: Path) -> dict[str, str]:
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("PYTHON", "WORKBENCH", "RAY"))
    }
    own = {"PATH": f"{programs}:/usr/bin:/bin", "WORKBENCH_HOME": str(folder / "home")}
    return {
        **kept,
        **own,
        "WORKBENCH_STORE": str(folder / "store.sqlite"),
        "RAY_USAGE_STATS_ENABLED": "0",
    }


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_each_package_installs_without_node_and_runs_a_sweep(
    packages: Path, installed: Path, tmp_path: Path
) -> None:
    (wheel,) = packages.glob("*.whl")
    (sdist,) = packages.glob("*.tar.gz")
    environment = alone(installed, tmp_path)
    work = tmp_path / "work"
    work.mkdir()
    (work / "small.yaml").write_text(EXPERIMENT)

    def run(*words: object) -> str:
        done = subprocess.run(
            [str(word) for word in words],
            cwd=work,
            env=environment,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    pip = [
        installed / "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--constraint",
        ROOT / "constraints.txt",
    ]
    for package, options in ((wheel, []), (sdist, ["--no-deps", "--force-reinstall"])):
        run(*pip, *options, package if options else f"{package}[all]")
        assert not any((installed / name).exists() for name in ("node", "npm"))
        assert workbench.__version__ in run(installed / "workbench", "--version")
        run(installed / "workbench", "sweep", "small.yaml")
        assert (
            json.loads(run(installed / "workbench", "show", "last", "--json"))["state"]
            == "complete"
        )
        labextension = (
            tmp_path / "environment/share/jupyter/labextensions/@workbench/lab/package.json"
        )
        assert labextension.exists()


@pytest.mark.parametrize("status", [0, 1])
def test_the_environment_says_what_is_installed_and_fails_as_pip_does(
    tmp_path: Path, status: int
) -> None:
    lines = [
        *(f"Collecting package{number}" for number in range(60)),
        "Downloading package1.whl (1 kB)",
        "Installing collected packages: one, two, three",
    ]
    pip = tmp_path / "bin" / "python"
    pip.parent.mkdir()
    pip.write_text(
        "#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines) + f"exit {status}\n"
    )
    pip.chmod(0o755)
    made = subprocess.run(
        ["make", "--no-print-directory", "env", f"VENV={tmp_path}", f"PYTHON={sys.executable}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "this takes a few minutes" in made.stdout
    shown = ["  25 packages found", "  50 packages found", "  installing 3 packages"]
    assert made.stdout.splitlines()[-3:] == shown
    assert (made.returncode == 0, (tmp_path / ".made").exists()) == (status == 0, status == 0)


def test_the_workflow_runs_what_anyone_can_run() -> None:
    workflow = read_yaml_file(ROOT / ".github" / "workflows" / "ci.yml")
    commands = {
        name: [step["run"] for step in job["steps"] if "run" in step]
        for name, job in workflow["jobs"].items()
    }

    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13"]
    assert commands == {
        "test": [".ci/run"],
        "slow": [".ci/run slow"],
        "compat": [".ci/run compat"],
    }
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_hooks_before_a_commit_use_installed_programs_only() -> None:
    document = read_yaml_file(ROOT / ".pre-commit-config.yaml")
    (repository,) = document["repos"]

    assert repository["repo"] == "local"
    for hook in repository["hooks"]:
        assert hook["language"] == "system"
        program = hook["entry"].split()[0]
        assert re.fullmatch(r"\.venv/bin/\w+", program)
        assert (Path(sys.executable).parent / Path(program).name).exists()


def test_the_changelog_has_the_version_and_fits_one_page() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    parts = re.findall(r"^### (.*)$", text, re.MULTILINE)

    assert re.search(
        rf"^## \[(Unreleased|{re.escape(workbench.__version__)})\]", text, re.MULTILINE
    )
    assert "Added" in parts
    first_release = re.split(r"^## ", text, flags=re.MULTILINE)[1]
    assert len(first_release.split()) <= 1500


def own_requirements(*extras: str) -> list[str]:
    """Return what `pip install 'tuning-workbench[EXTRAS]'` requires."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = list(project["dependencies"])
    for extra in extras:
        for text in project["optional-dependencies"][extra]:
            requirement = Requirement(text)
            requirements += (
                own_requirements(*requirement.extras)
                if requirement.name == DISTRIBUTION
                else [text]
            )
    return requirements


def imported_modules(libraries: set[str]) -> set[str]:
    """Return the modules of some libraries that the code of the workbench imports anywhere."""
    modules: set[str] = set()
    for path in (ROOT / "workbench").rglob("*.py"):
        text = path.read_text()
        if not any(library in text for library in libraries):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                modules |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                # `from ray.core.generated import node_manager_pb2_grpc` imports a module, other
                # names do not.
                modules |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in modules if name.partition(".")[0] in libraries}


@pytest.mark.slow
def test_what_is_imported_from_a_library_that_comes_in_parts_has_all_that_it_needs(
    tmp_path: Path,
) -> None:
    needed = [Requirement(text) for text in own_requirements("all")]
    modules = sorted(imported_modules({item.name for item in needed if item.extras}))
    assert "ray.core.generated.node_manager_pb2_grpc" in modules
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_EACH],
        input=json.dumps(modules),
        cwd=tmp_path,
        check=True,
        env=installed_with(map(str, needed), tmp_path),
        text=True,
        stdout=subprocess.PIPE,
    )
    lacking = dict(json.loads(line) for line in done.stdout.splitlines())

    in_other_parts = ("ray.serve",)
    assert {
        name: missing for name, missing in lacking.items() if not name.startswith(in_other_parts)
    } == {}
