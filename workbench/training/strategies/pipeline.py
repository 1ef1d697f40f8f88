"""Each worker of a replica holds a stage of the model, and micro batches flow through the stages.

Stages pass on activations and gradients through the memory of the host. Replicas of a stage add up
their gradients after the last micro batch, or divide the parameters of the stage like `fsdp`.
Finding the pieces of a model is left to `sequence`, and the order of tasks to `pipeline_order`.

A stage waits only for the gradients of the outputs that it passed on. So linear and convolutional
layers can compute the gradients of their inputs first, and of their weights later. All other layers
compute both at once.

Source: Qi et al. 2024, "Zero Bubble Pipeline Parallelism", section 2.
"""

from __future__ import annotations

import functools
import itertools
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils import _pytree

from workbench.foundation.errors import ExperimentError
from workbench.training.strategies.capabilities import BUILT_IN
from workbench.training.strategies.counted_losses import CountedStep, is_counted, stacked
from workbench.training.strategies.ddp import average_statistics
from workbench.training.strategies.divided_optimizer import PartialOptimizer, gather_on_first
from workbench.training.strategies.pipeline_order import most_under_way, order
from workbench.training.strategies.recompute import recompute_blocks
from workbench.training.strategies.sequence import Piece, costs, cut, pieces_of
from workbench.training.strategies.single import Single, normalisations, on_device
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
from workbench.training.strategies.worker_group import Sent

Waiting = list[Callable[[], None]]
"""Functions that add gradients to weights when they are called."""


def defer_weights(modules: Iterable[nn.Module], waiting: Waiting) -> None:
    """Let layers append the gradients of their weights to `waiting` in each backward pass.

    Args:
        modules: The modules with the layers. Their parameters must be whole.
        waiting: The list. Call everything of a backward pass before the weights are used.
    """
    for module in {layer for outer in modules for layer in outer.modules()}:
        kind = _KINDS.get(type(module))
        if kind is not None and kind.can_wait(module):
            # Changing the class keeps the module, its parameters and its hooks as they are.
            module.__class__ = kind
            cast(Any, module).waiting = waiting


class _Layer(nn.Module):
    """A layer whose weights get their gradients later."""

    weight: Tensor
    bias: Tensor | None
    waiting: Waiting

    @staticmethod
    def can_wait(layer: Any) -> bool:
        return True

    def forward(self, input: Tensor) -> Tensor:
        if not (torch.is_grad_enabled() and self.weight.requires_grad and self.is_batch(input)):
            return self.outputs(input)
        # The weight is an argument only so that autograd calls the backward pass even if the
        # inputs need no gradient.
        return _Later.apply(input, self.weight, self)

    def is_batch(self, inputs: Tensor) -> bool:
        return True

    def outputs(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs)

    def input_gradient(self, inputs: Tensor, gradient: Tensor) -> Tensor:
        raise NotImplementedError

    def weight_gradients(self, inputs: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor | None]:
        raise NotImplementedError

    def add_gradients(self, inputs: Tensor, gradient: Tensor) -> None:
        for parameter, gradient_part in zip(
            (self.weight, self.bias), self.weight_gradients(inputs, gradient), strict=True
        ):
            if parameter is None or gradient_part is None or not parameter.requires_grad:
                continue
            if parameter.grad is None:
                parameter.grad = gradient_part.to(parameter.dtype)
            else:
                parameter.grad += gradient_part


class _Linear(_Layer, nn.Linear):
    def input_gradient(self, inputs: Tensor, gradient: Tensor) -> Tensor:
        return gradient @ self.weight.to(gradient.dtype)

    def weight_gradients(self, inputs: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor | None]:
        flat = gradient.reshape(-1, self.out_features)
        bias = flat.sum(0) if self.bias is not None else None
        return flat.t() @ inputs.reshape(-1, self.in_features), bias


