"""Finds what other users could reach: sockets of the local head, and files and folders on the disk.

Nothing is changed here. Files that must be private are created that way elsewhere.
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
        pid: The id of the process.
        host: The address that it listens on.
        port: The port.
    """

    process: str
    pid: int
    host: str
    port: int

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        address = ipaddress.ip_address(self.host)
        mapped = getattr(address, "ipv4_mapped", None)
        return (mapped or address).is_loopback


def listeners(keeper_pid: int) -> list[Listener]:
    """Return the sockets that the processes of a head listen on.

    Args:
        keeper_pid: The keeper of the head, as `local_head.status` returns it.
    """
    listening: list[Listener] = []
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
        listening += [
            Listener(name, process.pid, connection.laddr.ip, connection.laddr.port)
            for connection in connections
            if connection.status == psutil.CONN_LISTEN
        ]
    return listening


def readable_by_others(paths: Iterable[Path]) -> list[Path]:
    """Return the files and folders that other users of this machine could read.

    Args:
        paths: Files and folders to check. Those that do not exist are skipped.
    """
    return [
        path for path in paths if path.exists() and any(_is_open_to(path, who) for who in _CLASSES)
    ]


_CLASSES = ((stat.S_IRGRP, stat.S_IXGRP), (stat.S_IROTH, stat.S_IXOTH))


def _is_open_to(path: Path, who: tuple[int, int]) -> bool:
    """Return whether a class of users may read a file or folder, and reach it."""
    may_read, may_pass = who
    resolved = path.resolve()
    try:
        return bool(resolved.stat().st_mode & may_read) and all(
            folder.stat().st_mode & may_pass for folder in resolved.parents
        )
    except OSError:  # it belongs to another user
        return False
