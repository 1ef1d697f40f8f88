"""Measures the links between replicas, and the computation of exchanges, once for all plans.

All-reduces of a few sizes show latency and bandwidth. How long an exchange computes is measured on
one worker alone, with gradients of the model's shapes, so that no link is involved.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import torch
import torch.distributed
from pydantic import JsonValue
from torch import Tensor, nn

from workbench.experiment.plan import PartialPlan
from workbench.training.exchanges import EXCHANGES
from workbench.training.exchanges.capabilities import with_options
from workbench.training.exchanges.exchange import GradientExchange, KnowsTraffic
from workbench.training.strategies.strategy import Worker

SIZES_BYTES = (4 << 10, 64 << 10, 512 << 10, 4 << 20)
_NUM_TIMED = 3
_MAX_HANDLED, _HANDLING_S = 10, 0.2
"""An exchange is timed at most this often, and after `_NUM_TIMED` times only for so long."""
_MAX_VALUES = 4_000_000
"""Only a part of a larger model is used, because the time per value is the same."""


@dataclasses.dataclass(frozen=True)
class LinkSweeps:
    """Seconds of all-reduces by their bytes, for each kind of link.

    Attributes:
        whole: Over all workers.
        inside: Over the workers inside each node, on all nodes at once. The slowest node counts.
            Empty unless there are several nodes, and several workers on at least one.
        between: Over one worker of each node. Empty if `inside` is empty.
    """

    whole: dict[int, float]
    inside: dict[int, float] = dataclasses.field(default_factory=dict)
    between: dict[int, float] = dataclasses.field(default_factory=dict)

    def stored(self) -> dict[str, dict[str, float]]:
        """Return the sweeps as fields of `PlanMeasured`."""
        fields = {
            "all_reduce_s": self.whole,
            "inside_nodes_s": self.inside,
            "between_nodes_s": self.between,
        }
        return {
            name: {str(size): took for size, took in times.items()}
            for name, times in fields.items()
        }


def sweep_links(worker: Worker, nodes: Sequence[str]) -> LinkSweeps:
    """Time all-reduces of a few sizes over each kind of link.

    Every worker must call it.

    Args:
        worker: Which worker this is.
        nodes: The node of each worker, by rank.
    """
    whole = _sweep(worker, None)
    members: dict[str, list[int]] = {}
    for rank, node in enumerate(nodes):
        members.setdefault(node, []).append(rank)
    # With one node, or with one worker on each node, there is only one kind of link.
    if not 1 < len(members) < len(nodes):
        return LinkSweeps(whole)
    sweeps: list[dict[int, float]] = []
    inside = [worker.group.part(ranks) for ranks in members.values()]
    between = worker.group.part([ranks[0] for ranks in members.values()])
    own = next(group for group in inside if group is not None)
    for handle, takes_part in (
        (own, len(members[nodes[worker.rank]]) > 1),
        (between, between is not None),
    ):
        worker.group.gather(None)  # start when all workers have finished the previous sweep
        gathered = worker.group.gather(_sweep(worker, handle) if takes_part else {})
        sweeps.append(
            {size: max(sweep.get(size, 0.0) for sweep in gathered) for size in SIZES_BYTES}
        )
    return LinkSweeps(whole, *sweeps)


def _sweep(worker: Worker, handle: Any) -> dict[int, float]:
    """Return the shortest time of an all-reduce over a process group, by its bytes."""
    shortest_s: dict[int, float] = {}
    for num_bytes in SIZES_BYTES:
        values = torch.zeros(num_bytes // 4, device=worker.device)
        for number in range(_NUM_TIMED + 1):
            # A small exchange first, so that all workers start together.
            torch.distributed.all_reduce(values[:1], group=handle)
            _wait_for(worker)
            began_s = perf_counter()
            torch.distributed.all_reduce(values, group=handle)
            _wait_for(worker)
            took_s = perf_counter() - began_s
            if number:  # the first one opens connections
                shortest_s[num_bytes] = min(took_s, shortest_s.get(num_bytes, math.inf))
    return shortest_s


def describe_exchanges(
    worker: Worker, shapes: Sequence[tuple[int, ...]]
) -> dict[str, dict[str, JsonValue]]:
    """Return the traffic and the computation of each exchange. Every worker must call it.

    Args:
        worker: Which worker this is.
        shapes: Shapes of the trained parameters.
    """
    # Making a group is collective, so every worker makes the group of each single worker.
    alone = [worker.group.part([rank]) for rank in range(worker.num_workers)]
    handled, num_handled = [], 0
    for shape in shapes:
        if num_handled < _MAX_VALUES:
            handled.append(shape)
            num_handled += math.prod(shape)
    # The time of the used part is scaled to the whole model.
    whole = sum(math.prod(shape) for shape in shapes) / max(1, num_handled)
    described: dict[str, dict[str, JsonValue]] = {}
    for name in EXCHANGES.names():
        plan = with_options(
            PartialPlan.of(workers=2, micro_batch=1, accumulation=1, exchange=name)
        ).complete()
        assert plan is not None
        exchange = EXCHANGES.load(name)(plan)
        if not isinstance(exchange, KnowsTraffic):
            continue
        compute_s = 0.0
        if isinstance(exchange, GradientExchange):
            compute_s = whole * _seconds_alone(exchange, worker, handled, alone[worker.rank])
        traffic = dataclasses.asdict(exchange.traffic(shapes))
        described[name] = {
            **traffic,
            "compute_s": compute_s,
            "is_exact": exchange.capabilities.is_exact,
        }
    return described


@dataclasses.dataclass
class _Alone:
    """A single replica, whose exchanges send nothing."""

    handle: Any
    rank: int = 0
    num_workers: int = 1
    address: str = "localhost"

    def torch_group(self) -> Any:
        return self.handle

    def part(self, ranks: Sequence[int]) -> Any:
        return self.handle

    def gather(self, content: Any) -> list[Any]:
        return [content]


@dataclasses.dataclass(frozen=True)
class _Bucket:
    values: Tensor
    of: list[Tensor]

    def buffer(self) -> Tensor:
        return self.values

    def parameters(self) -> list[Tensor]:
        return self.of


def _seconds_alone(
    exchange: GradientExchange, worker: Worker, shapes: Sequence[tuple[int, ...]], handle: Any
) -> float:
    """Return how long an exchange computes if nothing is sent."""
    parameters = [nn.Parameter(torch.zeros(shape, device=worker.device)) for shape in shapes]
    exchange.setup(
        {str(number): parameter for number, parameter in enumerate(parameters)}, _Alone(handle)
    )
    generator = torch.Generator().manual_seed(0)
    size = sum(parameter.numel() for parameter in parameters)
    gradients = torch.randn(size, generator=generator).to(worker.device)
    spent_s, shortest_s, number = 0.0, math.inf, 0
    while number < _NUM_TIMED or (number < _MAX_HANDLED and spent_s < _HANDLING_S):
        bucket = _Bucket(gradients.clone(), [*parameters])
        _wait_for(worker)
        began_s = perf_counter()
        exchange.reduce(bucket).wait()
        _wait_for(worker)
        took_s = perf_counter() - began_s
        if number:  # the first one allocates memory
            shortest_s = min(shortest_s, took_s)
        spent_s, number = spent_s + took_s, number + 1
    return shortest_s


def _wait_for(worker: Worker) -> None:
    if worker.device.type == "cuda":
        torch.cuda.synchronize(worker.device)
