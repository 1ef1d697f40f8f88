"""The nodes of a run's cluster as they come and go: told in the run, and its driver uses what there is."""

from __future__ import annotations

import time

from workbench.errors import ResourcesError
from workbench.events import Noted
from workbench.resources import ClusterInventory, NodeInventory, cluster_inventory
from workbench.sweeps.cluster import Share, share_of
from workbench.sweeps.ledger import Ledger

LOOK_EVERY_S = 2.0


class Hardware:
    """Watches the cluster for one run."""

    def __init__(self, ledger: Ledger) -> None:
        """Watch for the run of `ledger`, and tell there."""
        self._ledger = ledger
        self._nodes: dict[str, NodeInventory] = {}
        self._look_s = 0.0

    def begin(self, *, patience_s: float) -> tuple[ClusterInventory, Share]:
        """Take what there is as known, and say what the run may use of it.

        Args:
            patience_s: How long to wait for nodes where there are too few: a driver that comes back from the
                loss of its node comes back sooner than the node.

        Raises:
            ResourcesError: If the cluster cannot hold one trial even when empty.
        """
        until_s, is_told = time.monotonic() + patience_s, False
        while True:
            cluster = cluster_inventory()
            self._nodes = _by_id(cluster)
            self._look_s = time.monotonic() + LOOK_EVERY_S
            try:
                return cluster, share_of(self._ledger.run_id, self._ledger.history.in_force, cluster)
            except ResourcesError as error:
                if time.monotonic() >= until_s:
                    raise
                if not is_told:
                    self._ledger.record(Noted(level="warning", message=f"waits for nodes: {error.problem}"))
                is_told = True
                time.sleep(LOOK_EVERY_S)

    def has_changed(self) -> bool:
        """Say, every `LOOK_EVERY_S`, whether nodes came or went, and tell of them."""
        if time.monotonic() < self._look_s:
            return False
        self._look_s = time.monotonic() + LOOK_EVERY_S
        before, self._nodes = self._nodes, _by_id(cluster_inventory())
        came = [node for node_id, node in self._nodes.items() if node_id not in before]
        went = [node for node_id, node in before.items() if node_id not in self._nodes]
        told = [Noted(level="info", message=f"{_describe(node)} joined the cluster") for node in came]
        told += [Noted(level="warning", message=f"{_describe(node)} left the cluster") for node in went]
        if told:
            self._ledger.record(*told)
        return bool(told)


def _by_id(cluster: ClusterInventory) -> dict[str, NodeInventory]:
    return {node.node_id: node for node in cluster.nodes}


def _describe(node: NodeInventory) -> str:
    gpus = f" and {node.num_gpus:g} GPUs" if node.num_gpus else ""
    return f"node {node.host} ({node.node_id[:8]}) with {node.num_cpus:g} CPUs{gpus}"
