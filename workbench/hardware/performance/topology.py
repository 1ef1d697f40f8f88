"""Describe where the workers of a plan are: how many GPUs, how many nodes, how many on each.

Rules of thumb say what more GPUs bring if nothing was measured.
"""

from __future__ import annotations

import math
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


def speedup(num_gpus: int, overhead: float) -> float:
    """Return the speedup of G GPUs at a fixed batch per GPU: G (1 + R) / (1 + G R).

    Args:
        num_gpus: G, at least 1.
        overhead: R, the time per step that is not parallel, relative to computing, on one GPU. Time
            that is hidden behind computing does not count. If it grows with the number of GPUs, use
            its value at G.

    Source: Zou et al. 2017, arXiv:1709.06622, lemma 3.1.
    """
    return num_gpus * parallel_efficiency(num_gpus, overhead)


def parallel_efficiency(num_gpus: int, overhead: float) -> float:
    """Return the efficiency of G GPUs: (1 + R) / (1 + G R). See `speedup` for the arguments."""
    return (1.0 + overhead) / (1.0 + num_gpus * overhead)


def most_overhead(num_gpus: int, wanted_efficiency: float) -> float:
    """Return the largest overhead with a wanted efficiency: (1 - a) / (a G - 1).

    Args:
        num_gpus: G, at least 2.
        wanted_efficiency: a, more than 1/G (which any overhead allows) and at most 1.

    Returns:
        The overhead relative to computing, or infinity if any overhead is small enough.

    Source: Zou et al. 2017, arXiv:1709.06622, lemma 3.1.
    """
    if wanted_efficiency * num_gpus <= 1.0:
        return math.inf
    return (1.0 - wanted_efficiency) / (wanted_efficiency * num_gpus - 1.0)


def num_parameter_servers(
    parameter_bytes: float, num_workers: int, bytes_per_s: float, compute_s: float
) -> int:
    """Return how many parameter servers hide their traffic: 2 S W / (B T), rounded up.

    Args:
        parameter_bytes: S, bytes of all parameters, > 0. They are spread evenly over the servers.
        num_workers: W, the number of workers. Each pushes and pulls all parameters once per round.
        bytes_per_s: B, the bandwidth of a server's network in both directions together, > 0.
        compute_s: T, seconds of computing per round, > 0.

    Returns:
        The number of servers, at least 1. The workers' network is another limit: 2 S / B <= T.

    Source: Zou et al. 2017, arXiv:1709.06622, lemma 3.2.
    """
    return max(1, math.ceil(2.0 * parameter_bytes * num_workers / (bytes_per_s * compute_s)))
