"""How many workers of an experiment a cluster holds, and what each uses; leasing is left to the pool."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.experiment import Experiment
from workbench.resources import ClusterInventory
from workbench.workers.admission import Placement, Shape

_ROUNDING = 1e-6


@dataclass(frozen=True)
class Capacity:
    """What a cluster holds when nobody else uses it.

    Attributes:
        shape: What one worker uses.
        workers_per_node: How many workers each node holds.
        placement: Whether a gang is packed onto few nodes or spread over many.
    """

    shape: Shape
    workers_per_node: tuple[int, ...]
    placement: Placement = "pack"

    @property
    def num_workers(self) -> int:
        """Workers that all nodes hold together."""
        return sum(self.workers_per_node)


def capacity_of(experiment: Experiment, cluster: ClusterInventory) -> Capacity:
    """Decide what one worker uses, and count how many there can be.

    Args:
        experiment: `gpus_per_worker: auto` means one where the cluster has GPUs, but none for a function.
        cluster: The cluster.
    """
    resources = experiment.resources
    gpus = resources.gpus_per_worker
    if gpus == "auto":
        gpus = 1.0 if (experiment.trains_model or experiment.command) and cluster.num_gpus >= 1 else 0.0
    shape = Shape(resources.cpus_per_worker, gpus)
    return Capacity(
        shape,
        tuple(
            min(
                int(node.num_cpus // shape.cpus),
                int(node.num_gpus / shape.gpus + _ROUNDING) if shape.gpus else int(node.num_cpus),
            )
            for node in cluster.nodes
        ),
        "spread" if resources.placement == "spread" else "pack",
    )
