"""The resources of the connected Ray cluster by node, or of a cluster on this machine."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.foundation.errors import ResourcesError
from workbench.hardware.resources.inventory import inventory

# Ray derives the type from the driver's name in the same way, so measurements have the same names.
_GPU_TYPE = re.compile(r"\w+\s+((?:[A-Z]+\s+)*[A-Z0-9]*\d[A-Z0-9]*)")


@dataclass(frozen=True)
class NodeInventory:
    """One node of the cluster.

    Attributes:
        node_id: Ray's name for it.
        host: Its host name.
        num_cpus: CPUs that Ray may lease there.
        num_gpus: GPUs that Ray may lease there.
        memory_bytes: Memory that Ray may lease there.
        gpu_type: Ray's name for the GPUs, if it has one.
    """

    node_id: str
    host: str
    num_cpus: float
    num_gpus: float
    memory_bytes: int
    gpu_type: str | None = None


@dataclass(frozen=True)
class ClusterInventory:
    """All nodes that are alive."""

    nodes: tuple[NodeInventory, ...]

    @property
    def num_cpus(self) -> float:
        """CPUs of all nodes."""
        return sum(node.num_cpus for node in self.nodes)

    @property
    def num_gpus(self) -> float:
        """GPUs of all nodes."""
        return sum(node.num_gpus for node in self.nodes)


def cluster_inventory() -> ClusterInventory:
    """Return the inventory of the cluster that this process is connected to.

    Raises:
        ResourcesError: If it is not connected to a cluster.
    """
    import ray

    if not ray.is_initialized():
        raise ResourcesError(
            "this process is not connected to a cluster",
            next_step="Connect to one, or start a local one.",
        )
    return read_nodes(ray.nodes())


def loaded_ray() -> Any:
    """Return Ray if this process has loaded it, or None. The import would take long."""
    if "ray" not in sys.modules:
        return None
    import ray  # blocks while another thread is importing it

    return ray


def likely_cluster() -> ClusterInventory:
    """Return the connected cluster, or the one that this machine alone would form."""
    ray = loaded_ray()
    if ray is not None and ray.is_initialized():
        return cluster_inventory()
    here = inventory()
    named = _GPU_TYPE.match(here.gpus[0].name) if here.gpus else None
    node = NodeInventory(
        node_id=here.host,
        host=here.host,
        num_cpus=float(here.num_cpus),
        num_gpus=float(len(here.gpus)),
        memory_bytes=here.memory_bytes,
        gpu_type=named.group(1).replace(" ", "-") if named else None,
    )
    return ClusterInventory((node,))


def read_nodes(nodes: Sequence[Mapping[str, Any]]) -> ClusterInventory:
    """Convert the result of `ray.nodes()` to an inventory of the live nodes."""
    alive = [node for node in nodes if node.get("Alive")]
    return ClusterInventory(tuple(_read_node(node) for node in alive))


def _read_node(node: Mapping[str, Any]) -> NodeInventory:
    resources: Mapping[str, float] = node.get("Resources", {})
    prefix = "accelerator_type:"
    types = [name.removeprefix(prefix) for name in resources if name.startswith(prefix)]
    return NodeInventory(
        node_id=str(node["NodeID"]),
        host=str(node.get("NodeManagerHostname") or node.get("NodeManagerAddress", "")),
        num_cpus=float(resources.get("CPU", 0.0)),
        num_gpus=float(resources.get("GPU", 0.0)),
        memory_bytes=int(resources.get("memory", 0)),
        gpu_type=types[0] if types else None,
    )
