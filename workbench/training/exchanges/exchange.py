"""The seam between a strategy and the ways in which replicas agree."""

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
        rank: Of this worker, from 0.
        num_workers: How many there are.
        address: Of this worker's machine, as the others see it.
    """

    rank: int
    num_workers: int
    address: str

    def torch_group(self) -> torch.distributed.ProcessGroup:
        """Return them as a group of torch."""
        ...

    def part(self, ranks: Sequence[int]) -> torch.distributed.ProcessGroup | None:
        """Return some of them as a group of torch, None where this worker is not among them.

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
        """Return the gradients, one after the other in one flat tensor."""
        ...

    def parameters(self) -> list[Tensor]:
        """Return the parameters, in the order of the buffer."""
        ...


@dataclass(frozen=True)
class Traffic:
    """What a replica sends, from which the time of a step on any link follows.

    Attributes:
        num_bytes: Bytes that it contributes each time that replicas agree.
        way: reduce: contributions are added up on their way; gather: all replicas get all of them;
            serve: they go to replicas that serve the parameters, and the values come back; nodes:
            contributions are added up inside each node, then between one replica of each node, and
            the sum comes back.
        num_rounds: Exchanges that follow one another.
        period: Steps from one agreement to the next.
        is_overlapped: Whether it begins while gradients are still computed.
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
class TrafficStating(Protocol):
    """An exchange that states what it sends before it is set up; optional."""

    capabilities: ClassVar[Capabilities]

    def traffic(self, shapes: Sequence[Sequence[int]]) -> Traffic:
        """Return what a replica sends.

        Args:
            shapes: Those of what is trained, in single precision.
        """
        ...


class Exchange(Protocol):
    """How replicas agree. Made with the plan of a trial, then set up once."""

    capabilities: ClassVar[Capabilities]
    """What it can do, which is known before it is made."""

    def __init__(self, plan: Plan) -> None: ...

    def setup(self, parameters: Mapping[str, nn.Parameter], replicas: Replicas) -> None:
        """Begin with parameters that are the same on every replica.

        Args:
            parameters: What is trained, by name, on its device.
            replicas: The workers.
        """
        ...

    def state(self) -> dict[str, Any]:
        """Return what later steps depend on, as tensors and plain values.

        Every worker must call it.

        Only that of rank 0 is stored. It is loaded with any number of replicas.
        """
        ...

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what `state` of this exchange or another one returned, as far as it applies.

        The parameters are loaded before.
        """
        ...


@runtime_checkable
class GradientExchange(Exchange, Protocol):
    """Replicas agree on the gradient of each step."""

    def reduce(self, bucket: Bucket) -> torch.futures.Future[Tensor]:
        """Begin to exchange a bucket of gradients during the backward pass.

        Buckets come in the same order on every worker. They may change after the first step, and
        come again within a step that looks for unused parameters.

        Args:
            bucket: The gradients of this replica; their buffer may be overwritten.

        Returns:
            The mean over the replicas, flat, the same on every one.
        """
        ...


@runtime_checkable
class ParameterExchange(Exchange, Protocol):
    """Replicas step by their own gradients, and agree on the parameters."""

    def after_step(self) -> None:
        """Agree if it is time; every replica calls it after each step."""
        ...

    def agree(self) -> None:
        """Agree now, unless no step was made since; every replica must call it."""
        ...

    def average(self, tensors: Mapping[str, Tensor]) -> None:
        """Give every replica the mean of what all of them hold beside the parameters.

        Args:
            tensors: By name; those that some replica does not hold stay as they are.
        """
        ...

    def close(self) -> None:
        """End what goes on between steps; replicas that still need this one fail."""
        ...


def exchange_of(plan: Plan, num_replicas: int) -> Exchange | None:
    """Return how replicas agree; None where there is nothing but what strategies do by themselves.

    Args:
        plan: The plan of a trial.
        num_replicas: How many there are.

    Raises:
        UnknownNameError: If no package registers the exchange of the plan.
    """
    if plan.exchange == USUAL or num_replicas == 1:
        return None
    return EXCHANGES.load(plan.exchange, field="plan.exchange")(plan)
