"""One server of shards on each node of the cluster, for runs whose data is at a URL.

It is an actor that reserves no CPU and has the environment variables of the run. It starts when a
trial on its node or a server on another node first needs it, and ends when no process has been
connected for a long time. `workbench.data` decides which server reads which shards.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any

import ray
from ray.exceptions import RayError

from workbench.cluster.head.attachment import NAMESPACE
from workbench.cluster.workers.caller_environment import CallerEnvironment, this_environment
from workbench.cluster.workers.nodes import on_node
from workbench.data.cache import cache_folder
from workbench.data.shard_server import Endpoint, ShardServer, find_server_by

START_TIMEOUT_S = 60.0
NODES_FRESH_S = 10.0
IDLE_S = 300.0
"""How long a server waits for the next process that reads."""


class NodeServer:
    """The server of one node, in an actor on that node."""

    def __init__(self, name: str, environment: CallerEnvironment) -> None:
        """Start to answer.

        Args:
            name: The name of all servers with the same environment.
            environment: The environment of the run.
        """
        environment.enter()
        self._name, self._environment = name, environment
        self._known: dict[str, Endpoint] = {}
        self._listed_s = float("-inf")
        self._listing = threading.Lock()
        self._server = ShardServer(
            cache_folder(), host=ray.util.get_node_ip_address(), others=self._find_others
        )
        threading.Thread(target=self._end_when_idle, daemon=True).start()

    def endpoint(self) -> Endpoint:
        """Return where it answers."""
        return self._server.endpoint

    def _find_others(self) -> list[Endpoint]:
        """Return the servers of all nodes. A node that does not answer in time is skipped."""
        with self._listing:
            if time.monotonic() - self._listed_s > NODES_FRESH_S:
                nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
                pending = {node: _server_on(node, self._name, self._environment) for node in nodes}
                ray.wait(list(pending.values()), num_returns=len(pending), timeout=START_TIMEOUT_S)
                self._known = {}
                for node, reference in pending.items():
                    try:
                        self._known[node] = ray.get(reference, timeout=0.1)
                    except RayError:
                        continue
                self._listed_s = time.monotonic()
            return list(self._known.values())

    def _end_when_idle(self) -> None:
        while self._server.idle_s < IDLE_S:
            time.sleep(IDLE_S / 10)
        os._exit(0)


def use_own() -> None:
    """Let this process read data behind a URL by the server of its node."""
    find_server_by(find_own)


def find_own() -> Endpoint:
    """Return the server of the node of this process, which is started if there is none.

    Raises:
        RayError: If it does not start.
    """
    environment = this_environment()
    node = ray.get_runtime_context().get_node_id()
    return ray.get(
        _server_on(node, f"workbench-shards-{environment.digest()[:16]}", environment),
        timeout=START_TIMEOUT_S,
    )


def _server_on(node_id: str, name: str, environment: CallerEnvironment) -> Any:
    actor: Any = (
        ray.remote(NodeServer)
        .options(
            name=f"{name}-{node_id}",
            namespace=NAMESPACE,
            lifetime="detached",
            get_if_exists=True,
            max_concurrency=8,
            **on_node(node_id),
        )
        .remote(name, environment)
    )
    return actor.endpoint.remote()
