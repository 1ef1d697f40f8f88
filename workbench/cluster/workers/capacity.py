"""How many workers of an experiment a cluster holds, and what each uses.

Leasing is left to the pool.
"""

from __future__ import annotations

from dataclasses import dataclass

from workbench.cluster.workers.admission import Placement, Shape
from workbench.experiment import Experiment
from workbench.hardware.resources import ClusterInventory

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

    @property
    def has_full_nodes(self) -> bool:
        """Whether there are workers on several nodes, one of which holds several."""
        return 1 < sum(number > 0 for number in self.workers_per_node) < self.num_workers


def capacity_of(experiment: Experiment, cluster: ClusterInventory) -> Capacity:
    """Decide what one worker uses, and count how many there can be.

    Args:
        experiment: `gpus_per_worker: auto` means one where the cluster has GPUs, or the part of one
            that `per_gpu` says, but none for a function that does not say it.
        cluster: The cluster.
    """
    resources = experiment.resources
    gpus = resources.gpus_of_worker
    if resources.gpus_per_worker == "auto":
        wants_one = experiment.trains_model or experiment.command is not None or gpus != "auto"
        wanted = 1.0 if gpus == "auto" else gpus
        gpus = wanted if wants_one and cluster.num_gpus >= 1 else 0.0
    assert gpus != "auto"
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


def trials_at_once(experiment: Experiment, capacity: Capacity) -> int:
    """Return how many trials run at the same time at most.

    Args:
        experiment: Its concurrency and its number of trials limit that.
        capacity: How many workers there can be.
    """
    concurrency, trials = experiment.resources.concurrency, experiment.max_configurations()
    most = capacity.num_workers if concurrency == "auto" else concurrency
    return most if trials is None else min(most, trials * experiment.repeats)


def free_cores_of(
    experiment: Experiment, cluster: ClusterInventory, *, is_alone: bool = False
) -> int:
    """Count the CPU cores that each worker may use besides its own, while most trials run.

    Args:
        experiment: Its concurrency and its number of trials limit how many run at once.
        cluster: The cluster. The node with the fewest cores per worker counts.
        is_alone: Count as if only one trial ran at a time.
    """
    capacity = capacity_of(experiment, cluster)
    at_once = 1 if is_alone else trials_at_once(experiment, capacity)
    most = at_once * (experiment.plan.decided.workers or 1)
    spare = [
        int(node.num_cpus / min(count, most) - capacity.shape.cpus)
        for node, count in zip(cluster.nodes, capacity.workers_per_node, strict=True)
        if count > 0
    ]
    return max(0, min(spare, default=0))
