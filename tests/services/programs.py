"""Python programs that run beside a test and exchange lines with it.

Each is a process of its own, forked from one that has loaded the store: that takes longer than what
most of them do.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import textwrap
import traceback
from pathlib import Path
from typing import Any, NoReturn

_PREAMBLE = """
import json, os, signal, sys, time
from workbench.foundation.errors import WorkbenchError
from workbench.foundation.events import Noted, RunStateChanged, TrialReported
from workbench.store.database import Store

def note(n):
    return Noted(level="info", message=str(n))

def open_writer(url, run_id, lease_timeout_s=15.0):
    owner = dict(owner_pid=os.getpid(), owner_host="beside", lease_timeout_s=lease_timeout_s)
    return Store.open(url).writer(run_id, **owner)

def say(word):
    print(word, flush=True)
"""
_NUM_STREAMS = 3  # standard input and output, and status
_MAX_REQUEST_BYTES = 1 << 16


class Program:
    """A program beside the test that says words, one a line; several may run at once.

    Args:
        source: Its code; the names of the preamble are there.
        arguments: What it finds in `sys.argv`.
    """

    def __init__(self, source: str, arguments: tuple[str, ...]) -> None:
        request = {
            "source": _PREAMBLE + textwrap.dedent(source),
            "arguments": arguments,
            "environment": dict(os.environ),
            "folder": os.getcwd(),
        }
        their_input, ours = os.pipe()
        said, their_output = os.pipe()
        self._status, their_status = os.pipe()
        streams = [their_input, their_output, their_status]
        try:
            self.pid = _template().fork(json.dumps(request).encode(), streams)
        finally:
            for stream in streams:
                os.close(stream)
        self._input = os.fdopen(ours, "w", encoding="utf-8")
        self._output = os.fdopen(said, encoding="utf-8")

    def read_word(self) -> str:
        """Wait for the next word; empty when the program has ended."""
        return self._output.readline().strip()

    def read_words(self) -> list[str]:
        """Wait for the end and return all words that are left."""
        self._input.close()
        return self._output.read().splitlines()

    def tell(self, word: str) -> None:
        """Send a line."""
        self._input.write(f"{word}\n")
        self._input.flush()

    def send_signal(self, number: int) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def wait(self, timeout_s: float = 60.0) -> int:
        """Wait for the end and return the exit status; -1 if it was killed."""
        ready, _, _ = select.select([self._status], [], [], timeout_s)
        assert ready, f"program {self.pid} goes on"
        return int(os.read(self._status, 8) or -1)

    def end(self) -> None:
        """Kill it if it is still there, and wait for its end."""
        with contextlib.suppress(ProcessLookupError):
            self.send_signal(signal.SIGKILL)
        os.close(self._status)
        self._output.close()
        self._input.close()


class _Template:
    """The process that programs are forked from."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                cwd=Path(__file__).parents[2],
            )
        atexit.register(self._end)

    def fork(self, request: bytes, streams: list[int]) -> int:
        """Start a program with these streams and return the number of its process."""
        socket.send_fds(self._control, [request], streams)
        return int(self._control.recv(32))

    def _end(self) -> None:
        self._control.close()
        self._process.wait()


_templates: list[_Template] = []


def _template() -> _Template:
    if not _templates:
        _templates.append(_Template())
    return _templates[0]


def _serve(control: socket.socket) -> None:
    """Fork a program for each request until the other side is gone."""
    for name in (
        "workbench.store.database",
        "sqlalchemy.dialects.sqlite",
        "psycopg",
    ):
        with contextlib.suppress(ImportError):  # of psycopg: tests of PostgreSQL are then skipped
            importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # what has ended is gone at once
    while True:
        request, streams, _flags, _address = socket.recv_fds(
            control, _MAX_REQUEST_BYTES, _NUM_STREAMS
        )
        if not request:
            return
        pid = os.fork()
        if pid == 0:
            control.close()
            _carry_out(json.loads(request), *streams)
        for stream in streams:
            os.close(stream)
        control.send(str(pid).encode())


def _carry_out(
    request: dict[str, Any], their_input: int, their_output: int, status: int
) -> NoReturn:
    """Be the program; without a word about its status, it was killed."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for stream, number in ((their_input, 0), (their_output, 1)):
            os.dup2(stream, number)
            os.close(stream)
        sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        sys.argv = ["-c", *request["arguments"]]
        exec(request["source"], {"__name__": "__main__"})
        sys.stdout.flush()
        code = 0
    except BaseException:
        traceback.print_exc()
    os.write(status, str(code).encode())
    os._exit(code)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
