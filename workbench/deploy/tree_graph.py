"""Trees of the zoo as a node of a graph: the same trees and answers, computed by ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench.deploy.graph import ML, Graph
from workbench.models.trees import MIN_PROBABILITY, TreeEnsemble


def add_trees(graph: Graph, trees: TreeEnsemble, given: str) -> str:
    """Add trees; return the value of their outputs, (batch, num_outputs).

    Args:
        graph: The graph.
        trees: The trees.
        given: Float32 inputs, flat: (batch, features).
    """
    arrays = {
        name: getattr(trees, name).numpy()
        for name in ("feature", "left", "right", "value", "roots")
    }
    num_nodes, num_outputs = arrays["value"].shape
    is_leaf = arrays["left"] == np.arange(num_nodes)
    tree_ids = np.searchsorted(arrays["roots"], np.arange(num_nodes), side="right") - 1
    node_ids = np.arange(num_nodes) - arrays["roots"][tree_ids]
    inside = lambda name: np.where(is_leaf, 0, arrays[name] - arrays["roots"][tree_ids])  # noqa: E731
    leaves, outputs = np.nonzero(is_leaf[:, None] & (arrays["value"] != 0.0))
    # Of a single tree whose leaves are all 0 nothing would be left, which is no valid node.
    if not len(leaves):
        leaves, outputs = np.flatnonzero(is_leaf)[:1], np.zeros(1, dtype=np.int64)
    attributes: dict[str, Any] = {
        "n_targets": num_outputs,
        "aggregate_function": "SUM",
        "post_transform": "NONE",
        "nodes_treeids": tree_ids.tolist(),
        "nodes_nodeids": node_ids.tolist(),
        "nodes_featureids": arrays["feature"].tolist(),
        "nodes_modes": np.where(is_leaf, "LEAF", "BRANCH_LEQ").tolist(),
        "nodes_values": _lower_float32(trees.threshold.numpy(), is_leaf).tolist(),
        "nodes_truenodeids": inside("left").tolist(),
        "nodes_falsenodeids": inside("right").tolist(),
        "nodes_missing_value_tracks_true": np.zeros(num_nodes, dtype=np.int64).tolist(),
        "target_treeids": tree_ids[leaves].tolist(),
        "target_nodeids": node_ids[leaves].tolist(),
        "target_ids": outputs.tolist(),
        "target_weights": arrays["value"][leaves, outputs].astype(np.float32).tolist(),
    }
    grown = graph.add("TreeEnsembleRegressor", given, domain=ML, **attributes)
    # Not as the node's base_values: ONNX Runtime leaves those out of outputs to which no leaf adds
    # anything.
    total = graph.add("Add", grown, graph.constant(trees.start.numpy().astype(np.float32)))
    if not bool(trees.votes):
        return total
    return graph.add("Log", graph.add("Max", total, graph.constant(np.float32(MIN_PROBABILITY))))


def _lower_float32(thresholds: np.ndarray, is_leaf: np.ndarray) -> np.ndarray:
    """Return the largest float32 not above each threshold.

    Float32 inputs compare the same with it.
    """
    with np.errstate(over="ignore"):
        near = np.where(is_leaf, 0.0, thresholds).astype(np.float32)
    above = near.astype(np.float64) > np.where(is_leaf, 0.0, thresholds)
    return np.where(above, np.nextafter(near, np.float32(-np.inf)), near)
