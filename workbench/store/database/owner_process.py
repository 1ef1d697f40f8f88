"""Find out whether the process that owns a lease is still alive, if possible.

Pids are reused, so a process is also identified by the boot, the pid namespace and its start time,
all from /proc. Without /proc, only a missing pid is conclusive. Nothing is known about processes of
other machines, so their heartbeat decides.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path


def describe_process(pid: int) -> str | None:
    """Return the boot, pid namespace and start time of a process, or None without /proc."""
    status = _read_status(pid)
    place = _read_place()
    if status and place:
        return f"{place} {status[1]}"
    return None


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
        place, _, start = described.rpartition(" ")
        if place != _read_place():
            return None
        status = _read_status(pid)
        return status is not None and status[1] == start and status[0] not in "ZX"
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


def _read_status(pid: int) -> tuple[str, str] | None:
    """Return the state letter and the start time in clock ticks since the boot."""
    try:
        # The command's name is in parentheses and may contain anything, even spaces.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], fields[19]


def _read_place() -> str | None:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None
