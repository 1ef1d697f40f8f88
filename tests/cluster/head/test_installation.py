"""Processes of another virtual environment, or of other code, are others."""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.cluster.head.installation import (
    PACKAGE,
    can_attach,
    code_version,
    installation_id,
    ray_and_python,
    ray_import_path,
    runtime_environment,
)
from workbench.foundation.errors import RunError

RECORD = {"python": sys.executable, "package": str(PACKAGE), "versions": ray_and_python()}
SHOW = """
import json, sys
import ray
from workbench.cluster.head import attachment
from workbench.cluster.head.installation import installation_id
from workbench.cluster.workers.admission import Request
from workbench.cluster.workers.gang import Gang
attachment.connect()
gang = Gang.lease(Request("run"), timeout_s=120)
worker = gang._lease.workers[0]
found = ray.get(
    worker.__ray_call__.remote(lambda worker: (__import__("sys").executable, installation_id()))
)
print(json.dumps([*found, installation_id()]))
gang.release()
"""


def test_the_version_of_the_code_changes_with_every_edit(tmp_path: Path) -> None:
    (tmp_path / "room").mkdir()
    module = tmp_path / "room" / "module.py"
    module.write_text("a = 1")
    versions = [code_version(tmp_path)]
    module.write_text("a = 10")
    versions.append(code_version(tmp_path))
    os.utime(module, ns=(1, 1))
    versions.append(code_version(tmp_path))
    (tmp_path / "added.py").touch()
    versions.append(code_version(tmp_path))
    assert len(set(versions)) == 4

    (tmp_path / "notes.txt").touch()
    assert code_version(tmp_path) == versions[-1]


def test_a_head_of_the_same_installation_starts_processes_without_a_detour() -> None:
    assert runtime_environment(RECORD) is None
    assert runtime_environment({}) is None, "the record of an earlier version"


@pytest.mark.parametrize(
    "other", [{"python": "/other/bin/python"}, {"package": "/other/workbench"}]
)
def test_a_head_of_another_installation_starts_processes_of_this_one(other: dict[str, str]) -> None:
    assert runtime_environment(RECORD | other) == {
        "py_executable": sys.executable,
        "env_vars": {"PYTHONPATH": ray_import_path()},
    }


def test_a_head_of_other_versions_is_replaced_unless_it_is_in_use() -> None:
    other = RECORD | {"versions": "Ray 1.0 and Python 2.7"}
    assert can_attach(RECORD, idle_s=0.0)
    assert not can_attach(other, idle_s=60.0)
    with pytest.raises(RunError, match=r"uses Ray 1\.0 and Python 2\.7"):
        can_attach(other, idle_s=1.0)


@pytest.mark.ray
@pytest.mark.slow
def test_a_second_virtual_environment_has_workers_with_its_own_interpreter(
    ray_head: Path, tmp_path: Path
) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    packages = tmp_path / "venv" / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "same.pth").write_text("\n".join(site.getsitepackages()))
    home = Path(sys.base_prefix) / "bin"
    (tmp_path / "venv" / "pyvenv.cfg").write_text(f"home = {home}\n")

    done = subprocess.run(
        [str(python), "-c", SHOW],
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    executable, worker_id, caller_id = json.loads(done.stdout.splitlines()[-1])

    assert executable == str(python)
    assert worker_id == caller_id != installation_id()
