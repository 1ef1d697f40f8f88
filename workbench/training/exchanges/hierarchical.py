"""Gradients are added up inside each node first, then between one worker of each node.

On links between nodes that are slower than those inside, as many copies of the gradients are saved
there as a node has workers.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed
from torch import Tensor, nn

from workbench.training.exchanges.allreduce import AllReduce, finished, num_bytes_of
from workbench.training.exchanges.capabilities import BUILT_IN
from workbench.training.exchanges.exchange import Bucket, Replicas, Traffic

dist: Any = torch.distributed  # some of its names are made in C++, without types


class Hierarchical(AllReduce):
    """The mean of all gradients by way of a leader on each node."""

    capabilities = BUILT_IN["hierarchical"]

    def traffic(self, shapes: Sequence[Sequence[int]]) -> Traffic:
        """Return what a replica sends; see TrafficStating.traffic."""
        return Traffic(num_bytes_of(shapes), "nodes")

    def setup(self, parameters: Mapping[str, nn.Parameter], replicas: Replicas) -> None:
        """Find out which replicas share a node; see Exchange.setup."""
        super().setup(parameters, replicas)
        members: dict[str, list[int]] = {}
        for rank, node in enumerate(replicas.gather(self._node(replicas.rank))):
            members.setdefault(node, []).append(rank)
        self._on_node = next(ranks for ranks in members.values() if replicas.rank in ranks)
        inside = [replicas.part(ranks) for ranks in members.values()]
        self._inside = next(group for group in inside if group is not None)
        self._between = replicas.part([ranks[0] for ranks in members.values()])

    def reduce(self, bucket: Bucket) -> torch.futures.Future[Tensor]:
        """Average a bucket in three parts; see GradientExchange.reduce.

        Each part waits for the one before, so that all workers take part in them in the same order.
        """
        flat, leader = bucket.buffer().div_(self._num_replicas), self._on_node[0]
        if len(self._on_node) > 1:
            dist.reduce(flat, leader, group=self._inside)
        if self._between is not None:
            dist.all_reduce(flat, group=self._between)
        if len(self._on_node) > 1:
            dist.broadcast(flat, leader, group=self._inside)
        return finished(flat)

    def _node(self, _rank: int) -> str:
        """Return what only workers of the same node return."""
        return socket.gethostname()