class _Convolution(_Layer):
    @staticmethod
    def can_wait(layer: Any) -> bool:
        return layer.padding_mode == "zeros" and not isinstance(layer.padding, str)

    def is_batch(self, inputs: Tensor) -> bool:
        return inputs.ndim == self.weight.ndim

    def input_gradient(self, inputs: Tensor, gradient: Tensor) -> Tensor:
        return self._backward(inputs, gradient, True)[0]

    def weight_gradients(self, inputs: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor | None]:
        _, weight, bias = self._backward(inputs, gradient, False)
        return weight, bias

    def _backward(
        self, inputs: Tensor, gradient: Tensor, is_of_inputs: bool
    ) -> tuple[Any, Any, Any]:
        layer: Any = self
        has_bias = self.bias is not None
        return torch.ops.aten.convolution_backward(
            gradient,
            inputs,
            self.weight.to(gradient.dtype),
            [layer.out_channels] if has_bias else None,
            layer.stride,
            layer.padding,
            layer.dilation,
            False,
            layer.output_padding,
            layer.groups,
            [is_of_inputs, not is_of_inputs, has_bias and not is_of_inputs],
        )


class _Convolution1d(_Convolution, nn.Conv1d):
    pass


class _Convolution2d(_Convolution, nn.Conv2d):
    pass


_KINDS: dict[type[nn.Module], type[_Layer]] = {
    nn.Linear: _Linear,
    nn.Conv1d: _Convolution1d,
    nn.Conv2d: _Convolution2d,
}


