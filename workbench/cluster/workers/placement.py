"""Options of Ray actors that reserve no CPU.

Ray places such actors anywhere unless a node is named.
"""

from __future__ import annotations

from typing import Any

from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

ON_HEAD: dict[str, Any] = {
    "num_cpus": 0,
    "resources": {"node:__internal_head__": 0.001},  # a soft node affinity is only a hint
    "scheduling_strategy": (
        "DEFAULT"
    ),  # not in its creator's placement group, with which it would die
}
"""Options of an actor on the node of the Ray head, so that it is lost only when the cluster is."""


def on_node(node_id: str) -> dict[str, Any]:
    """Return the options of an actor that runs on one node, and nowhere else.

    Args:
        node_id: Ray's id of the node.
    """
    return {
        "num_cpus": 0,
        "scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=False),
    }
