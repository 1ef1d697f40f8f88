"""Watch the cluster of a run: nodes that join or leave, and why the run waits for workers."""

from __future__ import annotations

import time
from collections.abc import Collection

from workbench.cluster.workers.pool_client import Obstacle, obstacle
from workbench.foundation.errors import ResourcesError
from workbench.foundation.events import Noted
from workbench.foundation.events.runs import write_waiting_note
from workbench.hardware.resources import ClusterInventory, NodeInventory, cluster_inventory
from workbench.sweeps.cluster import Share, share_of
from workbench.sweeps.ledger import Ledger

CHECK_EVERY_S = 2.0
REPORT_AFTER_S = 10.0
"""How long a run waits before it reports that: workers may take this long to start."""
HELD_UP_AFTER_S = 3.0
"""How long it waits before it reports that others hold the workers that it requests."""


class Hardware:
    """Tracks the nodes of the cluster for one run."""

    def __init__(self, ledger: Ledger) -> None:
        """Track nodes for the run of `ledger`, and record changes there."""
        self._ledger = ledger
        self._nodes: dict[str, NodeInventory] = {}
        self._next_check_s = 0.0

    def begin(self, *, patience_s: float) -> tuple[ClusterInventory, Share]:
        """Note the current nodes, and return them with what the run may use of them.

        Args:
            patience_s: How long to wait if there are too few nodes, in seconds. After a node is
                lost, its driver is restarted before the node is back.

        Raises:
            ResourcesError: If the cluster cannot hold one trial even when empty.
        """
        until_s, is_noted = time.monotonic() + patience_s, False
        while True:
            cluster = cluster_inventory()
            self._nodes = _by_id(cluster)
            self._next_check_s = time.monotonic() + CHECK_EVERY_S
            try:
                return cluster, share_of(
                    self._ledger.run_id, self._ledger.history.in_force, cluster
                )
            except ResourcesError as error:
                if time.monotonic() >= until_s:
                    raise
                if not is_noted:
                    self._ledger.record(
                        Noted(level="warning", message=write_waiting_note("nodes", error.problem))
                    )
                is_noted = True
                time.sleep(CHECK_EVERY_S)

    def has_changed(self) -> bool:
        """Return whether nodes joined or left, and record it.

        Checks only every `CHECK_EVERY_S` seconds.
        """
        if time.monotonic() < self._next_check_s:
            return False
        self._next_check_s = time.monotonic() + CHECK_EVERY_S
        before, self._nodes = self._nodes, _by_id(cluster_inventory())
        joined = [node for node_id, node in self._nodes.items() if node_id not in before]
        left = [node for node_id, node in before.items() if node_id not in self._nodes]
        notes = [
            Noted(level="info", message=f"{_describe(node)} joined the cluster") for node in joined
        ]
        notes += [
            Noted(level="warning", message=f"{_describe(node)} left the cluster") for node in left
        ]
        if notes:
            self._ledger.record(*notes)
        return bool(notes)


def _by_id(cluster: ClusterInventory) -> dict[str, NodeInventory]:
    return {node.node_id: node for node in cluster.nodes}


def _describe(node: NodeInventory) -> str:
    gpus = f" and {node.num_gpus:g} GPUs" if node.num_gpus else ""
    return f"node {node.host} ({node.node_id[:8]}) with {node.num_cpus:g} CPUs{gpus}"


class Waiting:
    """Watches the started trials of one run, and reports when none of them gets workers."""

    def __init__(self, ledger: Ledger) -> None:
        """Watch the run of `ledger`. Notes are recorded there."""
        self._ledger = ledger
        self._report_s: float | None = None
        self._start_s = 0.0  # until then, workers may start
        self._reported: Obstacle | None = None

    def tick(self, trials: Collection[int]) -> None:
        """Check whether the run waits, and report what for.

        Args:
            trials: Numbers of the trials that were started and have not ended.
        """
        known, now_s = self._ledger.history.trials, time.monotonic()
        if not trials or any(known[number].state != "waiting" for number in trials):
            self._report_s, self._reported = None, None
        elif self._report_s is None:
            self._report_s = now_s + HELD_UP_AFTER_S
            self._start_s = now_s + REPORT_AFTER_S
        elif now_s >= self._report_s:
            self._report_s = now_s + REPORT_AFTER_S
            in_the_way = obstacle(self._ledger.run_id)
            if in_the_way is None or in_the_way.is_like(self._reported):
                return
            is_held_up = in_the_way.num_ahead is not None  # else its workers are starting
            if not is_held_up and now_s < self._start_s:
                self._report_s = self._start_s
                return
            self._reported = in_the_way
            message = write_waiting_note("workers", str(in_the_way))
            self._ledger.record(Noted(level="info", message=message, is_held_up=is_held_up))