class _Later(torch.autograd.Function):
    """A layer whose backward pass skips the weights, and adds them to the waiting list."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, layer: _Layer) -> Tensor:
        outputs = layer.outputs(inputs)
        ctx.save_for_backward(inputs.to(outputs.dtype))  # as autocast does
        ctx.layer = layer
        return outputs

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, None]:  # type: ignore[override]
        (inputs,) = ctx.saved_tensors
        layer: _Layer = ctx.layer
        layer.waiting.append(functools.partial(layer.add_gradients, inputs, gradient))
        gradient_of_inputs = None
        if ctx.needs_input_grad[0]:
            gradient_of_inputs = layer.input_gradient(inputs, gradient)
        return gradient_of_inputs, None, None


class Pipeline(Single):
    """The step of `single`, with the model cut into stages."""

    capabilities = BUILT_IN["pipeline"]
    # These need the whole model on each worker. None says that a stage cannot do them.
    measure: Any = None
    alone: Any = None

    def setup(self, model: nn.Module, optimizer: OptimizerFactory, worker: Worker) -> None:
        """Keep this worker's stage of the model and make its optimizer. See Strategy.setup."""
        self._settings.check_for_parts("a model that is cut into stages")
        self._worker, self._model, self._trained = worker, model, model
        self._num_stages = worker.workers_per_replica
        self._stage = worker.rank % self._num_stages
        self._sent: list[Sent] = []
        self._mixes_samples = bool(normalisations(model))
        stages = self._cut(model)
        named = [item for item in model.named_parameters() if item[1].requires_grad]
        groups = self._settings.groups(named)
        everything: list[Tensor] = parameters_in(groups)
        holders = _holders(model, stages)
        ours = [
            number for number, held in enumerate(everything) if self._stage in holders[id(held)]
        ]
        # Several stages may hold the same parameter, such as tied embeddings. The first of them
        # stores it and counts it in norms.
        first = {key for key, stages_of_it in holders.items() if stages_of_it[0] == self._stage}
        state = model.state_dict(keep_vars=True)
        self._names = {name for name, tensor in state.items() if id(tensor) in first}
        self._numbers = {number for number in ours if id(everything[number]) in first}
        _drop(model, {key for key, stages_of_it in holders.items() if self._stage in stages_of_it})
        on_device(model, worker.device)
        self._replicas = worker.group.across(self._num_stages)
        sent = self._numbers if worker.replica == 0 else ()
        placed = self._place_pieces(model, stages[self._stage])
        self._schedule = self._settings.pipeline_schedule
        self._waiting = Waiting()
        if self._schedule == "zero_bubble":
            defer_weights(
                itertools.chain(*(piece.modules for piece in stages[self._stage])), self._waiting
            )
        groups = [
            {**item, "params": [placed.get(id(whole), whole) for whole in item["params"]]}
            for item in groups
        ]
        identities = [id(everything[number]) for number in ours]
        self._parameters = [placed[identity] for identity in identities]
        self._counted = [placed[identity] for identity in identities if identity in first]
        self._tied = [(placed[key], holders[key]) for key in identities if len(holders[key]) > 1]
        self._optimizer = cast(
            Optimizer, PartialOptimizer(optimizer, groups, ours, sent, worker.group)
        )
        self._scaler = None
        self._mean = self._begin_mean()

    def forward_backward(self, batch: StepBatch) -> Tensor:
        """Compute the gradient of a step. See Strategy.forward_backward."""
        mark = self._settings.mark
        micro_batches = iter(batch)
        under_way: deque[tuple[Any, Tensor]] = deque()
        without_weights: deque[Waiting] = deque()
        step_loss = torch.zeros((), device=self._worker.device)
        counted = CountedStep(batch.num_samples) if is_counted(self._settings.loss) else None
        self._counted_step = counted
        for task, number in order(self._schedule, self._stage, self._num_stages, len(batch)):
            # Tasks come in the order of micro batches within each kind, so queues are enough.
            if task == "weights":
                for add_gradients in without_weights.popleft():
                    add_gradients()
            elif task == "backward":
                # With shards, only the last micro batch of a step exchanges gradients.
                if self._is_sharded and number in (0, len(batch) - 1):
                    cast(Any, self._pieces[0].call).set_requires_gradient_sync(
                        number == len(batch) - 1
                    )
                self._backward(*under_way.popleft())
                without_weights.append([*self._waiting])
                self._waiting.clear()
            else:
                micro_batch = next(micro_batches)
                mark("data")
                received = self._received(micro_batch.inputs)
                compute = functools.partial(self._stage_pass, received, micro_batch.targets)
                self._choose_kept(compute, self._num_under_way(len(batch)))
                with self._autocast:
                    result = compute()
                if self._is_last and counted is not None:
                    counted.add(stacked(*result), micro_batch.weight)
                    result = result[0] * counted.part(micro_batch.weight) * self._num_averaged
                elif self._is_last:
                    result = result * micro_batch.weight
                    step_loss = step_loss + result.detach()
                    result = result * self._num_averaged
                else:
                    self._send(result, self._worker.rank + 1)
                under_way.append((received, result))
            mark("forward" if task == "forward" else "backward")
        self._finish_sending()
        self._exchange()
        if counted is not None:
            step_loss = counted.finish(
                self._parameters, self._worker.group.total, self._worker.device
            )
        mark("backward")
        return step_loss

    def predict(self, inputs: Any) -> Any:
        """Return the outputs for a batch on the last stage, and None on the others.

        See Strategy.predict.
        """
        with self._without_gradients(), self._autocast:
            self._finish_sending()
            result = self._compute(self._received(inputs))
            if self._is_last:
                return result
            self._send(result, self._worker.rank + 1)
            return None

    def train(self, mode: bool) -> None:
        """Switch dropout and batch statistics on or off. See Strategy.train."""
        self._finish_sending()
        self._reshard()
        super().train(mode)  # first, because it decides whose statistics the model holds
        if not mode:
            average_statistics(self._model, self._replicas)

    @property
    def needs_statistics(self) -> bool:
        """Whether statistics of batch normalisation are missing. See StatisticsRenewing."""
        mean = self._mean
        return (
            self._mixes_samples and mean is not None and mean.is_begun and not mean.keeps_statistics
        )

    def renew_statistics(self, inputs: Iterable[Any]) -> None:
        """Gather the mean statistics of all batches. See StatisticsRenewing.renew_statistics."""
        super().renew_statistics(inputs)
        average_statistics(self._model, self._replicas)

    def state(self) -> dict[str, Any]:
        """Return model and optimizer, gathered on rank 0. See Strategy.state."""
        self._finish_sending()
        self._reshard()
        average_statistics(self._model, self._replicas)
        state = super().state()
        for key in WEIGHTS:
            if key in state:
                held = ((name, gathered(value)) for name, value in state[key].items())
                sends = self._names if self._worker.replica == 0 else ()
                own = {name: {"": value} for name, value in held if name in sends}
                whole = gather_on_first(own, self._worker.group)
                state[key] |= {name: values[""] for name, values in whole.items()}
        return state

    def parts(self) -> StateParts:
        """Return the part of the state that this worker writes. See WritableInParts.parts."""
        self._finish_sending()
        self._reshard()
        average_statistics(self._model, self._replicas)
        optimizer = cast(PartialOptimizer, self._optimizer).held_state()
        place = Place(*divmod(self._worker.replica, self._settings.shard or 1), 0)

        def place_of(key: Key) -> Place | None:
            is_ours = key[1] in self._names if key[0] in WEIGHTS else key[2] in self._numbers
            return place if is_ours else None

        return parts_of({**self._weights(), "optimizer": optimizer, "scaler": None}, place_of)

    def load(self, state: dict[str, Any]) -> None:
        """Load this stage's part of a strategy's state. See Strategy.load."""
        self._reshard()
        own: Any = self._model.state_dict()
        weights: dict[str, Any] = {}
        for key in filter(state.__contains__, WEIGHTS):
            held: Any = OrderedDict(
                (name, own_shard(value, own[name]))
                for name, value in state[key].items()
                if name in own
            )
            # The metadata has the versions of layers. Without them, torch takes the state for an
            # old one, and adds batch counters to the layers of other stages.
            held._metadata = own._metadata
            weights[key] = held
        super().load({**state, **weights})

    def close(self) -> None:
        """Drop everything. See Strategy.close."""
        del self._pieces, self._tied, self._counted, self._replicas, self._sent
        super().close()

    @property
    def _is_last(self) -> bool:
        return self._stage == self._num_stages - 1

    def _cut(self, model: nn.Module) -> list[list[Piece]]:
        """Return the pieces of each stage."""
        pieces = pieces_of(model, self._num_stages)
        if self._settings.recompute:
            modules = [module for piece in pieces for module in piece.modules]
            blocks = [module for module in modules if any(True for _ in module.children())]
            self._blocks = recompute_blocks(nn.ModuleList(blocks))
        # Zeros are enough, because only shapes matter. They are on the CPU because the model is.
        example = _pytree.tree_map_only(
            Tensor, lambda part: torch.zeros(part.shape, dtype=part.dtype), self._settings.example
        )
        model.eval()
        firsts = cut(costs(pieces, example), self._num_stages)
        model.train()
        return [pieces[first:end] for first, end in itertools.pairwise(firsts)]

    def _place_pieces(self, model: nn.Module, pieces: list[Piece]) -> dict[int, Tensor]:
        """Keep the pieces of this stage. Their parameters are cut if replicas divide them.

        Returns:
            The tensor that is trained in place of each parameter, by the parameter's identity.
        """
        shard = self._settings.shard or 1
        self._pieces = pieces
        self._is_sharded = shard > 1
        self._num_holders = self._worker.num_replicas // shard
        places = [
            (id(parameter), module._parameters, name)
            for module in model.modules()
            for name, parameter in module._parameters.items()
            if parameter is not None
        ]
        if self._is_sharded:
            from workbench.training.strategies.fsdp import cut_pieces, mesh_of

            self._without_gradients = torch.no_grad
            self._num_averaged = self._worker.num_replicas
            self._pieces = [cut_pieces(pieces, mesh_of(self._worker, shard, always="shard"))]
        placed: dict[int, Any] = {}
        # A parameter may also be in modules of other stages, where it was not cut. Sorting puts
        # the cut one last, so that it wins.
        for identity, held, name in sorted(places, key=lambda place: is_cut(place[1][place[2]])):
            placed[identity] = held[name]
        for identity, held, name in places:
            held[name] = placed[identity]
        return placed

    def _reshard(self) -> None:
        if self._is_sharded:
            from workbench.training.strategies.fsdp import reshard

            reshard(cast(nn.Module, self._pieces[0].call))

    def _received(self, inputs: Any) -> Any:
        """Return the inputs of this stage: the model's inputs, or the previous stage's outputs."""
        if self._stage == 0:
            return inputs
        received = self._worker.group.receive(self._worker.rank - 1)
        return received.requires_grad_(received.is_floating_point() and torch.is_grad_enabled())

    def _compute(self, values: Any) -> Any:
        for piece in self._pieces:
            values = piece.call(values)
        return values

    def _stage_pass(self, received: Any, targets: Any) -> Any:
        """Return the values for the next stage, or the loss on the last one."""
        result = self._compute(received)
        if not self._is_last:
            return result
        return self._compared(result, targets)

    def _num_under_way(self, num_micro_batches: int) -> int:
        return most_under_way(self._schedule, self._stage, self._num_stages, num_micro_batches)

    def _send(self, values: Any, receiver: int) -> None:
        if not isinstance(values, Tensor):
            raise ExperimentError(
                f"a piece of the model returns {type(values).__name__}, but stages can only pass on"
                " one tensor",
                field="plan.stages",
                allowed="pieces that return one tensor",
            )
        self._sent.append(self._worker.group.send(values, receiver))

    def _backward(self, received: Any, result: Tensor) -> None:
        group, rank = self._worker.group, self._worker.rank
        gradient = None
        if not self._is_last:
            gradient = group.receive(rank + 1, result)
        if result.requires_grad:
            torch.autograd.backward(result, gradient)
        if self._stage > 0:
            gradient = received.grad
            if gradient is None:
                gradient = torch.zeros_like(received)
            self._sent.append(group.send(gradient, rank - 1, is_known=True))

    def _finish_sending(self) -> None:
        sent, self._sent = self._sent, []
        for sending in sent:
            sending.wait()

    def _exchange(self) -> None:
        """Add up gradients of tied weights over stages, then all gradients over replicas."""
        group, first = self._worker.group, self._worker.rank - self._stage
        # The first holder adds up, and sends the sum back. All stages visit tied parameters in the
        # same order, and each one waits for its sends, so no two stages wait for each other.
        for parameter, holders in self._tied:
            gradient = _gradient(parameter)
            if self._stage == holders[0]:
                for other in holders[1:]:
                    gradient = gradient + group.receive(first + other, gradient)
                for other in holders[1:]:
                    self._sent.append(group.send(gradient, first + other, is_known=True))
            else:
                self._sent.append(group.send(gradient, first + holders[0], is_known=True))
                gradient = group.receive(first + holders[0], gradient)
            _gradient(parameter).copy_(gradient)
            self._finish_sending()
        if self._replicas.num_workers > 1 and not self._is_sharded:
            for parameter in self._parameters:
                parameter.grad = self._replicas.total(_gradient(parameter))

    def _clip(self, largest_norm: float) -> None:
        norms = [
            local_part(parameter.grad).double().square().sum()
            for parameter in self._counted
            if parameter.grad is not None
        ]
        own = torch.zeros((), dtype=torch.float64)
        if norms:
            own = torch.stack(norms).sum()
        # All copies of a parameter are in the sum, so it is divided by their number. The small
        # number in the next line is the one in torch's clip_grad_norm_.
        total = self._worker.group.total(own.to(self._worker.device)) / self._num_holders
        factor = (largest_norm / (total.sqrt() + 1e-6)).clamp(max=1.0)
        for parameter in self._parameters:
            if parameter.grad is not None:
                local_part(parameter.grad).mul_(factor.to(parameter.grad.dtype))


def _holders(model: nn.Module, stages: list[list[Piece]]) -> dict[int, list[int]]:
    """Return the stages that need each parameter and buffer, by identity.

    Tensors that no piece uses belong to the first stage.
    """
    holders: dict[int, list[int]] = {}
    for stage, pieces in enumerate(stages):
        modules = [module for piece in pieces for module in piece.modules]
        for identity in {id(tensor) for module in modules for tensor in _tensors(module)}:
            holders.setdefault(identity, []).append(stage)
    return {id(tensor): [0] for tensor in _tensors(model)} | holders


def _gradient(parameter: Tensor) -> Tensor:
    """Return this worker's part of a gradient. A missing gradient becomes zeros."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return local_part(parameter.grad)


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    return itertools.chain(module.parameters(), module.buffers())


def _drop(model: nn.Module, kept: set[int]) -> None:
    """Drop the parameters and buffers that only other stages hold."""
    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                if tensor is not None and id(tensor) not in kept:
                    tensors[name] = None
