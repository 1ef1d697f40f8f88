"""The interface between a strategy and the ways in which replicas agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from workbench.experiment.plan import Plan
from workbench.training.exchanges import EXCHANGES
from workbench.training.exchanges.capabilities import USUAL, Capabilities


class Replicas(Protocol):
    """The workers that agree, each with a whole replica of the model.

    Attributes:
        rank: Rank of this worker, from 0.
        num_workers: Number of workers.
        address: Address of this worker's machine, as the others see it.
    """

    rank: int
    num_workers: int
    address: str

    def torch_group(self) -> torch.distributed.ProcessGroup:
        """Return all of them as a process group of torch."""
        ...

    def part(self, ranks: Sequence[int]) -> torch.distributed.ProcessGroup | None:
        """Return some of them as a process group, or None if this worker is not among them.

        Every worker must call it with the same ranks, in the same order.
        """
        ...

    def gather(self, content: Any) -> list[Any]:
        """Return the `content` of every worker, by rank.

        Every worker must call it in the same order.
        """
        ...


class Bucket(Protocol):
    """Gradients that are exchanged together: torch's `GradBucket`."""

    def buffer(self) -> Tensor:
        """Return the gradients, one after another in a flat tensor."""
        ...

    def parameters(self) -> list[Tensor]:
        """Return the parameters, in the order of the buffer."""
        ...


@dataclass(frozen=True)
class Traffic:
    """The traffic of a replica, from which the advisor predicts the time of a step on any link.

    Attributes:
        num_bytes: Bytes that the replica contributes each time that replicas agree.
        way: How contributions travel. reduce: they are added up on their way. gather: all replicas
            get all of them. serve: they go to replicas that serve the parameters, and the values
            come back. nodes: they are added up inside each node, then between one replica of each
            node, and the sum comes back.
        num_rounds: Exchanges that follow each other.
        period: Steps from one agreement to the next.
        is_overlapped: Whether it starts while gradients are still computed.
        is_beside_next_step: Whether it travels while the next step is computed.
        num_servers: Replicas that serve.
    """

    num_bytes: float
    way: Literal["reduce", "gather", "serve", "nodes"] = "reduce"
    num_rounds: int = 1
    period: int = 1
    is_overlapped: bool = False
    is_beside_next_step: bool = False
    num_servers: int = 1


@runtime_checkable
class KnowsTraffic(Protocol):
    """An exchange that can tell its traffic before it is set up. This is optional."""

    capabilities: ClassVar[Capabilities]

    def traffic(self, shapes: Sequence[Sequence[int]]) -> Traffic:
        """Return the traffic of a replica.

        Args:
            shapes: Shapes of the trained parameters, in single precision.
        """
        ...


class Exchange(Protocol):
    """How replicas agree. Made with the plan of a trial, then set up once."""

    capabilities: ClassVar[Capabilities]
    """Its capabilities, known before it is made."""

    def __init__(self, plan: Plan) -> None: ...

    def setup(self, parameters: Mapping[str, nn.Parameter], replicas: Replicas) -> None:
        """Start with parameters that are the same on every replica.

        Args:
            parameters: The trained parameters by name, on their device.
            replicas: The workers.
        """
        ...

    def state(self) -> dict[str, Any]:
        """Return the state for later steps, as tensors and plain values.

        Every worker must call it. Only the state of rank 0 is stored. It may be loaded with another
        number of replicas.
        """
        ...

    def load(self, state: Mapping[str, Any]) -> None:
        """Load what `state` returned, as far as it applies to this exchange.

        It may be the state of another exchange, if the plan was changed. The parameters are loaded
        first.
        """
        ...


@runtime_checkable
class GradientExchange(Exchange, Protocol):
    """Replicas agree on the gradient of each step."""

    def reduce(self, bucket: Bucket) -> torch.futures.Future[Tensor]:
        """Start to exchange a bucket of gradients during the backward pass.

        Buckets come in the same order on every worker. They may change after the first step. In a
        step that looks for unused parameters, a bucket may come twice.

        Args:
            bucket: The gradients of this replica. Their buffer may be overwritten.

        Returns:
            The mean over the replicas, flat, the same on each of them.
        """
        ...


@runtime_checkable
class ParameterExchange(Exchange, Protocol):
    """Replicas step by their own gradients, and agree on the parameters."""

    def after_step(self) -> None:
        """Agree if it is time. Every replica calls it after each step."""
        ...

    def agree(self) -> None:
        """Agree now, unless no step was made since the last time. Every replica must call it."""
        ...

    def average(self, tensors: Mapping[str, Tensor]) -> None:
        """Average tensors other than the parameters over all replicas.

        Args:
            tensors: The tensors by name. A tensor that some replica does not hold stays the same.
        """
        ...

    def close(self) -> None:
        """End work between steps. Replicas that still need this one fail."""
        ...


def exchange_of(plan: Plan, num_replicas: int) -> Exchange | None:
    """Return the exchange of a plan, or None if the strategy averages gradients by itself.

    Args:
        plan: The plan of a trial.
        num_replicas: How many there are.

    Raises:
        UnknownNameError: If no package registers the exchange of the plan.
    """
    if plan.exchange == USUAL or num_replicas == 1:
        return None
    return EXCHANGES.load(plan.exchange, field="plan.exchange")(plan)
