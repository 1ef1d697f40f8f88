"""Each worker of a replica holds a part of every large layer, and they add up the results.

Layers are cut with torch's tensor parallelism, which exchanges activations twice per block. A model
lists its pairs of linear layers in `layer_pairs`, or is a plain sequence. The first layer of a pair
is cut by outputs and the second by inputs. So only the results of the second layers are exchanged
and added up. The optimizer works on this worker's part. Replicas may divide these parts among
themselves, like `fsdp`.

Source: Shoeybi et al. 2019, "Megatron-LM: Training Multi-Billion Parameter Language Models Using
Model Parallelism".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.optim import Optimizer

from workbench.foundation.errors import ExperimentError
from workbench.training.strategies.capabilities import BUILT_IN
from workbench.training.strategies.ddp import average_statistics
from workbench.training.strategies.fsdp import cut_parameters, mesh_of, reshard
from workbench.training.strategies.kept_blocks import PassCost
from workbench.training.strategies.recompute import recompute_blocks
from workbench.training.strategies.single import Single, on_device
from workbench.training.strategies.strategy import (
    OptimizerFactory,
    StepBatch,
    Worker,
    parameters_in,
)
from workbench.training.strategies.tensor_shards import (
    WEIGHTS,
    Key,
    Place,
    StateParts,
    gathered,
    is_cut,
    local_part,
    own_shard,
    parts_of,
)

_ON_EACH_VALUE = (
    nn.ReLU,
    nn.GELU,
    nn.SiLU,
    nn.Tanh,
    nn.Sigmoid,
    nn.LeakyReLU,
    nn.ELU,
    nn.Dropout,
    nn.Identity,
)


class TensorParallel(Single):
    """The step of `single`, with every large layer cut into parts."""

    capabilities = BUILT_IN["tensor"]
    # These need the whole model on each worker. None says that a part of it cannot do them.
    measure: Any = None
    alone: Any = None

    def setup(self, model: nn.Module, optimizer: OptimizerFactory, worker: Worker) -> None:
        """Keep this worker's part of the model and make its optimizer. See Strategy.setup."""
        self._settings.check_for_parts("a model whose layers are cut")
        self._worker = worker
        self._num_parts = worker.workers_per_replica
        self._is_first = worker.rank % self._num_parts == 0
        self._model = on_device(model, worker.device)
        self._blocks = recompute_blocks(self._model) if self._settings.recompute else ()
        shard = self._settings.shard or 1
        mesh = mesh_of(worker, shard, always="part")
        self._orders: dict[str, RowOrder] = cut_layers(self._model, mesh[mesh.mesh_dim_names[-1]])
        self._replicas = worker.group.across(self._num_parts)
        self._exchanges = True
        self._is_sharded = shard > 1
        if self._is_sharded:
            cut_parameters(self._model, mesh)
            self._num_averaged = worker.num_replicas
            self._without_gradients = torch.no_grad
        self._trained = self._model
        named = [item for item in self._model.named_parameters() if item[1].requires_grad]
        groups = self._settings.groups(named)
        names = {id(parameter): name for name, parameter in named}
        self._parameters = parameters_in(groups)
        self._names = [names[id(parameter)] for parameter in self._parameters]
        # Torch cannot update cut and whole parameters in one call, but it can update their local
        # parts.
        self._own = [nn.Parameter(local_part(parameter.detach())) for parameter in self._parameters]
        left = iter(self._own)
        parts = [{**item, "params": [next(left) for _ in item["params"]]} for item in groups]
        self._optimizer: Optimizer = optimizer(parts)
        self._scaler = None
        self._mean = self._begin_mean()

    def forward_backward(self, batch: StepBatch) -> Tensor:
        """Compute the gradient of a step. See Strategy.forward_backward."""
        loss = super().forward_backward(batch)
        for parameter, own in zip(self._parameters, self._own, strict=True):
            gradient = parameter.grad
            if gradient is None:
                own.grad = torch.zeros_like(own)
            else:
                own.grad = local_part(gradient)
            if self._replicas.num_workers > 1 and not self._is_sharded:
                own.grad = self._replicas.total(own.grad)
            parameter.grad = None
        self._settings.mark("backward")
        # Every worker of a replica has the loss, but the shares of all workers must add up to it.
        if not self._is_first:
            return torch.zeros_like(loss)
        return loss

    def predict(self, inputs: Any) -> Any:
        """Return the outputs for a batch on the first worker of a replica. See Strategy.predict."""
        outputs = super().predict(inputs)
        if not self._is_first:
            return None
        return outputs

    def train(self, mode: bool) -> None:
        """Switch dropout and batch statistics on or off. See Strategy.train."""
        reshard(self._model)
        super().train(mode)
        if not mode:
            average_statistics(self._model, self._replicas)

    def state(self) -> dict[str, Any]:
        """Return the whole model and optimizer on every worker. See Strategy.state."""
        state = self._held()
        for key in WEIGHTS:
            if key in state:
                state[key] = {name: self._whole(name, value) for name, value in state[key].items()}
        optimizer = state["optimizer"]
        optimizer["state"] = {
            number: {key: self._whole(self._names[number], value) for key, value in values.items()}
            for number, values in optimizer["state"].items()
        }
        return state

    def parts(self) -> StateParts:
        """Return the part of the state that this worker writes. See WritableInParts.parts."""
        worker = self._worker
        copy, shard = divmod(worker.replica, self._settings.shard or 1)
        place = Place(copy, shard, worker.rank % self._num_parts)

        def rows(key: Key) -> Any:
            name = str(key[1])
            if key[0] not in WEIGHTS:
                name = self._names[cast(int, key[2])]
            order = self._orders.get(name)
            if order is None:
                return None
            return order.arrange

        return parts_of(self._held(), lambda key: place, rows)

    def _held(self) -> dict[str, Any]:
        """Return the state with cut tensors, of which this worker holds its part."""
        reshard(self._model)
        state = super().state()
        optimizer = state["optimizer"]
        optimizer["state"] = {
            number: {key: self._cut_as(number, value) for key, value in values.items()}
            for number, values in optimizer["state"].items()
        }
        return state

    def load(self, state: dict[str, Any]) -> None:
        """Load this worker's part of a strategy's state. See Strategy.load."""
        own = self._model.state_dict()
        weights = {
            key: {name: self._part(name, value, own[name]) for name, value in state[key].items()}
            for key in WEIGHTS
            if key in state
        }
        optimizer = dict(state["optimizer"])
        optimizer["state"] = {
            number: {key: self._own_state(number, value) for key, value in values.items()}
            for number, values in optimizer["state"].items()
        }
        super().load({**state, **weights, "optimizer": optimizer})

    def _own_state(self, number: int, value: Any) -> Any:
        """Return this worker's part of a value that the optimizer keeps for a parameter."""
        if not isinstance(value, Tensor):
            return value
        return local_part(self._part(self._names[number], value, self._parameters[number]))

    def close(self) -> None:
        """Drop everything. See Strategy.close."""
        del self._own, self._orders, self._replicas
        super().close()

    def _total_count(self, count: Tensor) -> Tensor:
        return self._replicas.total(count)

    def _agreed(self, cost: PassCost) -> PassCost:
        """Return the costs on the first worker.

        Recomputing a block exchanges activations, so all workers must recompute the same blocks.
        """
        return cast(PassCost, self._worker.group.broadcast(cost))

    def _clip(self, largest_norm: float) -> None:
        sqr_norm = torch.zeros((), dtype=torch.float64, device=self._worker.device)
        for parameter, own in zip(self._parameters, self._own, strict=True):
            if own.grad is not None:
                # The sum over all workers counts a parameter once for each of its copies.
                share = _num_shards(parameter) / self._worker.num_workers
                sqr_norm = sqr_norm + own.grad.double().square().sum() * share
        total = self._worker.group.total(sqr_norm)
        factor = (largest_norm / (total.sqrt() + 1e-6)).clamp(max=1.0)
        for own in self._own:
            if own.grad is not None:
                own.grad.mul_(factor.to(own.grad.dtype))

    def _whole(self, name: str, value: Any) -> Any:
        order = self._orders.get(name) if is_cut(value) else None
        if order is None:
            return gathered(value)
        return order.restore(gathered(value))

    def _cut_as(self, number: int, value: Any) -> Any:
        """Return the optimizer's state of a part of a parameter, marked as part of the whole."""
        parameter: Any = self._parameters[number]
        if not is_cut(parameter) or not isinstance(value, Tensor) or value.ndim == 0:
            return value
        if value.shape != self._own[number].shape:
            return value
        return DTensor.from_local(
            value,
            parameter.device_mesh,
            parameter.placements,
            run_check=False,
            shape=parameter.shape,
            stride=parameter.stride(),
        )

    def _part(self, name: str, value: Any, like: Any) -> Any:
        order = self._orders.get(name)
        if order is not None and isinstance(value, Tensor) and value.shape == like.shape:
            value = order.arrange(value)
        return own_shard(value, like)

    def _exchange_gradients(self, now: bool) -> None:
        if self._is_sharded and now != self._exchanges:
            cast(Any, self._model).set_requires_gradient_sync(now)
            self._exchanges = now


