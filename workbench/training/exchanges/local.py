"""Replicas make steps alone, and agree on their parameters only every few steps.

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
"""Tensors are sent together up to this size. They are copied for that, so it costs memory."""


class LocalSteps:
    """Replicas take the mean of their parameters."""

    capabilities: ClassVar[Capabilities] = BUILT_IN["local"]

    def __init__(self, plan: Plan) -> None:
        self._period = plan.exchange_period

    def traffic(self, shapes: Sequence[Sequence[int]]) -> Traffic:
        """Return what a replica sends. See KnowsTraffic.traffic."""
        return Traffic(num_bytes_of(shapes), period=self._period)

    def setup(self, parameters: Mapping[str, nn.Parameter], replicas: Replicas) -> None:
        """Start with parameters that are the same on every replica. See Exchange.setup."""
        self._parameters = dict(parameters)
        self._replicas = replicas
        self._held = [parameter.detach() for parameter in parameters.values()]
        self._num_steps = 0

    def after_step(self) -> None:
        """Count a step, and agree if it ends a period. See ParameterExchange.after_step."""
        self._num_steps += 1
        if self._num_steps == self._period:
            self.agree()

    def agree(self) -> None:
        """Agree now, unless no step was made since the last time. See ParameterExchange.agree."""
        if self._num_steps:
            self._num_steps = 0
            self._merge()

    def average(self, tensors: Mapping[str, Tensor]) -> None:
        """Give every replica the mean of what all of them hold. See ParameterExchange.average."""
        # Sorted, because every replica must send the tensors in the same order.
        common = set(tensors).intersection(*self._replicas.gather(list(tensors)))
        self._average(tensors[name] for name in sorted(common))

    def state(self) -> dict[str, Any]:
        """Return nothing, because replicas are equal at a checkpoint. See Exchange.state."""
        return {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Start a period. See Exchange.load."""
        self._num_steps = 0

    def close(self) -> None:
        """Do nothing, because nothing runs between steps. See ParameterExchange.close."""

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

    The outer optimizer is SGD with Nesterov momentum, with the values of the paper.
    """

    capabilities = BUILT_IN["diloco"]
    outer_rate = 0.7
    outer_momentum = 0.9

    def setup(self, parameters: Mapping[str, nn.Parameter], replicas: Replicas) -> None:
        """Start without momentum. See Exchange.setup."""
        super().setup(parameters, replicas)
        self._start_values = [parameter.clone() for parameter in self._held]
        self._momenta = [torch.zeros_like(parameter) for parameter in self._held]

    def state(self) -> dict[str, Any]:
        """Return the momentum, which is the same on every replica. See Exchange.state."""
        return {"momenta": dict(zip(self._parameters, self._momenta, strict=True))}

    @torch.no_grad()
    def load(self, state: Mapping[str, Any]) -> None:
        """Start a period with the current parameters. See Exchange.load."""
        super().load(state)
        stored = state.get("momenta", {})
        for name, held, start_values, momentum in zip(
            self._parameters, self._held, self._start_values, self._momenta, strict=True
        ):
            start_values.copy_(held)
            if name in stored and stored[name].shape == momentum.shape:
                momentum.copy_(stored[name])

    @torch.no_grad()
    def _merge(self) -> None:
        super()._merge()
        for held, start_values, momentum in zip(
            self._held, self._start_values, self._momenta, strict=True
        ):
            # `held` is the mean over the replicas now. The sign makes the change a gradient, and
            # the two lines below are torch's SGD with nesterov=True.
            change = start_values - held
            momentum.mul_(self.outer_momentum).add_(change)
            change.add_(momentum, alpha=self.outer_momentum)
            held.copy_(start_values.sub_(change, alpha=self.outer_rate))


def together(tensors: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Yield groups of tensors that can be sent together, of one type on one device.

    Devices differ because optimizers may count steps on the CPU.
    """
    waiting: list[Tensor] = []
    for tensor in tensors:
        size = sum(held.nbytes for held in waiting)
        kind = (tensor.dtype, tensor.device)
        fits_in = not waiting or (waiting[0].dtype, waiting[0].device) == kind
        if waiting and (not fits_in or size + tensor.nbytes > _MAX_BYTES):
            yield waiting
            waiting = []
        waiting.append(tensor)
    if waiting:
        yield waiting
