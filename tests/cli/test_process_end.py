"""How the process of a command ends: at once, but not before its work is done."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import workbench as wb

_BEFORE = """
import atexit, threading
atexit.register(lambda: print("function at exit"))
threading.Thread(target=lambda: (threading.main_thread().join(), print("thread"))).start()
from workbench.cli import main
main()
"""


@pytest.mark.parametrize(("words", "code"), [(["--version"], 0), (["show", "nothing"], 1)])
def test_threads_and_functions_at_exit_are_waited_for(
    tmp_path: Path, words: list[str], code: int
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _BEFORE, "--store", str(tmp_path / "runs.sqlite"), *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == code, ended.stderr
    assert ended.stdout.splitlines()[-2:] == ["thread", "function at exit"]


def test_a_store_is_one_whole_file_when_a_command_has_ended(tmp_path: Path) -> None:
    address = str(tmp_path / "runs.sqlite")
    wb.Store.open(address).close()
    words = [sys.executable, "-m", "workbench", "--store", address, "list"]
    subprocess.run(words, capture_output=True, check=True)
    assert {path.name for path in tmp_path.iterdir()} <= {"runs.sqlite", "runs.sqlite.lock"}
    assert (tmp_path / "runs.sqlite").stat().st_size
