"""Configurations of trees, which scikit-learn grows.

As those of `configurations`, they need it only then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import Field

from workbench.models.configurations import FittedConfiguration, NumExits

if TYPE_CHECKING:
    import numpy as np
    from torch import nn


class TreesConfiguration(FittedConfiguration):
    """A sum over trees, some of which may answer early."""

    num_trees: int = Field(
        100, ge=1, le=10_000, description="Number of trees; for each class, where many."
    )
    exits: NumExits = 0

    def build(
        self, *, input_shape: tuple[int, ...], num_outputs: int, vocabulary_size: int | None
    ) -> nn.Module:
        """Build the model as it is before it is fitted; see ModelConfiguration.build."""
        if vocabulary_size is not None or not input_shape:
            self.refuse(input_shape, vocabulary_size, "numbers of any shape")
        from workbench.models.tree_exits import check_number
        from workbench.models.trees import TreeEnsemble

        check_number(self.exits, self.num_trees)
        model = TreeEnsemble()
        model.num_exits = self.exits
        return model


class BoostedTreesConfiguration(TreesConfiguration):
    """Gradient-boosted trees on histograms, by scikit-learn."""

    name = "boosted_trees"

    shrinkage: float = Field(0.1, gt=0.0, le=1.0, description="Part of each tree that is added.")
    max_leaves: int = Field(31, ge=2, le=4096, description="Most leaves of a tree.")
    min_samples_leaf: int = Field(20, ge=1, le=1_000_000, description="Fewest samples in a leaf.")
    l2: float = Field(0.0, ge=0.0, description="L2 regularisation of the leaf values.")

    def describe(self, num_classes: int | None) -> str:
        """Say what will be grown; see FittedConfiguration.describe."""
        of_classes = ""
        if num_classes is not None and num_classes > 2:
            of_classes = (
                f" for each of {num_classes} classes, {self.num_trees * num_classes:,} in all"
            )
        return (
            f"{self.num_trees:,} boosted trees{of_classes}, of at most {self.max_leaves:,} leaves"
        )

    def grow(
        self,
        inputs: np.ndarray,
        targets: np.ndarray,
        *,
        num_classes: int | None,
        num_rounds: int,
        seed: int,
    ) -> Iterator[nn.Module]:
        """Fit the trees; see FittedConfiguration.grow."""
        from workbench.models.trees import grow_boosted

        return grow_boosted(
            self, inputs, targets, num_classes=num_classes, num_rounds=num_rounds, seed=seed
        )


class ForestConfiguration(TreesConfiguration):
    """Extremely randomised trees that vote, by scikit-learn."""

    name = "forest"

    num_trees: int = Field(200, ge=1, le=10_000, description="Number of trees.")
    min_samples_leaf: int = Field(1, ge=1, le=1_000_000, description="Fewest samples in a leaf.")
    features_per_split: float = Field(
        0.5, gt=0.0, le=1.0, description="Part of the features that each split may choose from."
    )

    def describe(self, num_classes: int | None) -> str:
        """Say what will be grown; see FittedConfiguration.describe."""
        what = "whose mean is the answer" if num_classes is None else "that vote"
        return f"{self.num_trees:,} randomised trees {what}"

    def grow(
        self,
        inputs: np.ndarray,
        targets: np.ndarray,
        *,
        num_classes: int | None,
        num_rounds: int,
        seed: int,
    ) -> Iterator[nn.Module]:
        """Fit the trees; see FittedConfiguration.grow."""
        from workbench.models.trees import grow_forest

        return grow_forest(
            self, inputs, targets, num_classes=num_classes, num_rounds=num_rounds, seed=seed
        )
