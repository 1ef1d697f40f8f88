"""Predict how long replicas take to agree, from a sweep of all-reduces over the same links.

A link has a latency a and a bandwidth B. Each of R replicas contributes S bytes:

    reduce    2 (R-1) (n a + S / (R B))                          n rounds, a ring
    gather    (R-1) (n a + S / B)
    serve     2 (a + max((R-1)/s, 1) S / B)                      s servers, pushed, then pulled
    nodes     2 reduce(inside, r of a node) + reduce(between, N)   N nodes, inside and between swept

Inside a node, S bytes are reduced to one replica, and the sum is broadcast. Each of the two is a
scatter and a gather of r parts, which takes as long as an all-reduce inside the node. Latency and
bandwidth are fitted to the sweep, and the residuals give the interval.

Sources: Thakur, Rabenseifner and Gropp 2005, "Optimization of Collective Communication Operations
in MPICH", for rings, latencies, reducing and broadcasting; Jia et al. 2018, arXiv:1807.11205, for
agreeing by way of nodes; Zou et al. 2017, arXiv:1709.06622, lemma 3.2, for servers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

_NORMAL_90 = 1.645
_MIN_DEVIATION = 0.05
"""Smallest deviation of the logarithm of a time, even if the sweep fits: links are shared."""

Way = Literal["reduce", "gather", "serve"]


@dataclass(frozen=True)
class Link:
    """The link between some replicas.

    Attributes:
        latency_s: Seconds of an exchange without data between two of them.
        s_per_byte: Seconds per byte, the inverse of the bandwidth.
        deviation: Standard deviation of the logarithm of a time from the law.
    """

    latency_s: float
    s_per_byte: float
    deviation: float = _MIN_DEVIATION

    @classmethod
    def fit(cls, all_reduce_s: Mapping[int, float], num_replicas: int) -> Link:
        """Fit a link to a sweep, by the least squares of relative errors.

        Args:
            all_reduce_s: Seconds, > 0, by number of bytes. There are at least two sizes.
            num_replicas: Number of replicas, at least 2.

        Raises:
            ValueError: If there are fewer than two sizes.
        """
        if len(all_reduce_s) < 2:
            raise ValueError("a link is fitted to all-reduces of two sizes or more")
        sizes, times = np.array(list(all_reduce_s), float), np.array(list(all_reduce_s.values()))
        hops = 2.0 * (num_replicas - 1)
        factors = (
            np.column_stack([np.full_like(sizes, hops), hops * sizes / num_replicas])
            / times[:, None]
        )
        # Least squares with two factors, which must not be negative. If one is, the better of the
        # two fits with one factor is used.
        (latency_s, s_per_byte), *_ = np.linalg.lstsq(factors, np.ones_like(times), rcond=None)
        if latency_s < 0.0 or s_per_byte < 0.0:
            alone = [float(column.sum() / (column @ column)) for column in factors.T]
            errors = [
                float(np.square(1.0 - column * factor).sum())
                for column, factor in zip(factors.T, alone, strict=True)
            ]
            if errors[0] < errors[1]:
                latency_s, s_per_byte = alone[0], 0.0
            else:
                latency_s, s_per_byte = 0.0, alone[1]
        logs = np.log(np.maximum(factors @ np.array([latency_s, s_per_byte]), 1e-9))
        deviation = max(_MIN_DEVIATION, float(np.sqrt(np.mean(np.square(logs)))))
        return cls(float(latency_s), float(s_per_byte), deviation)

    def seconds(
        self,
        way: Way,
        num_bytes: float,
        num_replicas: int,
        *,
        num_rounds: int = 1,
        num_servers: int = 1,
    ) -> float:
        """Return the seconds of one agreement.

        Args:
            way: How contributions are exchanged.
            num_bytes: Bytes that each replica contributes.
            num_replicas: Number of replicas, at least 2.
            num_rounds: Number of exchanges in a row.
            num_servers: Number of replicas that are servers.
        """
        others = num_replicas - 1
        if way == "gather":
            return others * (num_rounds * self.latency_s + num_bytes * self.s_per_byte)
        if way == "serve":
            # A server exchanges its part with all other replicas. A replica that is not a server
            # exchanges all parts once.
            most = max(others / num_servers, float(num_replicas > num_servers))
            return 2.0 * (self.latency_s + most * num_bytes * self.s_per_byte)
        return (
            2.0
            * others
            * (num_rounds * self.latency_s + num_bytes * self.s_per_byte / num_replicas)
        )

    @property
    def width(self) -> float:
        """The factor within which nine of ten times are longer or shorter than the law."""
        return math.exp(_NORMAL_90 * self.deviation)


def seconds_by_nodes(
    inside: Link, between: Link, num_bytes: float, *, most_on_a_node: int, num_nodes: int
) -> float:
    """Return the seconds of an agreement first inside nodes and then between them.

    Args:
        inside: What connects the replicas of a node.
        between: What connects one replica of each node.
        num_bytes: Bytes that each replica contributes.
        most_on_a_node: Replicas on the fullest node, at least 2.
        num_nodes: Number of nodes, at least 2.
    """
    on_a_node_s = inside.seconds("reduce", num_bytes, most_on_a_node)
    return 2.0 * on_a_node_s + between.seconds("reduce", num_bytes, num_nodes)
