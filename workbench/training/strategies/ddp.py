"""Every worker holds the whole model. Gradients are averaged while the backward pass still runs.

Batch normalisation uses the samples of one micro batch on one worker, as usual in data parallelism.
Its running statistics are averaged before they are used or stored. Whether a step leaves parameters
without a gradient is read from the graph of the loss.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from workbench.foundation.errors import ExperimentError
from workbench.training.exchanges.allreduce import finished
from workbench.training.exchanges.exchange import Bucket, GradientExchange, ParameterExchange
from workbench.training.strategies.capabilities import BUILT_IN
from workbench.training.strategies.single import Single
from workbench.training.strategies.strategy import compiled
from workbench.training.strategies.worker_group import Group, Part

_DDP_ARGUMENTS = inspect.signature(DistributedDataParallel.__init__).parameters
_LEAVES_BUFFERS: dict[str, Any] = {
    (
        "forward_sync_buffers" if "forward_sync_buffers" in _DDP_ARGUMENTS else "broadcast_buffers"
    ): False
}
"""Torch renamed the argument in 2.13."""
_UNFINISHED = "Expected to have finished reduction"
"""Torch's message if a step starts before all gradients of the previous one were exchanged."""


class DataParallel(Single):
    """The step of `single`, shared by N workers through torch's DistributedDataParallel."""

    capabilities = BUILT_IN["ddp"]

    def train(self, mode: bool) -> None:
        """Switch dropout and batch statistics on or off. See Strategy.train."""
        if not mode:
            self._agree()
        super().train(mode)  # first, because it decides whose statistics the model holds
        if not mode:
            average_statistics(self._model, self._worker.group)

    def renew_statistics(self, inputs: Iterable[Any]) -> None:
        """Gather the mean statistics of all batches. See StatisticsRenewing.renew_statistics."""
        super().renew_statistics(inputs)
        average_statistics(self._model, self._worker.group)

    def state(self) -> dict[str, Any]:
        """Return model, optimizer and scaler. See Strategy.state."""
        average_statistics(self._model, self._worker.group)
        exchange = self._settings.exchange
        if isinstance(exchange, ParameterExchange):
            self._agree()
            exchange.average(self._moments())
        state = super().state()
        if exchange is not None:
            state["exchange"] = exchange.state()
        return state

    def load(self, state: dict[str, Any]) -> None:
        """Load what `state` returned. See Strategy.load."""
        super().load(state)
        if self._settings.exchange is not None:
            self._settings.exchange.load(state.get("exchange", {}))

    def close(self) -> None:
        """Drop everything. See Strategy.close."""
        if isinstance(self._settings.exchange, ParameterExchange):
            self._settings.exchange.close()
        super().close()

    def alone_bytes(self) -> int:
        """Return the size of gradients outside of the buckets. See Probeable.alone_bytes."""
        return sum(parameter.nbytes for parameter in self._parameters)

    def _place(self, model: nn.Module) -> nn.Module:
        self._num_averaged = self._num_holders = self._worker.num_replicas
        self._is_graph_known = self._settings.find_unused != "auto"
        if self._settings.exchange is not None:
            trained = {
                name: parameter
                for name, parameter in model.named_parameters()
                if parameter.requires_grad
            }
            self._settings.exchange.setup(trained, self._worker.group)
        if isinstance(self._settings.exchange, ParameterExchange):
            return model
        if isinstance(self._settings.exchange, GradientExchange):
            # A lossy exchange adds the unsent part of a step to a later step, which may have
            # another count. So gradients must be divided before they are exchanged.
            self._settles_before_exchange = not self._settings.exchange.capabilities.scales_loss
        return self._distributed(model, find_unused=self._settings.find_unused is True)

    def _compile(self, placed: nn.Module) -> nn.Module:
        if isinstance(placed, DistributedDataParallel):
            return placed  # only the model inside is compiled: the rest depends on the step
        return super()._compile(placed)

    def _agree_after_step(self) -> None:
        exchange = self._settings.exchange
        if isinstance(exchange, ParameterExchange) and not self._is_alone:
            exchange.after_step()

    def _agree(self) -> None:
        """Give every replica the same weights and mean weights before they are used or stored."""
        exchange = self._settings.exchange
        if isinstance(exchange, ParameterExchange):
            exchange.agree()
            means = self._mean.tensors() if self._mean is not None else []
            exchange.average({str(index): mean for index, mean in enumerate(means)})

    def _moments(self) -> dict[str, Tensor]:
        """Return the state of the optimizer that can be averaged, by parameter and name."""
        return {
            f"{index}.{name}": value
            for index, parameter in enumerate(self._parameters)
            for name, value in self._optimizer.state[parameter].items()
            if isinstance(value, Tensor) and value.is_floating_point()
        }

    def _distributed(self, model: nn.Module, *, find_unused: bool) -> DistributedDataParallel:
        size = self._settings.bucket_bytes
        buckets: dict[str, Any] = {}
        if size is not None:
            buckets["bucket_cap_mb"] = size / 2**20
        placed = DistributedDataParallel(
            compiled(model) if self._settings.compiles else model,
            process_group=self._worker.group.torch_group(),
            gradient_as_bucket_view=True,
            find_unused_parameters=find_unused,
            **_LEAVES_BUFFERS,
            **buckets,
        )
        exchange = self._settings.exchange
        if isinstance(exchange, GradientExchange):
            # Torch checks the type annotations of a hook's parameters. A lambda has none, so it
            # passes.
            placed.register_comm_hook(
                exchange,
                lambda exchange, bucket: self._reduce(exchange, bucket),  # type: ignore[arg-type]
            )
        return placed

    def _reduce(self, exchange: GradientExchange, bucket: Bucket) -> torch.futures.Future[Tensor]:
        """Exchange a bucket once in each step. Sending it twice would round it twice."""
        if not self._is_last:
            return finished(bucket.buffer())
        return exchange.reduce(bucket)

    def _total_count(self, count: Tensor) -> Tensor:
        if self._is_alone or isinstance(self._settings.exchange, ParameterExchange):
            return count * self._num_averaged  # assumes that the others count as many
        return self._worker.group.total(count)

    def _forward(self, inputs: Any, targets: Any) -> Tensor | tuple[Tensor, Tensor | int]:
        placed = self._trained
        if not isinstance(placed, DistributedDataParallel) or not placed.require_backward_grad_sync:
            return super()._forward(inputs, targets)
        if self._is_graph_known:
            return self._synchronised(inputs, targets)
        # The first exchange. Looking for unused parameters in every step costs time, so the graph
        # of this step decides whether the later steps need it. If they do, the model is wrapped
        # again, and this forward pass is repeated with the new wrapper.
        self._is_graph_known = True
        before = [buffer.clone() for buffer in self._model.buffers()]
        loss = self._synchronised(inputs, targets)
        total = loss[0] if isinstance(loss, tuple) else loss
        unused = torch.tensor(
            float(leaves_unused(total, self._parameters)), device=self._worker.device
        )
        if self._worker.group.total(unused).item() == 0:
            return loss
        del loss, total
        placed._remove_autograd_hooks()
        with torch.no_grad():
            for buffer, value in zip(self._model.buffers(), before, strict=True):
                buffer.copy_(value)  # or running statistics would count this pass twice
        self._trained = self._distributed(self._model, find_unused=True)
        return self._synchronised(inputs, targets)

    def _synchronised(self, inputs: Any, targets: Any) -> Tensor | tuple[Tensor, Tensor | int]:
        try:
            return super()._forward(inputs, targets)
        except RuntimeError as error:
            if _UNFINISHED not in str(error):
                raise
            raise ExperimentError(
                "a step did not use some parameters that earlier steps used",
                field="training.find_unused_parameters",
                next_step="Set it to true, so that each step looks for unused parameters.",
            ) from error

    def _exchange_gradients(self, now: bool) -> None:
        # Does the same as DistributedDataParallel.no_sync, without a context manager for each micro
        # batch. If only some micro batches use a parameter, each of them must be exchanged: an
        # exchange after the last one would miss the gradients of the earlier ones.
        placed = self._trained
        if not isinstance(placed, DistributedDataParallel):
            return  # replicas step by themselves
        self._is_last = now
        is_dense = self._is_graph_known and not placed.find_unused_parameters
        placed.require_backward_grad_sync = now or not (is_dense or self._is_alone)


