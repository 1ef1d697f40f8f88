"""Which installation of the workbench this process runs: its interpreter and its code.

Processes that outlive the command that started them are shared only within one installation: after
an upgrade or an edit of the package, and in another virtual environment, others are started.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.cluster.head.ray_startup.sitecustomize import FOLDER
from workbench.foundation.errors import RunError

IN_USE_S = 15.0
"""A head that was used within this time may have runs. They mark it several times as often."""
PACKAGE = Path(__file__).resolve().parents[2]


@functools.cache
def installation_id() -> str:
    """Return a short name of the installation, as it was when this process first requested it."""
    parts = (os.path.dirname(sys.executable), str(PACKAGE), code_version())
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]


def code_version(package: Path = PACKAGE) -> str:
    """Return a digest that changes whenever a module of a package is edited, added or removed.

    Args:
        package: Its folder.
    """
    states = []
    for folder, folders, files in os.walk(package):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in files:
            if name.endswith(".py"):
                stat = os.stat(os.path.join(folder, name))
                states.append(
                    (os.path.relpath(folder, package), name, stat.st_size, stat.st_mtime_ns)
                )
    return hashlib.sha256(repr(sorted(states)).encode()).hexdigest()


def ray_and_python() -> str:
    """Return the versions that all processes of a Ray cluster must share, in words."""
    python = ".".join(platform.python_version_tuple()[:2])
    return f"Ray {importlib.metadata.version('ray')} and Python {python}"


def import_path() -> str:
    """Return the PYTHONPATH with which another process of this interpreter imports this code."""
    is_installed = not {"site-packages", "dist-packages"}.isdisjoint(PACKAGE.parts)
    source = () if is_installed else (str(PACKAGE.parent),)
    return os.pathsep.join(filter(None, (*source, os.environ.get("PYTHONPATH"))))


def ray_import_path() -> str:
    """Return the PYTHONPATH of a process of Ray, which starts faster with it."""
    return os.pathsep.join(filter(None, (FOLDER, import_path())))


def can_attach(record: Mapping[str, Any], idle_s: float) -> bool:
    """Return whether this process can attach to a local head.

    Args:
        record: What the head's keeper recorded, or nothing for an earlier version of the workbench.
        idle_s: Seconds since it was last used.

    Raises:
        RunError: If it cannot attach and the head is in use.
    """
    own_versions = ray_and_python()
    if record.get("versions", own_versions) == own_versions:
        return True
    if idle_s < IN_USE_S:
        raise RunError(
            f"the local Ray head uses {record['versions']} ({record['python']}), and this process"
            f" {own_versions}",
            next_step=(
                "Wait until the runs of the other environment have ended, or set WORKBENCH_HOME to "
                "another folder, which gets its own head."
            ),
        )
    return False


def runtime_environment(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return how to start processes of this installation on another's head, or None for its own.

    Args:
        record: What the head's keeper recorded.
    """
    is_same = os.path.dirname(record.get("python", sys.executable)) == os.path.dirname(
        sys.executable
    )
    if is_same and record.get("package", str(PACKAGE)) == str(PACKAGE):
        return None
    return {"py_executable": sys.executable, "env_vars": {"PYTHONPATH": ray_import_path()}}
