"""Parameters, gradients and optimizer state are cut into shards, one for each worker (torch's
FSDP2).

A block's parameters are gathered when the block is computed and dropped afterwards, so a model may
be larger than one device. All workers must call the model equally often: see StepBatch and
`predict`. With hybrid sharding some workers, such as those of a node, divide a copy of the
parameters among them; those that hold the same shard of different copies add up its gradients.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.utils import _pytree

from workbench.training.strategies.capabilities import BUILT_IN
from workbench.training.strategies.compiling import as_it_is, compile_forward
from workbench.training.strategies.ddp import DataParallel
from workbench.training.strategies.sharding import cut_parameters, mesh_of, reshard
from workbench.training.strategies.shards import own_shard
from workbench.training.strategies.state_parts import WEIGHTS, Place, StateParts, parts_of


class FullySharded(DataParallel):
    """The step of `ddp`, with everything that training remembers cut into shards."""

    capabilities = BUILT_IN["fsdp"]
    _without_gradients = torch.no_grad

    def predict(self, inputs: Any) -> Any:
        """Return the outputs for a batch; see Strategy.predict."""
        with as_it_is():
            return super().predict(inputs)

    def train(self, mode: bool) -> None:
        """Switch dropout and batch statistics on or off; see Strategy.train."""
        if (
            self._mean is not None
        ):  # which is exchanged with shards, and predicting leaves some gathered
            reshard(self._model)
        super().train(mode)

    def state(self) -> dict[str, Any]:
        """Return model, optimizer and scaler, gathered on rank 0; see Strategy.state."""

        def gather(shard: DTensor) -> Tensor | None:
            whole = shard.full_tensor()
            return whole.cpu() if self._worker.rank == 0 else None

        return _pytree.tree_map_only(DTensor, gather, super().state())

    def parts(self) -> StateParts:
        """Return what this worker writes of the state; see WritableInParts.parts."""
        copy, shard = divmod(self._worker.rank, self._worker.num_workers // self._num_holders)
        return parts_of(super().state(), lambda key: Place(copy, shard, 0))

    def load(self, state: dict[str, Any]) -> None:
        """Take over what a strategy returned; see Strategy.load."""
        own = self._model.state_dict()
        weights = {
            key: {
                name: own_shard(value, own[name])
                for name, value in state[key].items()
                if name in own
            }
            for key in WEIGHTS
            if key in state
        }
        optimizer = dict(state["optimizer"])
        optimizer["state"] = {
            index: {
                name: own_shard(value, self._parameters[index]) for name, value in values.items()
            }
            for index, values in optimizer["state"].items()
        }
        super().load({**state, **weights, "optimizer": optimizer})

    def alone_bytes(self) -> int:
        """Return the size of all parameters and gradients; see Probeable.alone_bytes."""
        return 2 * sum(
            parameter.numel() * parameter.element_size() for parameter in self._parameters
        )

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Compute on parameters that were gathered before; see Probeable.alone.

        Parameters and gradients are held whole meanwhile. There must have been a step before.
        """
        cut = [module for module in self._model.modules() if isinstance(module, FSDPModule)]
        self._keep_gathered(cut, True)
        for module in cut:
            module.unshard()
        try:
            with super().alone():
                yield
        finally:
            for (
                parameter
            ) in self._model.parameters():  # whole ones, which the optimizer does not know
                parameter.grad = None
            self._keep_gathered(cut, False)
            for module in cut:
                module.reshard()

    def _keep_gathered(self, cut: Sequence[FSDPModule], kept: bool) -> None:
        for module in cut:
            module.set_reshard_after_backward(not kept, recurse=False)
            if (
                module is not self._model
            ):  # whose parameters stay gathered after the forward pass anyway
                module.set_reshard_after_forward(not kept, recurse=False)

    def close(self) -> None:
        """Drop everything; see Strategy.close."""
        self._whole_parameters.clear()
        super().close()

    def _place(self, model: nn.Module) -> nn.Module:
        self._num_averaged = self._worker.num_replicas
        self._exchanges = True
        self._whole_parameters: list[Tensor] = []
        shard = self._settings.shard or self._worker.num_workers
        self._num_holders = self._worker.num_workers // shard
        cut_parameters(
            model,
            mesh_of(self._worker, shard, always="shard"),
            prepare=compile_forward if self._settings.compiles else None,
        )
        return model

    def _leaves(self) -> Iterable[Tensor]:
        if not self._whole_parameters:  # torch gathers them into the same ones again and again
            for module in self._model.modules():
                if isinstance(module, FSDPModule):
                    module.unshard()
                    whole = [item for item in module.parameters() if not isinstance(item, DTensor)]
                    module.reshard()
                    self._whole_parameters += [item for item in whole if item.requires_grad]
        return self._whole_parameters

    def _exchange_gradients(self, now: bool) -> None:
        if now != self._exchanges:  # the call visits every module of the model
            assert isinstance(self._model, FSDPModule)
            self._model.set_requires_gradient_sync(now)
            self._exchanges = now
