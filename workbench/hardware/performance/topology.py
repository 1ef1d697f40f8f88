"""Describe where the workers of a plan are: how many GPUs, how many nodes, how many on each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from workbench.foundation.errors import DataError
from workbench.foundation.formatting import format_count

MAX_GPUS = 100_000
KINDS = ("one GPU", "one node", "two nodes", "more nodes")


@dataclass(frozen=True)
class Topology:
    """The GPUs of a data-parallel group, one worker on each.

    Attributes:
        gpus_per_node: Number of GPUs on each node, in ascending order, because a ring has no first
            node.
    """

    gpus_per_node: tuple[int, ...]

    @classmethod
    def of(
        cls, num_nodes: int, num_gpus: int, gpus_per_node: Sequence[int] | None = None
    ) -> Topology:
        """Create a topology from numbers as users give them.

        Args:
            num_nodes: Number of nodes, at least 1.
            num_gpus: Number of GPUs on all nodes together, at least one on each.
            gpus_per_node: GPUs on each node. None means as even as possible.

        Returns:
            The topology.

        Raises:
            DataError: If the numbers contradict each other. Its field is the one to check.
        """
        if num_nodes < 1:
            raise DataError(format_count(num_nodes, "node"), field="nodes", allowed="1 or more")
        if num_gpus > MAX_GPUS:
            raise DataError(f"{num_gpus} GPUs", field="gpus", allowed=f"at most {MAX_GPUS}")
        if num_gpus < num_nodes:
            raise DataError(
                f"{format_count(num_gpus, 'GPU')} cannot be on {format_count(num_nodes, 'node')}",
                field="gpus",
                allowed="at least one per node",
            )
        if gpus_per_node is None:
            fewest, num_larger = divmod(num_gpus, num_nodes)
            return cls((fewest,) * (num_nodes - num_larger) + (fewest + 1,) * num_larger)
        written = "+".join(map(str, gpus_per_node))
        if len(gpus_per_node) != num_nodes:
            raise DataError(
                f"{written} means {format_count(len(gpus_per_node), 'node')}, not {num_nodes}",
                field="gpus_per_node",
                allowed="one number per node, such as 4+4",
            )
        if min(gpus_per_node) < 1 or sum(gpus_per_node) != num_gpus:
            raise DataError(
                f"{written} is not {format_count(num_gpus, 'GPU')}",
                field="gpus_per_node",
                allowed=f"whole numbers from 1 whose sum is {num_gpus}",
            )
        return cls(tuple(sorted(gpus_per_node)))

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.gpus_per_node)

    @property
    def num_gpus(self) -> int:
        """Number of GPUs on all nodes together."""
        return sum(self.gpus_per_node)

    @property
    def most_gpus_per_node(self) -> int:
        """Number of GPUs on the fullest node."""
        return self.gpus_per_node[-1]

    @property
    def placement(self) -> str:
        """The GPUs per node as text: `2x3 4x1` means 2 on each of three nodes and 4 on one."""
        return " ".join(
            f"{num_gpus}x{num_nodes}"
            for num_gpus, num_nodes in sorted(Counter(self.gpus_per_node).items())
        )

    @property
    def kind(self) -> str:
        """The boundaries that it crosses, one of `KINDS`. No kind predicts the next one."""
        if self.num_gpus == 1:
            return KINDS[0]
        return KINDS[min(self.num_nodes, 3)]
