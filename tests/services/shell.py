"""The command line, as somebody at a terminal uses it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from workbench.cli.entry import run_command


class Shell:
    """Runs commands: in this process, or in one of their own."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def __call__(self, *words: str | Path) -> tuple[int, str, str]:
        self._capsys.readouterr()
        code = run_command([str(word) for word in words])
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err

    def json(self, *words: str) -> Any:
        code, out, err = self(*words, "--json")
        assert code == 0, err
        return json.loads(out, parse_constant=lambda text: pytest.fail(f"{text} is no JSON"))

    def process(self, *words: str, **settings: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "workbench", *words],
            text=True,
            env=dict(os.environ),
            cwd=self.folder,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **settings},
        )


def run_without(libraries: str, *commands: Sequence[str], may_fail: bool = False) -> str:
    """Run commands in a new interpreter, check that none loads a library of a list, and return
    their output.

    Args:
        libraries: Names of modules, separated by spaces.
        commands: Each without the name of the program.
        may_fail: Whether they may exit with another status than 0, as some do for a run that
            failed.
    """
    program = (
        "import sys\nfrom workbench.cli.entry import run_command\n"
        f"for words in {[list(words) for words in commands]!r}:\n"
        f"    assert run_command(words) == 0 or {may_fail}\n"
        f"    heavy = sorted(set({libraries.split()!r}) & set(sys.modules))\n"
        "    assert heavy == [], (words, heavy)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
