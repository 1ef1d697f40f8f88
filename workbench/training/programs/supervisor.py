"""A small process between a worker and the program of a trial, which leaves no process behind.

It is run as a file, with only the standard library, so that it starts within milliseconds. It
adopts every process that the program starts, even if its parent has ended, or if it has left the
program's process group. It ends all of them when the worker asks for it, when the program has
ended, and when the worker dies.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import time

STOP = b"s"
"""The worker writes this to stop the program. Closing the pipe kills it."""
LEFT_BEHIND_S = 1.0
"""How long processes that outlive the program may take to end before they are killed."""
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def main(control: int, status: int, grace_s: float, arguments: list[str]) -> None:
    """Run a program until it ends or must be stopped.

    Args:
        control: File descriptor of the worker's requests.
        status: File descriptor for the result: one JSON object.
        grace_s: Seconds between the request to stop and the kill.
        arguments: The program and its arguments.
    """
    libc = ctypes.CDLL(None)
    _prctl(libc, _PR_SET_CHILD_SUBREAPER, 1)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _note_signal)
    pid, error = _start(libc, arguments, (control, status, woken, wake))
    # Close our copies of the output. Its reader must see the end when the program's processes end.
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    if error is not None:
        _write(status, {"error": error})
        return
    code, was_killed = _watch(pid, control, woken, grace_s)
    left = _names_of(_descendants() - {pid})
    code = _end_descendants(pid, code, 0.0 if was_killed else LEFT_BEHIND_S)
    _write(status, {"code": code, "was_killed": was_killed, "left": left})


def _watch(pid: int, control: int, woken: int, grace_s: float) -> tuple[int | None, bool]:
    """Wait until the program ends or must be killed. Return its code, and whether to kill it."""
    deadline_s: float | None = None
    while True:
        code = _reap(pid)
        if code is not None:
            return code, False
        if _ends_now:
            return None, True
        left_s = deadline_s - time.monotonic() if deadline_s is not None else None
        if left_s is not None and left_s <= 0:
            return None, True
        ready, _, _ = select.select([control, woken], [], [], left_s)
        if woken in ready:
            os.read(woken, 4096)
        if control in ready:
            if not os.read(control, 1):  # the worker has closed the pipe, or has died
                return None, True
            if deadline_s is None:
                deadline_s = time.monotonic() + grace_s
                _signal_all(_descendants(), signal.SIGTERM)


_ends_now: list[int] = []


def _note_signal(number: int, _frame: object) -> None:
    if number != signal.SIGCHLD:
        _ends_now.append(number)


def _start(libc: ctypes.CDLL, arguments: list[str], own: tuple[int, ...]) -> tuple[int, str | None]:
    """Start the program in a new session. Return its process id, or why it could not start."""
    result, failed = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            # If the supervisor dies, the kernel kills the program. It may have died already.
            _prctl(libc, _PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(127)
            signal.set_wakeup_fd(-1)
            for number in (
                signal.SIGCHLD,
                signal.SIGTERM,
                signal.SIGINT,
                signal.SIGHUP,
                signal.SIGPIPE,
            ):
                signal.signal(number, signal.SIG_DFL)
            for descriptor in own:
                os.close(descriptor)
            os.execvp(arguments[0], arguments)
        except OSError as error:
            os.write(failed, f"{error.strerror}".encode())
        finally:
            os._exit(127)
    os.close(failed)
    # Python closes the other end in `execvp`, so this reads an error or the end of the pipe.
    error = os.read(result, 1000).decode()
    os.close(result)
    return pid, error or None


def _prctl(libc: ctypes.CDLL, option: int, value: int) -> None:
    # Only Linux has it. On other systems, processes that leave the process group are not found.
    with contextlib.suppress(AttributeError):
        libc.prctl(option, value, 0, 0, 0)


def _reap(pid: int) -> int | None:
    """Reap processes that have ended.

    Returns:
        The code of the program if it is one of them, or else None.
    """
    code = None
    with contextlib.suppress(ChildProcessError):
        while True:
            ended, status = os.waitpid(-1, os.WNOHANG)
            if not ended:
                break
            if ended == pid:
                code = os.waitstatus_to_exitcode(status)
    return code


def _end_descendants(pid: int, code: int | None, patience_s: float) -> int | None:
    """Terminate, then kill, every process below this one, however fast it starts others."""
    if left := _descendants():
        _signal_all(left, signal.SIGTERM)
    deadline_s = time.monotonic() + patience_s
    # Look again after each round, because a process may start another one before it is killed.
    while left := _descendants():
        if time.monotonic() >= deadline_s:
            _signal_all(left, signal.SIGKILL)
        time.sleep(0.005)
        code = _reap(pid) if code is None else (_reap(0) or code)
    return code


def _descendants() -> set[int]:
    """Return every process below this one."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdecimal():
            with contextlib.suppress(OSError, ValueError), open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]
                # Zombies of other parents count as ended. Our own must still be reaped.
                if state != b"Z" or int(parent) == os.getpid():
                    parents[int(name)] = int(parent)
    below: set[int] = set()
    new = {os.getpid()}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new} - below
        below |= new
    return below


def _signal_all(pids: set[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def _names_of(pids: set[int]) -> list[str]:
    """Return the names of processes that are still alive."""
    names: set[str] = set()
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
            before, _, after = file.read().rpartition(b")")
            if after.split()[0] != b"Z":
                names.add(before.partition(b"(")[2].decode(errors="replace"))
    return sorted(names)


def _write(status: int, result: dict[str, object]) -> None:
    with contextlib.suppress(OSError):  # the worker has died
        os.write(status, json.dumps(result).encode())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4:])
