"""Starts programs with their modules loaded, by forking them from a template process.

Loading torch takes seconds, and a form describes its model after every change. The template starts
with the first program and loads what a program names, but no user code. It ends with this process,
or after a few idle minutes. This works only on Linux: on other systems, libraries break after a
fork.
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
from collections.abc import Mapping, Sequence
from typing import NoReturn

IS_POSSIBLE = sys.platform == "linux"
IDLE_S = 300.0
_NUM_STREAMS = 5  # request, standard input, output and error, status
_MAX_NAMES_BYTES = 1024


class NotStartedError(Exception):
    """The template process cannot be started or has ended. The program has not run."""


class _Template:
    """The process that programs are forked from, and the socket for requests to it."""

    def __init__(self) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                # -P: a module in the current folder must not hide a library
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
    module: str,
    text: str,
    *,
    environment: Mapping[str, str],
    timeout_s: float,
    load: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Run a module as a program (`python -m MODULE`) and wait for its end.

    Args:
        module: The module.
        text: Its standard input.
        environment: All of its environment variables.
        timeout_s: Seconds after which it is killed.
        load: Modules that the template process loads first, once for all programs. They may include
            this one.

    Raises:
        subprocess.TimeoutExpired: If it takes longer.
        NotStartedError: If there is no template process.
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
            _send(load, [*(file.fileno() for file in files), their_status])
        finally:
            os.close(their_status)
        code = _wait(status, module, timeout_s)
        outputs = []
        for file in files[2:]:
            file.seek(0)
            outputs.append(file.read().decode(errors="replace"))
    return subprocess.CompletedProcess([module], code, *outputs)


def _send(load: Sequence[str], streams: list[int]) -> None:
    """Send what a program needs to the template process. Start the template if needed.

    Args:
        load: Modules to load.
        streams: The streams of the program.
    """
    names = " ".join(load).encode() or b" "  # an empty message says that this side is gone
    global _template
    with _lock:
        for _ in range(2):
            if _template is None:
                _template = _Template()
            try:
                socket.send_fds(_template.control, [names], streams)
            except OSError:  # it has ended after its idle time
                _template.end()
                _template = None
            else:
                return
    raise NotStartedError


def _wait(status: int, module: str, timeout_s: float) -> int:
    """Return the exit status of a program.

    The program is killed if it takes too long, or if this wait is interrupted.
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
    """Fork a program for each request, until the other side is gone or idle for long."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended children do not become zombies
    control.settimeout(IDLE_S)
    with contextlib.suppress(TimeoutError):
        while True:
            names, streams, _flags, _address = socket.recv_fds(
                control, _MAX_NAMES_BYTES, _NUM_STREAMS
            )
            if not names:
                return
            for name in names.decode().split():
                with contextlib.suppress(ImportError):  # the program will say so
                    importlib.import_module(name)
            # The child supervises the program, so that this process can serve the next request.
            if os.fork() == 0:
                control.close()
                _supervise(streams)
            for stream in streams:
                os.close(stream)


def _supervise(streams: list[int]) -> NoReturn:
    """Fork the program, then write its process id and its exit status.

    The program is killed if nobody waits for it any more.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    status = streams[-1]
    program = os.fork()
    if program == 0:
        # Only the supervisor writes the status. If the program kept the pipe open, the reader would
        # not notice that the supervisor has ended.
        os.close(status)
        os.setsid()
        os._exit(_become_program(streams[0], streams[1:4]))
    os.write(status, f"{program}\n".encode())
    watched = select.poll()
    watched.register(os.pidfd_open(program), select.POLLIN)
    watched.register(status, 0)  # reports an error when the other side is closed
    if any(source == status for source, _ in watched.poll()):
        os.kill(program, signal.SIGKILL)
        # Its children are in its process group. Very early, it has neither.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program, signal.SIGKILL)
    _, ended = os.waitpid(program, 0)
    os.write(status, f"{os.waitstatus_to_exitcode(ended)}\n".encode())
    os._exit(0)


def _become_program(request: int, streams: list[int]) -> int:
    """Run the requested module with its environment, folder and standard streams.

    Returns:
        Its exit status.
    """
    with os.fdopen(request) as file:
        wanted = json.load(file)
    os.environ.clear()
    os.environ.update(wanted["environment"])
    with contextlib.suppress(OSError):  # the folder has been removed
        os.chdir(wanted["folder"])
    sys.path.insert(0, wanted["folder"])
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")
    sys.modules.pop(wanted["module"], None)  # the template has loaded it, but not run it
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
