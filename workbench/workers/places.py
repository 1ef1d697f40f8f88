"""Where actors that use no CPU live: options for Ray, which gives such ones no place by itself."""

from __future__ import annotations

from typing import Any

from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

ON_HEAD: dict[str, Any] = {
    "num_cpus": 0,
    "resources": {"node:__internal_head__": 0.001},  # a soft affinity is no more than a hint
    "scheduling_strategy": "DEFAULT",  # not in the placement group of its maker, with which it would die
}
"""Options of an actor that lives on the node of Ray's head: what decides is lost only when all is lost."""


def on_node(node_id: str) -> dict[str, Any]:
    """Return the options of an actor that lives on one node, and nowhere else.

    Args:
        node_id: What Ray calls the node.
    """
    return {"num_cpus": 0, "scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=False)}