def _num_shards(parameter: Tensor) -> int:
    """Return how many workers share one copy of a parameter."""
    if not is_cut(parameter):
        return 1
    cut: Any = parameter
    mesh = cut.device_mesh
    return math.prod(
        mesh.size(number) for number, way in enumerate(cut.placements) if not way.is_replicate()
    )


@dataclass(frozen=True)
class RowOrder:
    """Orders rows of several blocks so that a cut gives each worker its part of every block.

    A fused layer of query, key and value has three blocks. Cut as they are, the first worker would
    get the queries of all heads. Arranged, it gets query, key and value of its own heads.

    Attributes:
        num_blocks: Equal blocks in the order of the model, such as query, key and value.
        num_parts: Parts of each block.
    """

    num_blocks: int
    num_parts: int

    def arrange(self, whole: Tensor) -> Tensor:
        """Return rows in the order for cutting."""
        return self._swapped(whole, self.num_blocks, self.num_parts)

    def restore(self, arranged: Tensor) -> Tensor:
        """Return arranged rows in the order of the model."""
        return self._swapped(arranged, self.num_parts, self.num_blocks)

    @staticmethod
    def _swapped(rows: Tensor, first: int, second: int) -> Tensor:
        cut = rows.reshape(first, second, -1, *rows.shape[1:])
        return cut.transpose(0, 1).reshape(rows.shape).contiguous()