def average_statistics(model: nn.Module, group: Group | Part) -> None:
    """Average the running statistics that each worker has gathered from its own samples.

    Args:
        model: The model on this worker.
        group: The workers. All of them must call it.
    """
    statistics: list[Tensor] = []
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._NormBase):
            statistics += [
                item for item in (module.running_mean, module.running_var) if item is not None
            ]
    if not statistics or group.num_workers == 1:
        return
    with torch.no_grad():
        flat = group.total(torch.cat([item.reshape(-1) for item in statistics])) / group.num_workers
        parts = flat.split([item.numel() for item in statistics])
        for item, mean in zip(statistics, parts, strict=True):
            item.copy_(mean.view_as(item))


def leaves_unused(loss: Tensor, parameters: Iterable[Tensor]) -> bool:
    """Return whether the loss does not depend on some of the parameters.

    Args:
        loss: A scalar with its graph.
        parameters: The trained parameters.

    Returns:
        False as well if some parts of the graph are made only in the backward pass, as by reentrant
        checkpoints, because their parameters cannot be seen.
    """
    reached: set[int] = set()
    for node in _nodes(loss.grad_fn):
        if "CheckpointFunction" in type(node).__name__:
            return False
        variable = getattr(node, "variable", None)
        if variable is not None:
            reached.add(id(variable))
    return any(id(parameter) not in reached for parameter in parameters)


def _nodes(root: Any) -> Iterator[Any]:
    """Yield each node of a graph once."""
    seen, waiting = {root}, [root]
    while waiting:
        node = waiting.pop()
        if node is None:
            continue
        yield node
        for following, _ in node.next_functions:
            if following not in seen:
                seen.add(following)
                waiting.append(following)
