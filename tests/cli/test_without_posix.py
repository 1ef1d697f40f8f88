"""Commands that read, check and predict need nothing that only Linux and macOS have.

This shows what a Linux machine can show of Windows: the modules and functions that Windows lacks
are hidden from the workbench. Paths, consoles and processes of Windows are not tested.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.store.database import Store

ROOT = Path(__file__).parents[2]
HIDE = """
import builtins, multiprocessing, os, signal, subprocess, sys
import psutil  # which has a module of its own for Windows

GONE = {"fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"}
usual = builtins.__import__

def import_as_windows(name, globals=None, locals=None, fromlist=(), level=0):
    importer = (globals or {}).get("__name__", "")
    if level == 0 and importer.startswith("workbench") and name.partition(".")[0] in GONE:
        raise ModuleNotFoundError(f"{importer} imports {name}", name=name)
    return usual(name, globals, locals, fromlist, level)

builtins.__import__ = import_as_windows
for name in ("fork", "forkpty", "getpgid", "killpg", "setsid", "sched_getaffinity", "getloadavg"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGKILL", "SIGHUP", "SIGUSR1", "SIGCHLD", "SIGALRM"):
    if hasattr(signal, name):
        delattr(signal, name)

from workbench.cli import main

sys.argv = ["workbench", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["list", "--json"], "[]"),
        (["check", str(ROOT / "search_spaces/digits.yaml"), "--no-step"], "is valid"),
    ],
    ids=["list", "check"],
)
def test_a_command_works_without_what_windows_lacks(
    arguments: list[str], expected: str, tmp_path: Path
) -> None:
    path = str(tmp_path / "store.sqlite")
    Store.open(path).close()
    environment = os.environ | {"WORKBENCH_STORE": path}
    run = subprocess.run(
        [sys.executable, "-c", HIDE, *arguments],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert expected in run.stdout, run.stdout + run.stderr
