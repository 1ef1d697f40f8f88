"""Replicas make steps alone and agree on their parameters only every few steps.

Sources: Stich 2019, "Local SGD Converges Fast and Communicates Little"; Douillard et al. 2023,
"DiLoCo: Distributed Low-Communication Training of Language Models".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.distributed
from torch import Tensor, nn

from workbench.experiment.plan import Plan
from workbench.training.exchanges.allreduce import num_bytes_of
from workbench.training.exchanges.capabilities import BUILT_IN, Capabilities
from workbench.training.exchanges.exchange import Replicas, Traffic

_MAX_BYTES = 32 << 20
"""Tensors are sent together up to this size, of which a copy is made meanwhile."""


class LocalSteps:
    """Replicas take the mean of their parameters."""

    capabilities: ClassVar[Capabilities] = BUILT_IN["local"]

    def __init__(self, plan: Plan) -> None:
        self._period = plan.exchange_period

    def traffic(self, shapes: Sequence[Sequence[int]]) -> Traffic:
        """Return what a replica sends; see TrafficStating.traffic."""
        return Traffic(num_bytes_of(shapes), period=self._period)

    def setup(self, parameters: Mapping[str, nn.Parameter], replicas: Replicas) -> None:
        """Begin with parameters that are the same on every replica; see Exchange.setup."""
        self._parameters = dict(parameters)
        self._replicas = replicas
        self._held = [parameter.detach() for parameter in parameters.values()]
        self._num_steps = 0

    def after_step(self) -> None:
        """Count a step, and agree if it ends a period; see ParameterExchange.after_step."""
        self._num_steps += 1
        if self._num_steps == self._period:
            self.agree()

    def agree(self) -> None:
        """Agree now, unless no step was made since; see ParameterExchange.agree."""
        if self._num_steps:
            self._num_steps = 0
            self._merge()

    def average(self, tensors: Mapping[str, Tensor]) -> None:
        """Give every replica the mean of what all of them hold; see ParameterExchange.average."""
        common = set(tensors).intersection(*self._replicas.gather(list(tensors)))
        self._average(tensors[name] for name in sorted(common))

    def state(self) -> dict[str, Any]:
        """Return nothing, because replicas are equal at a checkpoint; see Exchange.state."""
        return {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Begin a period; see Exchange.load."""
        self._num_steps = 0

    def close(self) -> None:
        """Do nothing, because nothing runs between steps; see ParameterExchange.close."""

    def _merge(self) -> None:
        """Give every replica the same parameters."""
        self._average(self._held)

    @torch.no_grad()
    def _average(self, tensors: Iterable[Tensor]) -> None:
        group = self._replicas.torch_group()
        num_replicas = self._replicas.num_workers
        for sent in together(tensors):
            flat = torch.cat([tensor.reshape(-1) for tensor in sent]).div_(num_replicas)
            torch.distributed.all_reduce(flat, group=group)
            means = flat.split([tensor.numel() for tensor in sent])
            for tensor, mean in zip(sent, means, strict=True):
                tensor.copy_(mean.view_as(tensor))


class DiLoCo(LocalSteps):
    """The mean change of the parameters is the gradient of an outer optimizer.

    SGD with Nesterov momentum.
    """

    capabilities = BUILT_IN["diloco"]
    outer_rate = 0.7
    outer_momentum = 0.9

    def setup(self, parameters: Mapping[str, nn.Parameter], replicas: Replicas) -> None:
        """Begin without momentum; see Exchange.setup."""
        super().setup(parameters, replicas)
        self._begun_with = [parameter.clone() for parameter in self._held]
        self._momenta = [torch.zeros_like(parameter) for parameter in self._held]

    def state(self) -> dict[str, Any]:
        """Return the momentum, the same on every replica; see Exchange.state."""
        return {"momenta": dict(zip(self._parameters, self._momenta, strict=True))}

    @torch.no_grad()
    def load(self, state: Mapping[str, Any]) -> None:
        """Begin a period with the parameters as they are now; see Exchange.load."""
        super().load(state)
        stored = state.get("momenta", {})
        for name, held, begun_with, momentum in zip(
            self._parameters, self._held, self._begun_with, self._momenta, strict=True
        ):
            begun_with.copy_(held)
            if name in stored and stored[name].shape == momentum.shape:
                momentum.copy_(stored[name])

    @torch.no_grad()
    def _merge(self) -> None:
        super()._merge()
        for held, begun_with, momentum in zip(
            self._held, self._begun_with, self._momenta, strict=True
        ):
            change = begun_with - held
            momentum.mul_(self.outer_momentum).add_(change)
            change.add_(momentum, alpha=self.outer_momentum)
            held.copy_(begun_with.sub_(change, alpha=self.outer_rate))


def together(tensors: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Yield tensors of one type and device that are sent together.

    Optimizers may count steps on the CPU.
    """
    waiting: list[Tensor] = []
    for tensor in tensors:
        size = sum(held.nbytes for held in waiting)
        kind = (tensor.dtype, tensor.device)
        is_alike = not waiting or (waiting[0].dtype, waiting[0].device) == kind
        if waiting and (not is_alike or size + tensor.nbytes > _MAX_BYTES):
            yield waiting
            waiting = []
        waiting.append(tensor)
    if waiting:
        yield waiting
