"""Starts programs with torch loaded, by forking them from a process that has done nothing else.

Loading torch takes seconds, and a form describes its model after every change. The process to fork
from starts with the first program, holds no user code, and ends with this process or after some
idle minutes. This works only on Linux, because libraries do not survive a fork elsewhere.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping
from typing import NoReturn

IS_POSSIBLE = sys.platform == "linux"
IDLE_S = 300.0
_NUM_STREAMS = 5  # request, standard input, output and error, status
_MAX_NAME_BYTES = 256
_WITHOUT_VALUES = ("capacity", "memory_estimate", "model_summary")
"""Those that compute without values, for which torch imports its compiler.

That takes as long as torch.
"""


class NotStartedError(Exception):
    """The process to fork from cannot be started or has ended. The program has not run."""


class _Template:
    """The process that programs are forked from, and the socket on which it takes requests."""

    def __init__(self) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                # -P: no module of the current folder takes the place of a library
                [sys.executable, "-P", "-m", __name__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
                start_new_session=True,
            )

    def end(self) -> None:
        self.control.close()
        self.process.kill()
        self.process.wait()


_lock = threading.Lock()
_template: _Template | None = None


def run(
    module: str, text: str, *, environment: Mapping[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run a module as a program (`python -m MODULE`) and wait for its end.

    Args:
        module: The module.
        text: Its standard input.
        environment: All of its environment variables.
        timeout_s: Seconds after which it is killed.

    Raises:
        subprocess.TimeoutExpired: If it takes longer.
        NotStartedError: If there is no process to fork from.
    """
    request = json.dumps(
        {"module": module, "environment": dict(environment), "folder": os.getcwd()}
    )
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(4)]
        for file, content in zip(files, (request, text), strict=False):
            file.write(content.encode())
            file.seek(0)
        status, their_status = os.pipe()
        stack.callback(os.close, status)
        try:
            _send(module, [*(file.fileno() for file in files), their_status])
        finally:
            os.close(their_status)
        code = _wait(status, module, timeout_s)
        outputs = []
        for file in files[2:]:
            file.seek(0)
            outputs.append(file.read().decode(errors="replace"))
    return subprocess.CompletedProcess([module], code, *outputs)


def _send(module: str, streams: list[int]) -> None:
    """Hand the streams of a program to the process that is forked.

    Start that process where it has ended.
    """
    global _template
    with _lock:
        for _ in range(2):
            if _template is None:
                _template = _Template()
            try:
                socket.send_fds(_template.control, [module.encode()], streams)
            except OSError:  # it was idle for long
                _template.end()
                _template = None
            else:
                return
    raise NotStartedError


def _wait(status: int, module: str, timeout_s: float) -> int:
    """Return the exit status of a program.

    Kill it after the time, or where the wait is interrupted.
    """
    until, written = time.monotonic() + timeout_s, b""
    try:
        while written.count(b"\n") < 2:
            ready, _, _ = select.select([status], [], [], max(until - time.monotonic(), 0))
            if not ready:
                raise subprocess.TimeoutExpired([module], timeout_s)
            piece = os.read(status, 64)
            if not piece:
                raise NotStartedError
            written += piece
    except BaseException:
        if b"\n" in written:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(int(written.split(b"\n")[0]), signal.SIGKILL)
        raise
    return int(written.split(b"\n")[1])


@atexit.register
def _end_template() -> None:
    if _template is not None:
        _template.end()


def _serve(control: socket.socket) -> None:
    """Fork a program for each request, until the other side has gone or was idle for long."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    control.settimeout(IDLE_S)
    with contextlib.suppress(TimeoutError):
        while True:
            module, streams, _flags, _address = socket.recv_fds(
                control, _MAX_NAME_BYTES, _NUM_STREAMS
            )
            if not module:
                return
            load_for(module.decode())
            if os.fork() == 0:
                control.close()
                _supervise(streams)
            for stream in streams:
                os.close(stream)


def load_for(module: str) -> None:
    """Load the other modules of a program when it is first wanted, for all later forks.

    Args:
        module: The module of the program.
    """
    if module.rpartition(".")[2] in _WITHOUT_VALUES:
        importlib.import_module("torch._dynamo")


def _supervise(streams: list[int]) -> NoReturn:
    """Fork the program, then write its process id and its exit status.

    Kill it where nobody waits for it.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    status = streams[-1]
    program = os.fork()
    if program == 0:
        os.close(status)
        os.setsid()
        os._exit(_become_program(streams[0], streams[1:4]))
    os.write(status, f"{program}\n".encode())
    watched = select.poll()
    watched.register(os.pidfd_open(program), select.POLLIN)
    watched.register(status, 0)  # an error is reported once the other side is closed
    if any(source == status for source, _ in watched.poll()):
        os.kill(program, signal.SIGKILL)
        # It has no process group yet, and no children.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program, signal.SIGKILL)
    _, ended = os.waitpid(program, 0)
    os.write(status, f"{os.waitstatus_to_exitcode(ended)}\n".encode())
    os._exit(0)


def _become_program(request: int, streams: list[int]) -> int:
    """Run the requested module with its environment, folder and standard streams.

    Return its exit status.
    """
    with os.fdopen(request) as file:
        wanted = json.load(file)
    os.environ.clear()
    os.environ.update(wanted["environment"])
    with contextlib.suppress(OSError):  # the folder was removed meanwhile
        os.chdir(wanted["folder"])
    sys.path.insert(0, wanted["folder"])
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")
    try:
        runpy.run_module(wanted["module"], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    return code


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