def cut_layers(model: nn.Module, mesh: Any) -> dict[str, RowOrder]:
    """Cut the layers of a model in place.

    Args:
        model: A `nn.Sequential`, or a model with a method `layer_pairs`. For each pair, it returns
            the names of two linear layers, and the number of blocks in the rows of the first one.
            Its method `take_part`, if there is one, is called when the model is cut.
        mesh: The workers of a replica, in one dimension.

    Returns:
        The order of the rows of each parameter that was arranged.

    Raises:
        ExperimentError: If the model cannot be cut.
    """
    num_parts = int(mesh.size())
    orders: dict[str, RowOrder] = {}
    layers: dict[str, Any] = {}
    for first, second, num_blocks in prepare_cut(model, num_parts):
        layers |= {first: ColwiseParallel(), second: RowwiseParallel()}
        if num_blocks > 1:
            order = RowOrder(num_blocks, num_parts)
            for name, parameter in model.get_submodule(first).named_parameters():
                orders[f"{first}.{name}"] = order
                with torch.no_grad():
                    parameter.copy_(order.arrange(parameter.detach()))
    parallelize_module(model, mesh, layers, src_data_rank=None)
    return orders


def prepare_cut(model: nn.Module, num_parts: int) -> list[tuple[str, str, int]]:
    """Prepare a model for computing with parts of its layers. They are not cut yet.

    Args:
        model: As in `cut_layers`.
        num_parts: Parts of each layer.

    Returns:
        The pairs of layers to cut.

    Raises:
        ExperimentError: If the model cannot be cut.
    """
    pairs = _pairs_of(model)
    names: dict[int, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names[id(parameter)] = "" if id(parameter) in names else name
    for first, second, num_blocks in pairs:
        for layer in (first, second):
            weights = model.get_submodule(layer).parameters()
            if any(not names[id(weight)] for weight in weights):
                raise ExperimentError(
                    f"{layer} cannot be cut, because it shares its weights with another layer",
                    field="plan.tensor",
                    allowed="1",
                )
        linear: Any = model.get_submodule(first)
        if linear.out_features % (num_blocks * num_parts):
            raise ExperimentError(
                f"{first} has {linear.out_features // num_blocks} outputs, which cannot be divided"
                f" equally among {num_parts} workers",
                field="plan.tensor",
                allowed=f"a divisor of {linear.out_features // num_blocks}",
            )
    take_part = getattr(model, "take_part", None)
    if take_part is not None:
        take_part(num_parts)
    return pairs


def _pairs_of(model: nn.Module) -> list[tuple[str, str, int]]:
    """Return the pairs that a model lists, or the pairs of linear layers in a sequence.

    Only functions of single values, such as activations, may be between the two layers of a pair.
    """
    if hasattr(model, "layer_pairs"):
        pairs = list(cast(Any, model).layer_pairs())
    elif isinstance(model, nn.Sequential):
        pairs, first = [], ""
        for name, layer in model.named_children():
            if isinstance(layer, nn.Linear):
                pairs += [(first, name, 1)] if first else []
                first = "" if first else name
            elif not isinstance(layer, _ON_EACH_VALUE):
                first = ""
    else:
        raise ExperimentError(
            f"the layers of a {type(model).__name__} cannot be cut: their pairs are unknown",
            field="plan.tensor",
            allowed=("1, or more with transformer, mlp, nn.Sequential or a model with layer_pairs"),
            next_step="Add a method layer_pairs, set plan.tensor to 1, or use the strategy fsdp.",
        )
    if not pairs:
        raise ExperimentError(
            f"a {type(model).__name__} has no pair of linear layers that can be cut",
            field="plan.tensor",
            allowed="1",
        )
    return pairs
