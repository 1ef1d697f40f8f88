"""Early exits of trees: a sum over trees answers after some of them, too.

Nothing is trained for it: the first trees of a boosted model are such a model, and those of a
forest vote like all of them. A part passes on its input and, behind it, the sum so far.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from workbench.foundation.errors import ExperimentError
from workbench.models.trees import MIN_PROBABILITY, TreeEnsemble

_NODE_VALUES = ("feature", "threshold", "value")


class TreeExits:
    """Trees in parts, after each of which they answer.

    Attributes:
        trees: All trees.
        parts: The trees of each stage, which sum up leaf values and add nothing to these.
        num_outputs: Number of outputs of every exit.
    """

    def __init__(self, trees: TreeEnsemble, num_exits: int) -> None:
        """Cut trees into parts of equal numbers.

        Args:
            trees: The trees.
            num_exits: Number of early exits.

        Raises:
            ExperimentError: If there are too few trees.
        """
        self.trees = trees
        self.num_outputs = int(trees.value.shape[1])
        # Boosting grows a tree for each of more than two classes in a round, and needs all of them.
        per_round = 1 if bool(trees.votes) or self.num_outputs <= 2 else self.num_outputs
        num_rounds = len(trees.roots) // per_round
        check_number(num_exits, num_rounds)
        ends = [
            per_round * (num_rounds * (number + 1) // (num_exits + 1))
            for number in range(num_exits + 1)
        ]
        self.parts = [_part(trees, *both) for both in itertools.pairwise([0, *ends])]
        self._ends = ends

    @property
    def num_stages(self) -> int:
        """Number of stages: one more than early exits."""
        return len(self.parts)

    def factor(self, number: int) -> float:
        """Return what the sum of the votes after a stage is multiplied by to be the share of its
        trees.
        """
        return len(self.trees.roots) / self._ends[number]

    def stage(self, number: int, values: Tensor) -> Tensor:
        """Return what a stage passes on, from what the stage before it did.

        The last one returns outputs.
        """
        rows = values.flatten(1)
        total = torch.zeros(len(rows), self.num_outputs)
        if number:
            rows, total = rows[:, : -self.num_outputs], rows[:, -self.num_outputs :]
        total = total + self.parts[number](rows)
        return (
            self._answer(number, total)
            if number == len(self.parts) - 1
            else torch.cat([rows, total], 1)
        )

    def exit_outputs(self, inputs: Tensor) -> list[Tensor]:
        """Return what each exit answers, that of the last one included."""
        found, values = [], inputs
        for number in range(self.num_stages - 1):
            values = self.stage(number, values)
            found.append(self._answer(number, values[:, -self.num_outputs :]))
        return [*found, self.stage(self.num_stages - 1, values)]

    def _answer(self, number: int, total: Tensor) -> Tensor:
        if bool(self.trees.votes):
            return (total * self.factor(number)).clamp_min(MIN_PROBABILITY).log()
        return self.trees.start + total


def check_number(num_exits: int, num_rounds: int) -> None:
    """Refuse more exits than there are places between trees.

    Args:
        num_exits: Number of early exits.
        num_rounds: Number of trees, or of rounds in which there is one for each class.

    Raises:
        ExperimentError: If there are too few.
    """
    if num_exits >= num_rounds:
        raise ExperimentError(
            f"{num_rounds} trees have no places for {num_exits} early exits",
            field="exits",
            allowed=f"at most {num_rounds - 1}",
            next_step="Use fewer exits or more trees.",
        )


def _part(trees: TreeEnsemble, first: int, end: int) -> TreeEnsemble:
    """Return some of the trees, by number."""
    begins = [*trees.roots.tolist(), len(trees.feature)]
    low, high = begins[first], begins[end]
    found = TreeEnsemble()
    for name in _NODE_VALUES:
        setattr(found, name, getattr(trees, name)[low:high])
    for name in ("left", "right"):
        setattr(found, name, getattr(trees, name)[low:high] - low)
    found.roots, found.depth = trees.roots[first:end] - low, trees.depth
    found.start, found.votes = torch.zeros_like(trees.start), torch.tensor(False)
    return found
