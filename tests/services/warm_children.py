"""Children of the workbench that start with their libraries loaded: forked from a process that has them.

`workbench.probes.child_process` starts a program for each request, which imports torch for seconds before it
answers. Apart from that all stays the same here: a process of its own, with its own standard streams.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PRELOADED = "tests.services.warm_children_imports"
_CONTEXT = multiprocessing.get_context("forkserver")


class WarmSubprocess:
    """Stands in for the module `subprocess` where a program `python -m MODULE` is run."""

    TimeoutExpired = subprocess.TimeoutExpired

    @staticmethod
    def run(
        command: Sequence[str], *, input: str, timeout: float, env: Mapping[str, str], **_options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a module as a program in a process that is forked, and return what it printed."""
        _executable, _m, module = command
        _CONTEXT.set_forkserver_preload([PRELOADED])
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "in").write_text(input)
            child = _CONTEXT.Process(target=_run, args=(module, name, dict(env)))
            child.start()
            child.join(timeout)
            if child.is_alive():
                child.kill()
                child.join()
                raise subprocess.TimeoutExpired(command, timeout)
            said = [(folder / stream).read_text() for stream in ("out", "err")]
        assert child.exitcode is not None
        return subprocess.CompletedProcess(list(command), child.exitcode, *said)


def _run(module: str, folder: str, environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    with contextlib.ExitStack() as stack:
        streams = [
            stack.enter_context(Path(folder, name).open(mode))
            for name, mode in (("in", "r"), ("out", "w"), ("err", "w"))
        ]
        for number, stream in enumerate(streams):
            os.dup2(stream.fileno(), number)
        sys.stdin, sys.stdout, sys.stderr = streams
        runpy.run_module(module, run_name="__main__", alter_sys=True)
