"""JAX, with or without optax and flax: a function that reports steps and saves trees of arrays."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from workbench.bridges import Bridge, missing
from workbench.foundation.errors import RunError

try:  # if the library is missing, type checkers would import this file instead
    jax: Any = importlib.import_module("jax")
except ModuleNotFoundError as error:
    raise missing("jax") from error

Tree = TypeVar("Tree")


class TrialCallback(Bridge):
    """Reports a step when it is called, and saves its arguments, such as parameters."""

    def restore(self, tree: Tree) -> Tree:
        """Return the tree that an earlier attempt has saved, or else the given tree.

        Args:
            tree: The initial tree of arrays.

        Raises:
            RunError: If the saved tree has another structure.
        """
        if self.resume_from is None:
            return tree
        leaves, structure = jax.tree_util.tree_flatten(tree)
        with np.load(self.resume_from) as saved:
            arrays = [saved[str(index)] for index in range(len(saved.files))]
        if [np.shape(leaf) for leaf in leaves] != [array.shape for array in arrays]:
            raise RunError(
                f"{self.resume_from} has arrays of other shapes than the initial tree",
                next_step="Start a new trial, or pass a tree like the saved one.",
            )
        restored = [jax.numpy.asarray(array) for array in arrays]
        return jax.tree_util.tree_unflatten(structure, restored)

    def __call__(self, step: int, tree: Any, **metrics: Any) -> bool:
        """Report a step and save a tree.

        Args:
            step: Number of steps so far, including earlier attempts.
            tree: Everything that a resumed trial needs, as a tree of arrays.
            **metrics: Numbers by name.

        Returns:
            Whether the training should stop now.
        """
        return self.advance(step, metrics, _writer(tree), suffix=".npz")


def _writer(tree: Any) -> Callable[[str], object]:
    leaves = jax.tree_util.tree_leaves(tree)
    arrays = {str(index): np.asarray(leaf) for index, leaf in enumerate(leaves)}

    def write(path: str) -> None:
        with Path(path).open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)

    return write
