"""What of the workbench others could reach: sockets of the local head, and files and folders on the disk.

Only looks; what is private from the start is made so where it is made.
"""

from __future__ import annotations

import ipaddress
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True)
class Listener:
    """A socket that a process of the local head accepts connections on.

    Attributes:
        process: The name of the process.
        pid: Its number.
        host: The address that it listens on.
        port: The port.
    """

    process: str
    pid: int
    host: str
    port: int

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches it."""
        address = ipaddress.ip_address(self.host)
        mapped = getattr(address, "ipv4_mapped", None)
        return (mapped or address).is_loopback


def listeners(keeper_pid: int) -> list[Listener]:
    """Return what the processes of a head listen on.

    Args:
        keeper_pid: The process that keeps the head, as `head.status` names it.
    """
    found: list[Listener] = []
    try:
        keeper = psutil.Process(keeper_pid)
        processes = [keeper, *keeper.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
    for process in processes:
        try:
            connections = process.net_connections(kind="tcp")
            name = process.name()
        except (psutil.NoSuchProcess, psutil.AccessDenied):  # one that ends just now
            continue
        found += [
            Listener(name, process.pid, connection.laddr.ip, connection.laddr.port)
            for connection in connections
            if connection.status == psutil.CONN_LISTEN
        ]
    return found


def open_to_others(paths: Iterable[Path]) -> list[Path]:
    """Return which files and folders somebody else on this machine could read.

    Args:
        paths: Where to look; what is not there is left out.
    """
    return [path for path in paths if path.exists() and any(_is_open_to(path, who) for who in _CLASSES)]


_CLASSES = ((stat.S_IRGRP, stat.S_IXGRP), (stat.S_IROTH, stat.S_IXOTH))


def _is_open_to(path: Path, who: tuple[int, int]) -> bool:
    """Tell whether a class of others may read a file, or list a folder, and pass all folders above it."""
    may_read, may_pass = who
    resolved = path.resolve()
    try:
        return bool(resolved.stat().st_mode & may_read) and all(
            folder.stat().st_mode & may_pass for folder in resolved.parents
        )
    except OSError:  # what we cannot look at is somebody else's
        return False
