"""Walks trees row by row with scikit-learn's compiled code, which is far faster than tensors are.

A step of all rows in tensors waits for the deepest tree, and copies an index for each row and tree.
All trees are joined to one of scikit-learn's: its first splits ask for the number of the tree,
which is an extra feature. So each prediction is a single call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

# Few rows are repeated for each tree and walked in one call. Of more rows, all walk tree by tree,
# so that the nodes of a tree stay in the processor's cache.
_MAX_REPEATED_NUMBERS = 200_000


class Nodes(Protocol):
    """The trees of `TreeEnsemble`, of which each attribute is a tensor."""

    feature: Any
    threshold: Any
    missing_left: Any
    left: Any
    right: Any
    value: Any
    roots: Any


@dataclass(frozen=True)
class TreeWalk:
    """Trees that were joined, with what their leaves add.

    Attributes:
        joined: A tree of scikit-learn.
        value: What each node adds to each output.
        num_trees: Number of trees.
        num_features: Number of features that the trees look at, counted from the first.
    """

    joined: Any
    value: np.ndarray
    num_trees: int
    num_features: int

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Return the sum of all leaves that rows come to, (rows, outputs) as float64.

        Args:
            rows: (rows, features) as float32. A missing number is NaN.
        """
        width = self.num_features + 1
        if len(rows) * self.num_trees * width <= _MAX_REPEATED_NUMBERS:
            return self._all_at_once(rows)
        given = np.empty((len(rows), width), dtype=np.float32)
        given[:, :-1] = rows[:, : self.num_features]
        total = np.zeros((len(rows), self.value.shape[1]))
        for number in range(self.num_trees):
            given[:, -1] = number
            total += self.value[self._leaves(given)]
        return total

    def _all_at_once(self, rows: np.ndarray) -> np.ndarray:
        given = np.empty((len(rows), self.num_trees, self.num_features + 1), dtype=np.float32)
        given[:, :, :-1] = rows[:, None, : self.num_features]
        given[:, :, -1] = np.arange(self.num_trees)
        leaves = self._leaves(given.reshape(-1, given.shape[-1]))
        added = self.value[leaves].reshape(len(rows), self.num_trees, -1)
        return added.sum(axis=1, dtype=np.float64)

    def _leaves(self, given: np.ndarray) -> np.ndarray:
        # The nodes that choose a tree come before all others.
        return self.joined.apply(given) - (self.num_trees - 1)


def walk_of(trees: Nodes) -> TreeWalk | None:
    """Return a fast walk through trees, or None if this release of scikit-learn has none.

    Args:
        trees: The trees, on the CPU.
    """
    try:
        from sklearn.tree._tree import NODE_DTYPE, Tree
    except ImportError:
        return None
    needed = {"left_child", "right_child", "feature", "threshold", "missing_go_to_left"}
    if not needed <= set(NODE_DTYPE.names or ()):
        return None
    left, right, feature, roots = (
        getattr(trees, name).numpy() for name in ("left", "right", "feature", "roots")
    )
    num_choices = len(roots) - 1
    num_features = int(feature.max(initial=0)) + 1
    nodes: Any = np.zeros(num_choices + len(left), dtype=NODE_DTYPE)
    choices, others = nodes[:num_choices], nodes[num_choices:]
    is_leaf = left == np.arange(len(left))
    others["left_child"] = np.where(is_leaf, -1, left + num_choices)
    others["right_child"] = np.where(is_leaf, -1, right + num_choices)
    others["feature"] = np.where(is_leaf, -2, feature)
    others["threshold"] = trees.threshold.numpy()
    others["missing_go_to_left"] = trees.missing_left.numpy()
    _add_choices(choices, num_choices + roots, num_features)
    joined = Tree(num_features + 1, np.ones(1, dtype=np.intp), 1)
    values = np.zeros((len(nodes), 1, 1))
    try:
        joined.__setstate__(
            {"max_depth": 0, "node_count": len(nodes), "nodes": nodes, "values": values}
        )
    except (TypeError, ValueError):
        return None
    return TreeWalk(joined, trees.value.numpy(), len(roots), num_features)


def _add_choices(choices: np.ndarray, roots: np.ndarray, feature: int) -> None:
    """Write the nodes that lead to the root of the tree whose number is a feature."""
    count = 0
    spans: list[tuple[int, int, int, str]] = [(0, len(roots), -1, "")]
    while spans:
        first, end, parent, side = spans.pop()
        place = int(roots[first])
        if end - first > 1:
            place, count = count, count + 1
            middle = (first + end) // 2
            choices[place]["feature"] = feature
            choices[place]["threshold"] = middle - 0.5
            spans += [
                (middle, end, place, "right_child"),
                (first, middle, place, "left_child"),
            ]
        if parent >= 0:
            choices[parent][side] = place
