"""The doctor notices the other project that is also imported as `workbench`."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from workbench.cli.doctor import OTHER_DISTRIBUTION, find_packages
from workbench.foundation.errors import install_command

ROOT = Path(__file__).parents[2]
METADATA = f"Metadata-Version: 2.1\nName: {OTHER_DISTRIBUTION}\nVersion: 0.8.506\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The interpreter of an environment that has the other project and sees our packages."""
    folder = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    purelib = next((folder / "lib").glob("python3*")) / "site-packages"
    (purelib / "ours.pth").write_text(sysconfig.get_path("purelib") + "\n")
    wheel = tmp_path / f"{OTHER_DISTRIBUTION}-0.8.506-py3-none-any.whl"
    info = f"{OTHER_DISTRIBUTION}-0.8.506.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("workbench/__init__.py", "")
        archive.writestr(f"{info}/METADATA", METADATA)
        archive.writestr(f"{info}/WHEEL", WHEEL)
        archive.writestr(f"{info}/RECORD", f"workbench/__init__.py,,\n{info}/RECORD,,\n")
    python = folder / "bin" / "python"
    pip(python, "install", "--no-deps", "--no-index", str(wheel))
    return python


def pip(python: Path, *words: str) -> None:
    subprocess.run([python, "-m", "pip", "--quiet", *words], check=True)


def findings(python: Path) -> dict[str, dict[str, str]]:
    done = subprocess.run(
        [python, "-m", "workbench", "doctor", "--json"],
        cwd=ROOT,  # our package comes first on the path
        capture_output=True,
        text=True,
        check=False,
    )
    return {item["subject"]: item for item in json.loads(done.stdout)["findings"]}


@pytest.mark.slow
def test_the_doctor_says_how_to_get_rid_of_the_other_project(python: Path) -> None:
    finding = findings(python)[OTHER_DISTRIBUTION]

    assert finding["state"] == "broken"
    assert finding["message"].startswith("0.8.506 is installed.")
    assert finding["fix"].startswith(f"pip uninstall --yes {OTHER_DISTRIBUTION} && ")
    assert install_command("all") in finding["fix"]

    pip(python, "uninstall", "--yes", OTHER_DISTRIBUTION)
    assert OTHER_DISTRIBUTION not in findings(python)


def test_the_other_project_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / f"{OTHER_DISTRIBUTION}-0.8.506.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(METADATA)
    assert OTHER_DISTRIBUTION not in {item.subject for item in find_packages()}

    monkeypatch.syspath_prepend(tmp_path)
    assert {item.subject: item.state for item in find_packages()}[OTHER_DISTRIBUTION] == "broken"
