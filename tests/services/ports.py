"""Ports that are free on this machine."""

from __future__ import annotations

import contextlib
import socket


def free_ports(number: int, address: str = "127.0.0.1") -> list[int]:
    """Return different ports on which nobody listens now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for item in sockets:
            item.bind((address, 0))
        return [item.getsockname()[1] for item in sockets]


def free_port() -> int:
    """Return a port on which nobody listens now."""
    return free_ports(1)[0]
