"""The environment variables that torchrun sets, for functions and libraries that read them.

`accelerate.Accelerator()`, the trainers of other libraries and `init_process_group()` find the
workers of a trial through them. They are set for one trial and then restored, because the process
goes on to the next.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Any, Protocol

import torch

from workbench.training.strategies.group import Group

NAMES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "NODE_RANK",
    "GROUP_WORLD_SIZE",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
)


@contextlib.contextmanager
def torchrun_variables(group: Group, host: str) -> Iterator[None]:
    """Set the variables for as long as the context lasts; every worker must enter it.

    Args:
        group: The group of the trial.
        host: Address of rank 0's machine, as the others see it.
    """
    before = {name: os.environ.get(name) for name in NAMES}
    os.environ.update(variables_of(group, host))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class Companions(Protocol):
    """The workers of a trial, as far as the variables depend on them."""

    rank: int
    num_workers: int

    def gather(self, content: Any) -> list[Any]:
        """Return the `content` of every worker, by rank."""
        ...

    def broadcast(self, content: Any) -> Any:
        """Return the `content` of rank 0."""
        ...


def variables_of(group: Companions, host: str) -> dict[str, str]:
    """Return the variables by name; every worker must call it.

    `LOCAL_RANK` chooses the device in all scripts, so where a worker sees only its own GPU it is 0.
    """
    names = group.gather(socket.gethostname())
    nodes = list(dict.fromkeys(names))
    node = names[group.rank]
    local_rank = names[: group.rank].count(node)
    num_devices = torch.cuda.device_count()
    node_rank = str(nodes.index(node))
    return {
        "RANK": str(group.rank),
        "WORLD_SIZE": str(group.num_workers),
        "LOCAL_RANK": str(min(local_rank, num_devices - 1) if num_devices else local_rank),
        "LOCAL_WORLD_SIZE": str(names.count(node)),
        "GROUP_RANK": node_rank,
        "NODE_RANK": node_rank,
        "GROUP_WORLD_SIZE": str(len(nodes)),
        "ROLE_RANK": str(group.rank),
        "ROLE_WORLD_SIZE": str(group.num_workers),
        "MASTER_ADDR": host,
        "MASTER_PORT": str(group.broadcast(_free_port(host) if group.rank == 0 else None)),
    }


def _free_port(host: str) -> int:
    """Return a port on which rank 0 can open another meeting point, should the function want
    one.
    """
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]
