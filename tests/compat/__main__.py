"""Install the workbench at an end of its ranges and run the core of the suite there.

`python -m tests.compat low` takes the lowest version of every package that `pyproject.toml` allows,
`high` the newest, and `light` the newest that `pip install tuning-workbench` needs without extras.
Each gets a virtual environment of its own, in a folder that is kept for the next time.

The ends of Python are 3.10 and 3.13, where they are installed; `--python` names another.
`--keep torch` takes a package as `constraints.txt` pins it, for machines on which its other
versions cannot be installed.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PYTHONS = {"low": "python3.10", "high": "python3.13", "light": "python3.13"}
TOOLS = (
    "flask",
    "flask-cors",
    "hypothesis",
    "jsonschema",
    "moto[s3]",
    "nbformat",
    "psycopg[binary]",
    "pytest>=8.3",
    "pytest-jupyter[server]",
    "pytest-rerunfailures",
    "pytest-timeout",
    "pytest-xdist",
)
LIGHT_TOOLS = (
    "hypothesis",
    "pytest>=8.3",
    "pytest-rerunfailures",
    "pytest-timeout",
    "pytest-xdist",
)
LIGHT_CORE = (
    "tests/experiment",
    "tests/foundation/test_errors.py",
    "tests/foundation/test_events.py",
    "tests/foundation/test_formatting.py",
    "tests/store/history/test_history.py",
    "tests/test_light_install.py",
    "tests/foundation/test_registry.py",
    "tests/experiment/test_space.py",
    "tests/cli/test_show.py",
    "tests/cli/test_run_list.py",
)
NEEDS_TRAIN = (
    "--ignore=tests/experiment/test_metric_declarations.py",
    "--deselect=tests/experiment/test_metric_of_another_package.py",
    "--deselect=tests/experiment/test_plan.py::test_a_dimension_that_is_declared_once_is_written_"
    "searched_advised_described_and_stored",
    "--deselect=tests/cli/test_show.py::test_check_summarises_a_table",
    "--deselect=tests/cli/test_show.py::test_a_note_has_no_marks_of_code_in_the_terminal",
)
"""Tests among `LIGHT_CORE` that compute, so that they need the libraries of the extra `train`."""
CORE = (
    *LIGHT_CORE,
    "tests/foundation/artifacts",
    "tests/data/test_tables.py",
    "tests/cluster/head",
    "tests/cluster/test_ray_internals.py",
    "tests/views/live_feed/test_feed.py",
    "tests/models/test_zoo.py",
    "tests/runs/plots",
    "tests/runs/test_sweeping.py",
    "tests/views/server/test_routes.py",
    "tests/store/database",
    "tests/search",
    "tests/sweeps/test_driver.py",
    "tests/sweeps/test_tune_internals.py",
    "tests/experiment/test_plan.py",
    "tests/training/test_gang_training.py",
    "tests/training/test_trial.py",
    "tests/cluster/workers/test_gang.py",
)


def main() -> int:
    """Install one end and test it; return the exit status of pytest, or of pip."""
    parser = argparse.ArgumentParser(prog="python -m tests.compat", description=__doc__)
    parser.add_argument("end", choices=PYTHONS)
    parser.add_argument("--python", help="use this interpreter")
    parser.add_argument(
        "--keep", default="", help="packages to take as constraints.txt pins them, by comma"
    )
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "workbench-compat"
    )
    parser.add_argument("tests", nargs="*", help="what to run instead of the core")
    arguments = parser.parse_intermixed_args()
    python = arguments.python or PYTHONS[arguments.end]
    if not _starts(python):
        print(f"{python} is not installed: {sys.executable} is used", file=sys.stderr)
        python = sys.executable
    keep = {name.strip() for name in arguments.keep.split(",") if name.strip()}
    programs = install(arguments.end, python, keep, arguments.folder)
    if programs is None:
        return 1
    core = arguments.tests or list(
        (*LIGHT_CORE, *NEEDS_TRAIN) if arguments.end == "light" else CORE
    )
    show = (
        "import platform, importlib.metadata as m; print(platform.python_version(), *sorted("
        "f'{d.name}={d.version}' for d in m.distributions() if d.name in %r))"
    )
    shown = {"torch", "ray", "optuna", "jupyterlab", "numpy", "pandas", "pydantic", "SQLAlchemy"}
    subprocess.run([programs / "python", "-c", show % shown], check=False)
    command = [programs / "python", "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
    return subprocess.run([*command, *core], cwd=ROOT, check=False).returncode


def _starts(python: str) -> bool:
    """Return whether an interpreter is there.

    Pyenv has programs for versions that are not chosen.
    """
    return (
        bool(shutil.which(python))
        and not subprocess.run([python, "-V"], capture_output=True).returncode
    )


def install(end: str, python: str, keep: set[str], folder: Path) -> Path | None:
    """Make or update the environment of an end.

    Return the folder of its programs, None if pip failed.
    """
    name = re.sub(r"\W+", "-", f"{end} {Path(python).name}")
    programs = folder / name / "bin"
    if not programs.exists():
        subprocess.run([python, "-m", "venv", folder / name], check=True)
    constraints = folder / f"{name}.txt"
    constraints.write_text("\n".join(constraints_of(end, keep)) + "\n")
    parts, tools = ("", LIGHT_TOOLS) if end == "light" else ("[all,cluster]", TOOLS)
    pip = [
        programs / "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--upgrade",
        "--constraint",
        constraints,
    ]
    done = subprocess.run([*pip, *tools, "--editable", f"{ROOT}{parts}"], check=False)
    return programs if done.returncode == 0 else None


def constraints_of(end: str, keep: set[str]) -> list[str]:
    """Return the constraints of an end, one a line.

    Args:
        end: "low", "high" or "light".
        keep: Packages that are taken as `constraints.txt` pins them.
    """
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line)
    kept = [f"{name}=={pins[name]}" for name in sorted(keep)]
    if end != "low":
        return kept
    lowest = {item.name: _lowest(item) for item in _requirements()}
    return kept + [f"{name}=={version}.*" for name, version in lowest.items() if name not in keep]


def _requirements() -> list[Requirement]:
    """Return what `pyproject.toml` needs for everything that the workbench does."""
    text = (ROOT / "pyproject.toml").read_text()
    wanted = re.findall(
        r"^(?:dependencies|train|lab) = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL
    )
    return [
        Requirement(text) for text in re.findall(r'^    "([^"]+)"', "".join(wanted), re.MULTILINE)
    ]


def _lowest(requirement: Requirement) -> str:
    [lowest] = [item.version for item in requirement.specifier if item.operator == ">="]
    return lowest


if __name__ == "__main__":
    sys.exit(main())
