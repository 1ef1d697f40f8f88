"""Averages the gradients of all replicas in each step.

There are three ways. Gradients are sent unchanged, as strategies do by default. They are rounded to
bf16. Or they are averaged inside each node first, and then between one worker of each node. The
third way helps if the links between nodes are slower than the links inside: one copy per node
crosses them instead of one per worker.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.distributed
from torch import Tensor, nn

from workbench.experiment.plan import Plan
from workbench.training.exchanges.capabilities import BUILT_IN, Capabilities
from workbench.training.exchanges.exchange import Bucket, Replicas, Traffic

dist: Any = torch.distributed  # some of its names are made in C++, without types


def begin_sum(
    flat: Tensor, group: torch.distributed.ProcessGroup
) -> torch.futures.Future[list[Tensor]]:
    """Start to add up a tensor over a group, in place."""
    work: Any = torch.distributed.all_reduce(flat, group=group, async_op=True)
    return work.get_future()


def kept_for_callback(*tensors: Tensor) -> None:
    """Keep the memory of tensors until the callback of a future has read them on the device.

    On a GPU, callbacks run on their own stream. A tensor that they read may be dropped, and the
    backward pass may reuse its memory, before they are done. Torch prevents that only for the value
    of the future.
    """
    for tensor in tensors:
        if tensor.device.type == "cuda":
            tensor.record_stream(torch.cuda.current_stream(tensor.device))


def finished(flat: Tensor) -> torch.futures.Future[Tensor]:
    """Return a result that is ready already."""
    # A future of a CUDA tensor must know the device, or its callbacks do not wait for the stream.
    devices: list[Any] | None = [flat.device] if flat.device.type == "cuda" else None
    future: torch.futures.Future[Tensor] = torch.futures.Future(devices=devices)
    future.set_result(flat)
    return future


def num_bytes_of(shapes: Sequence[Sequence[int]]) -> int:
    """Return the bytes of tensors in single precision."""
    return 4 * sum(math.prod(shape) for shape in shapes)


class AllReduce:
    """The mean of all gradients. The other exchanges here send something else."""

    capabilities: ClassVar[Capabilities] = BUILT_IN["allreduce"]

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def traffic(self, shapes: Sequence[Sequence[int]]) -> Traffic:
        """Return what a replica sends. See KnowsTraffic.traffic."""
        return Traffic(num_bytes_of(shapes), is_overlapped=True)

    def setup(self, parameters: Mapping[str, nn.Parameter], replicas: Replicas) -> None:
        """Remember the parameters and the group. See Exchange.setup."""
        self._parameters = dict(parameters)
        self._replicas = replicas
        self._group = replicas.torch_group()
        self._num_replicas = replicas.num_workers

    def reduce(self, bucket: Bucket) -> torch.futures.Future[Tensor]:
        """Average a bucket. See GradientExchange.reduce."""
        # Divide before adding up: a sum of fp16 gradients could overflow.
        flat = bucket.buffer().div_(self._num_replicas)
        return begin_sum(flat, self._group).then(lambda summed: summed.value()[0])

    def state(self) -> dict[str, Any]:
        """Return nothing, because a step depends on no earlier step. See Exchange.state."""
        return {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Do nothing, because there is no state. See Exchange.load."""


class HalfPrecision(AllReduce):
    """The mean of gradients that were rounded to bf16."""

    capabilities = BUILT_IN["bf16"]

    def traffic(self, shapes: Sequence[Sequence[int]]) -> Traffic:
        """Return what a replica sends. See KnowsTraffic.traffic."""
        return Traffic(num_bytes_of(shapes) / 2, is_overlapped=True)

    def reduce(self, bucket: Bucket) -> torch.futures.Future[Tensor]:
        """Average a bucket in bf16. See GradientExchange.reduce."""
        # Torch has `bf16_compress_hook`, but DistributedDataParallel accepts it with NCCL only. It
        # also divides after rounding, which rounds a second time unless the number of replicas is
        # a power of two.
        flat = bucket.buffer()
        rounded = flat.div_(self._num_replicas).to(torch.bfloat16)
        return begin_sum(rounded, self._group).then(lambda summed: flat.copy_(summed.value()[0]))


class Hierarchical(AllReduce):
    """The mean of all gradients, which travel over a leader on each node."""

    capabilities = BUILT_IN["hierarchical"]

    def traffic(self, shapes: Sequence[Sequence[int]]) -> Traffic:
        """Return what a replica sends. See KnowsTraffic.traffic."""
        return Traffic(num_bytes_of(shapes), "nodes")

    def setup(self, parameters: Mapping[str, nn.Parameter], replicas: Replicas) -> None:
        """Find out which replicas share a node. See Exchange.setup."""
        super().setup(parameters, replicas)
        members: dict[str, list[int]] = {}
        for rank, node in enumerate(replicas.gather(self._node(replicas.rank))):
            members.setdefault(node, []).append(rank)
        self._on_node = next(ranks for ranks in members.values() if replicas.rank in ranks)
        # Making a group is collective. So every worker makes the groups of all nodes, in the same
        # order, and keeps its own.
        inside = [replicas.part(ranks) for ranks in members.values()]
        self._inside = next(group for group in inside if group is not None)
        self._between = replicas.part([ranks[0] for ranks in members.values()])

    def reduce(self, bucket: Bucket) -> torch.futures.Future[Tensor]:
        """Average a bucket in three phases. See GradientExchange.reduce.

        Each phase waits for the previous one, so all workers take part in the same order.
        """
        flat = bucket.buffer().div_(self._num_replicas)
        leader = self._on_node[0]
        if len(self._on_node) > 1:
            dist.reduce(flat, leader, group=self._inside)
        if self._between is not None:
            dist.all_reduce(flat, group=self._between)
        if len(self._on_node) > 1:
            dist.broadcast(flat, leader, group=self._inside)
        return finished(flat)

    def _node(self, _rank: int) -> str:
        """Return a value that only workers of the same node share."""
        return socket.gethostname()
