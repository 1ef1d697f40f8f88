"""Recognises a process again, and whether it is still alive.

Pids are reused, so a process is identified by its pid, the boot, the pid namespace and its start
time, all from /proc. Without /proc, only a missing pid is conclusive. Nothing is known about
processes of other machines.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

_START_FIELD = 19
"""The place of the start time in /proc/PID/stat, counted from the state."""


def boot_id() -> str | None:
    """Return the id of this start of the machine, or None without /proc.

    No change of the clock changes it.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None


def start_of(pid: int) -> str | None:
    """Return when a process started, in clock ticks since the boot, or None if it has ended.

    A process that has ended may be listed for long, if its parent does not reap it.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command's name is in parentheses and may contain anything, even spaces.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[_START_FIELD]


def describe_process(pid: int) -> str | None:
    """Return the boot, pid namespace and start time of a process, or None without /proc."""
    start, namespace = start_of(pid), _read_namespace()
    return f"{namespace} {start}" if start and namespace else None


def is_known_dead(pid: int, host: str, described: str | None) -> bool:
    """Return whether a process has certainly ended. The arguments are explained in `is_alive`."""
    return is_alive(pid, host, described) is False


def is_alive(pid: int, host: str, described: str | None) -> bool | None:
    """Return whether a process is alive, even if it is suspended.

    Args:
        pid: Its pid.
        host: The name of its machine.
        described: The result of `describe_process` when it was known to be alive.

    Returns:
        True or False, or None if that cannot be known, as for processes of other machines.
    """
    if described is not None:
        namespace, _, start = described.rpartition(" ")
        if namespace != _read_namespace():
            return None
        return start_of(pid) == start
    # On Windows, os.kill with signal 0 ends the process instead of checking it.
    if host != socket.gethostname() or sys.platform == "win32":
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it belongs to another user
    return None  # another process may have the pid by now


def _read_namespace() -> str | None:
    """Return the boot and the pid namespace of this process."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        return None
    boot = boot_id()
    return None if boot is None else f"{boot} {namespace}"
