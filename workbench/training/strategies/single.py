"""One worker. Other strategies extend its step, and must compute the same result.

The kernels of micro batches can be recorded in CUDA graphs and replayed, which saves launches. A
recording is a forward and a backward pass over samples of one shape. Its gradients are added to the
existing ones. The update, and everything between steps, is computed as usual. Which plans can be
recorded is left to `capabilities`.

Source: PyTorch documentation, "CUDA semantics", section "CUDA Graphs" (whole-network capture).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from workbench.foundation.errors import ExperimentError
from workbench.models.model_calls import map_tensors
from workbench.training.strategies.capabilities import BUILT_IN
from workbench.training.strategies.counted_losses import CountedStep, is_counted, stacked
from workbench.training.strategies.gradient_norms import WatchedBatch
from workbench.training.strategies.kept_blocks import PassCost, keep_what_fits
from workbench.training.strategies.recompute import Block, recompute_blocks
from workbench.training.strategies.strategy import (
    MeasuredStep,
    OptimizerFactory,
    StepBatch,
    StepSettings,
    Worker,
    compiled,
    forget_compiled,
    parameters_in,
)
from workbench.training.strategies.weight_mean import WeightMean

NUM_AS_THEY_ARE = 2
"""How many micro batches of a shape are computed before one is recorded.

Libraries such as cuDNN choose kernels and allocate workspaces in the first ones. That must not be
part of a recording.
"""
MAX_RECORDED = 16
"""Maximum number of recorded shapes. Micro batches of other shapes are computed as usual."""

Forward = Callable[[Any, Any, float], tuple[Tensor, Tensor]]
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_NUM_DIMENSIONS = 4


@dataclass(frozen=True)
class _Recording:
    """The recording of one shape: the tensors for its samples, its two passes, and its loss."""

    samples: Sequence[Tensor]
    forward: torch.cuda.CUDAGraph
    backward: torch.cuda.CUDAGraph
    loss: Tensor


class Recorder:
    """Computes micro batches, and replays those of a shape that it has seen often enough."""

    def __init__(self, forward: Forward, mark: Callable[[str], None]) -> None:
        """Make a recorder for one model.

        Args:
            forward: (inputs, targets, part) -> the loss, and where the backward pass starts: the
                loss times its part of the step, scaled.
            mark: Called at the end of each pass with its name.
        """
        self._forward = forward
        self._mark = mark
        self._num_seen: Counter[Hashable] = Counter()
        self._recorded: dict[Hashable, _Recording] = {}
        self._pool: Any = None

    def add_gradient(self, inputs: Any, targets: Any, part: float) -> Tensor:
        """Add the gradient of a micro batch to the gradients of the step.

        Args:
            inputs: The inputs, on the device.
            targets: The targets, on the device.
            part: The factor of its loss in the step.

        Returns:
            Its loss.

        Raises:
            ExperimentError: If the model cannot be recorded, or a replay would compute something
                else.
        """
        leaves, structure = tree_flatten((inputs, targets))
        samples = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        shape = _shape_of(leaves, (str(structure), part))
        recording = self._recorded.get(shape)
        if recording is None:
            self._num_seen[shape] += 1
            if self._num_seen[shape] <= NUM_AS_THEY_ARE or len(self._recorded) >= MAX_RECORDED:
                return self._compute(inputs, targets, part)
            recording = self._recorded[shape] = self._record(leaves, structure, part)
        # A graph always reads the same memory, so the samples are copied there.
        for held, sample in zip(recording.samples, samples, strict=True):
            held.copy_(sample, non_blocking=True)
        recording.forward.replay()
        self._mark("forward")
        recording.backward.replay()
        self._mark("backward")
        return recording.loss.clone()  # the next replay writes over it

    def _compute(self, inputs: Any, targets: Any, part: float) -> Tensor:
        before = _random_states()
        loss, scaled = self._forward(inputs, targets, part)
        self._mark("forward")
        scaled.backward()
        self._mark("backward")
        # Random numbers of the GPU are no problem: torch advances its generator with each replay.
        if not all(map(np.array_equal, before, _random_states())):
            raise _cannot_record(
                "it draws random numbers on the CPU, and each replay would repeat them"
            )
        return loss.detach()

    def _record(self, leaves: Sequence[Any], structure: Any, part: float) -> _Recording:
        held = [leaf.clone() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        inputs, targets = tree_unflatten(held, structure)
        forward = torch.cuda.CUDAGraph()
        backward = torch.cuda.CUDAGraph()
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        try:
            # By default, CUDA calls of other threads are errors during a recording. But threads
            # that load samples may use the device now.
            with torch.cuda.graph(forward, pool=self._pool, capture_error_mode="thread_local"):
                loss, scaled = self._forward(inputs, targets, part)
            with torch.cuda.graph(backward, pool=self._pool, capture_error_mode="thread_local"):
                scaled.backward()
        except RuntimeError as error:
            # If memory runs out, ending the recording also fails, and hides the first error.
            for cause in (error, error.__context__):
                if isinstance(cause, torch.OutOfMemoryError):
                    raise cause from error
            raise _cannot_record(_first_line(error)) from error
        samples = [leaf for leaf in held if isinstance(leaf, Tensor)]
        return _Recording(samples, forward, backward, loss.detach())


def _shape_of(leaves: Sequence[Any], rest: Hashable) -> Hashable:
    """Return a key that is equal for micro batches that can share a recording."""
    return rest, tuple(
        (leaf.shape, leaf.dtype, leaf.stride()) if isinstance(leaf, Tensor) else repr(leaf)
        for leaf in leaves
    )


def _random_states() -> tuple[Any, ...]:
    """Return the states of the generators on the CPU, of Python, NumPy and torch."""
    numpy_state = np.random.get_state(legacy=False)
    return (
        random.getstate()[1],
        numpy_state["state"]["key"],  # type: ignore[call-overload]
        numpy_state["state"]["pos"],  # type: ignore[call-overload]
        torch.get_rng_state(),
    )


def _first_line(error: RuntimeError) -> str:
    return str(error).strip().split("\n", maxsplit=1)[0]


def _cannot_record(reason: str) -> ExperimentError:
    return ExperimentError(
        f"the steps of this model cannot be recorded in CUDA graphs: {reason}",
        field="plan.compile",
        allowed="auto, none, default",
        next_step="Set it to none.",
    )


class Single:
    """Forward, backward and update in one process.

    Includes gradient accumulation, autocast, loss scaling and clipping.
    """

    _num_averaged = 1
    """Number of workers over which the exchange takes a mean. The step needs the sum, so losses are
    multiplied by it.
    """
    _is_alone = False
    _blocks: Sequence[Block] = ()
    """The blocks that may be recomputed in the backward pass."""
    _are_kept_chosen = False
    capabilities = BUILT_IN["single"]
    _without_gradients: type[torch.no_grad | torch.inference_mode] = torch.inference_mode
    """The context of predictions. Strategies that gather parameters use `no_grad` instead, because
    parameters that were gathered in inference mode cannot be trained afterwards.
    """
    _num_holders = 1
    """How many workers hold each gradient of the step after the exchange."""
    _recorder: Recorder | None = None
    _settles_before_exchange = False
    """Whether gradients must be divided by the count of a step before they are exchanged."""
    _counted_step: CountedStep | None = None
    """The current or last step, if its loss counts something other than samples."""
    _has_own_samples = True
    """Whether the current micro batch has samples of the step. Otherwise it only takes part in
    exchanges.
    """

    def __init__(self, settings: StepSettings) -> None:
        self._settings = settings

    def setup(self, model: nn.Module, optimizer: OptimizerFactory, worker: Worker) -> None:
        """Place the model and make the optimizer. See Strategy.setup."""
        self._worker = worker
        self._model = on_device(model, worker.device)
        if self._settings.is_channels_last:
            lay_channels_last(self._model)
        self._blocks = recompute_blocks(self._model) if self._settings.recompute else ()
        self._trained = self._place(self._model)
        if self._settings.compiles:
            self._trained = self._compile(self._trained)
        named = [item for item in model.named_parameters() if item[1].requires_grad]
        self._hooked = dict(named) if self._settings.gradient_hook is not None else {}
        self._parameters = [parameter for _, parameter in named]
        if self._settings.group is None:
            self._optimizer: Optimizer = optimizer(self._parameters)
        else:
            groups = self._settings.group(named)
            self._parameters = parameters_in(groups)
            self._optimizer = optimizer(groups)
        self._scaler = (
            torch.amp.GradScaler(worker.device.type) if self._settings.precision == "fp16" else None
        )
        if self._settings.records:
            self._recorder = Recorder(self._begin_pass, self._settings.mark)
        self._mean = self._begin_mean()

    def _begin_mean(self) -> WeightMean | None:
        if self._settings.average is None:
            return None
        return self._settings.average(self._model)

    def forward_backward(self, batch: StepBatch) -> Tensor:
        """Compute the gradient of a step. See Strategy.forward_backward."""
        return self._forward_backward(batch, self._recorder)

    def _forward_backward(self, batch: StepBatch, recorder: Recorder | None) -> Tensor:
        mark = self._settings.mark
        last = len(batch) - 1
        counted = CountedStep(batch.num_samples) if is_counted(self._settings.loss) else None
        self._counted_step = counted
        step_loss: Tensor | None = None
        for index, (inputs, targets, weight) in enumerate(batch):
            mark("data")
            self._choose_kept(functools.partial(self._whole_pass, inputs, targets))
            # Gradients are exchanged once, with the last micro batch.
            self._exchange_gradients(index == last and not self._is_alone)
            part = weight if counted is None else counted.part(weight)
            self._has_own_samples = weight > 0.0
            if self._joins_replicas:
                # Each replica has the loss of the whole step, and the gradient of its own samples.
                part = float(self._has_own_samples)
            part *= self._num_averaged
            if recorder is not None:
                loss = recorder.add_gradient(inputs, targets, part)
            else:
                loss, scaled = self._begin_pass(inputs, targets, part)
                mark("forward")
                if counted is not None and index == last and self._settles_before_exchange:
                    counted.add(loss.detach(), weight)
                    scaled = scaled * counted.settle(
                        self._parameters, self._total_count, self._worker.device
                    )
                scaled.backward()
                mark("backward")
            if counted is not None:
                if not counted.is_settled:
                    counted.add(loss.detach(), weight)
                continue
            share = loss.detach() if weight == 1.0 else loss.detach() * weight
            step_loss = share if step_loss is None else step_loss + share
        if counted is not None:
            return counted.finish(self._parameters, self._total_count, self._worker.device)
        assert step_loss is not None, "a step has at least one sample"
        return step_loss

    def _begin_pass(self, inputs: Any, targets: Any, part: float) -> tuple[Tensor, Tensor]:
        """Return the loss of a micro batch, and the scalar where its backward pass starts.

        If the loss counts something other than samples, its total and count are returned as one
        tensor.

        Raises:
            ExperimentError: If the loss has no gradient.
        """
        measured = self._forward(inputs, targets)
        if isinstance(measured, tuple):
            loss, returned = measured[0], stacked(*measured)
        else:
            loss = returned = measured
        check_gradient(loss)
        if part != 1.0:
            loss = loss * part
        if self._scaler is not None:
            loss = self._scaler.scale(loss)
        return returned, loss

    def _total_count(self, count: Tensor) -> Tensor:
        """Return the count of a step over all workers that make it together."""
        return count

    @property
    def step_count(self) -> Tensor | None:
        """The count of the last step over all workers, or None if its samples are counted."""
        if self._counted_step is None:
            return None
        return self._counted_step.count

    def measure(self, batch: StepBatch) -> MeasuredStep:
        """Compute the gradient of a step and measure norms. See NoiseMeasuring.measure."""
        watched = WatchedBatch(batch, self._leaves())
        with watched:
            loss = self._forward_backward(watched, None)  # replays of CUDA graphs call no hooks
        sqr_norms = watched.sqr_norms(self._parameters, self._worker.device)
        if self._counted_step is not None:  # the norms were taken before the count was known
            factor = self._counted_step.factor.double()
            sqr_norms = sqr_norms * torch.stack([factor.square(), torch.ones_like(factor)])
        num_replicas = self._worker.num_replicas
        if num_replicas > 1:
            # The shares of all workers are added up later. The first norm is a mean over workers,
            # whose gradients were multiplied by `_num_averaged`. The second is held several times.
            shares = [1.0 / (self._num_averaged**2 * num_replicas), 1.0 / self._num_holders]
            sqr_norms *= torch.tensor(shares, dtype=torch.float64).to(
                sqr_norms.device, non_blocking=True
            )
        if self._scaler is not None:
            unit = torch.ones((), dtype=torch.float64, device=sqr_norms.device)
            sqr_norms /= self._scaler.scale(unit).square()
        self._settings.mark("backward")
        return MeasuredStep(loss, sqr_norms)

    def update(self, lr: float) -> None:
        """Clip, update the parameters, and drop the gradients. See Strategy.update."""
        for group in self._optimizer.param_groups:
            group["lr"] = lr * group.get("lr_factor", 1.0)
            if group.get("frozen_steps", 0) > 0:  # counted down here, so checkpoints include it
                group["lr"], group["frozen_steps"] = 0.0, group["frozen_steps"] - 1
        hook = self._settings.gradient_hook
        # Hooks and clipping need the true gradients, without the loss scale of fp16.
        if self._scaler is not None and (hook is not None or self._settings.clip_norm is not None):
            self._scaler.unscale_(self._optimizer)
        if hook is not None:
            gradients = {
                name: item.grad for name, item in self._hooked.items() if item.grad is not None
            }
            with torch.no_grad():
                hook(gradients)
        if self._settings.clip_norm is not None:
            self._clip(self._settings.clip_norm)
        if self._scaler is None:
            self._optimizer.step()
        else:
            self._scaler.step(self._optimizer)
            self._scaler.update()
        # Replays of CUDA graphs add to the same memory, so it must not be freed.
        self._optimizer.zero_grad(set_to_none=self._recorder is None)
        self._agree_after_step()
        if self._mean is not None:
            self._mean.follow()
        self._settings.mark("update")

    def _clip(self, largest_norm: float) -> None:
        """Scale the gradients of the step such that their norm is at most this."""
        nn.utils.clip_grad_norm_(self._parameters, largest_norm)

    def predict(self, inputs: Any) -> Any:
        """Return the outputs for a batch. See Strategy.predict."""
        with self._without_gradients(), self._autocast:
            return self._settings.call(self._model, self._laid(inputs))

    def train(self, mode: bool) -> None:
        """Switch dropout and batch statistics on or off. See Strategy.train."""
        self._model.train(mode)
        if self._mean is not None:
            self._mean.show(not mode)

    @property
    def needs_statistics(self) -> bool:
        """Whether statistics of batch normalisation are missing. See StatisticsRenewing."""
        mean = self._mean
        has_stale = mean is not None and mean.is_begun and not mean.keeps_statistics
        return has_stale and bool(normalisations(self._model))

    def renew_statistics(self, inputs: Iterable[Any]) -> None:
        """Gather the mean statistics of all batches. See StatisticsRenewing.renew_statistics."""
        modules = normalisations(self._model)
        kept = [(module, module.momentum, module.num_batches_tracked) for module in modules]
        for module in modules:
            module.num_batches_tracked = torch.zeros_like(cast(Tensor, module.num_batches_tracked))
            module.reset_running_stats()
            module.momentum = None  # makes torch take the plain mean over all batches
            module.train()
        for batch in inputs:
            self.predict(batch)
        for module, momentum, num_batches in kept:
            module.momentum, module.num_batches_tracked = momentum, num_batches
            module.eval()

    def state(self) -> dict[str, Any]:
        """Return model, optimizer and scaler. See Strategy.state."""
        return {
            **self._weights(),
            "optimizer": self._optimizer.state_dict(),
            "scaler": self._scaler.state_dict() if self._scaler is not None else None,
        }

    def _weights(self) -> dict[str, Any]:
        """Return this worker's part of the weights that are evaluated.

        Weights that are trained are included if they differ.
        """
        weights: dict[str, Any] = {"model": self._model.state_dict()}
        if self._mean is not None:
            weights["averaged"] = self._mean.num_steps
        # `model` is what a bundle exports, which is the mean. Training continues from `trained`.
        if self._mean is not None and self._mean.is_begun:
            weights["trained"] = _copied(self._model)
            self._mean.show(True)
            weights["model"] = _copied(self._model)
            self._mean.show(False)
        return weights

    def load(self, state: dict[str, Any]) -> None:
        """Load what `state` returned. See Strategy.load."""
        self._model.load_state_dict(state["model"])
        if self._mean is not None:
            self._mean.restart()
            self._mean.num_steps = state.get("averaged", 0)
        if "trained" in state:
            self._model.load_state_dict(state["trained"])
        self._optimizer.load_state_dict(state["optimizer"])
        lay_like_parameters(self._optimizer)
        if self._scaler is not None and state["scaler"]:
            self._scaler.load_state_dict(state["scaler"])

    def alone_bytes(self) -> int:
        """Return the extra memory of this worker while it is alone. See Probeable.alone_bytes."""
        return 0

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Compute without the other workers in this context. See Probeable.alone."""
        self._is_alone = True
        try:
            yield
        finally:
            self._is_alone = False
            self._optimizer.zero_grad(set_to_none=self._recorder is None)

    def close(self) -> None:
        """Drop the model, the gradients and the optimizer, and free their device memory."""
        del self._model, self._trained, self._parameters, self._optimizer, self._mean
        self._blocks, self._recorder = (), None
        if self._settings.compiles:
            forget_compiled()
        if self._worker.device.type == "cuda":
            torch.cuda.empty_cache()

    def _choose_kept(self, compute: Callable[[], Any], num_in_flight: int = 1) -> None:
        """Choose once which blocks keep their activations, from a pass over one micro batch."""
        kept_bytes = self._settings.kept_bytes
        if kept_bytes is None or self._are_kept_chosen:
            return
        self._are_kept_chosen = True
        with self._autocast:
            keep_what_fits(
                self._blocks, self._model, compute, kept_bytes // num_in_flight, self._agreed
            )

    def _whole_pass(self, inputs: Any, targets: Any) -> Tensor:
        return self._settings.loss(self._settings.call(self._model, self._laid(inputs)), targets)

    def _agreed(self, cost: PassCost) -> PassCost:
        """Return costs that are equal on all workers that compute blocks together."""
        return cost

    def _compile(self, placed: nn.Module) -> nn.Module:
        """Return the module to call in training instead of `placed`."""
        return compiled(placed)

    def _place(self, model: nn.Module) -> nn.Module:
        """Return the module to call in training: the model, or a wrapper around it."""
        return model

    def _agree_after_step(self) -> None:
        """Agree with other replicas after an update whose gradients were not exchanged."""

    def _leaves(self) -> Iterable[Tensor]:
        """Return the parameters as the backward pass sees them."""
        return self._parameters

    def _exchange_gradients(self, now: bool) -> None:
        """Set whether the next backward pass exchanges gradients."""

    @functools.cached_property
    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        """The context that computes in the precision of the plan.

        It is made once, because torch looks for devices each time.
        """
        dtype = _DTYPES.get(self._settings.precision)
        if dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(self._worker.device.type, dtype=dtype)

    def _forward(self, inputs: Any, targets: Any) -> Tensor | tuple[Tensor, Tensor | int]:
        """Return the loss of a micro batch, or its total and its count."""
        with self._autocast:
            return self._compared(self._settings.call(self._trained, self._laid(inputs)), targets)

    @property
    def _joins_replicas(self) -> bool:
        """Whether the loss compares the samples of all replicas with each other."""
        joins = getattr(self._settings.loss, "joins_replicas", False)
        return joins and self._worker.num_replicas > 1 and not self._is_alone

    def _of_all_replicas(self, values: Tensor) -> Tensor:
        """Return the samples of all replicas, if a tensor has samples."""
        if not values.ndim:
            return values
        own = values if self._has_own_samples else values[:0]
        return self._worker.group.joined(own)

    def _compared(self, outputs: Any, targets: Any) -> Tensor | tuple[Tensor, Tensor | int]:
        loss: Any = self._settings.loss
        if self._joins_replicas:
            outputs = map_tensors(self._of_all_replicas, outputs)
            targets = map_tensors(self._of_all_replicas, targets)
        if self._counted_step is None:
            return loss(outputs, targets)
        return loss.measure(outputs, targets)

    def _laid(self, inputs: Any) -> Any:
        if not self._settings.is_channels_last:
            return inputs
        return with_channels_last(inputs)


def normalisations(model: nn.Module) -> list[nn.modules.batchnorm._BatchNorm]:
    """Return the modules that keep running statistics of training batches."""
    kind = nn.modules.batchnorm._BatchNorm
    return [
        item
        for item in model.modules()
        if isinstance(item, kind)
        and item.running_mean is not None
        and item.num_batches_tracked is not None
    ]


def _copied(model: nn.Module) -> dict[str, Any]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def on_device(model: nn.Module, device: torch.device) -> nn.Module:
    """Return a model on a device.

    If it is there already, nothing is called: fake tensors cannot be moved.
    """
    tensors = itertools.chain(model.parameters(), model.buffers())
    if all(item.device == device for item in tensors):
        return model
    return model.to(device)


def lay_channels_last(model: nn.Module) -> None:
    """Change the weights of 2D convolutions to the channels-last memory format, in place."""
    # Not `model.to`: it cannot replace fake parameters, with which memory is estimated.
    for tensor in itertools.chain(model.parameters(), model.buffers()):
        if tensor.dim() == _NUM_DIMENSIONS:
            tensor.data = tensor.data.to(memory_format=torch.channels_last)


def with_channels_last(inputs: Any) -> Any:
    """Return inputs whose images have the channels-last memory format."""

    def lay(values: Tensor) -> Tensor:
        if values.dim() != _NUM_DIMENSIONS:  # not an image
            return values
        return values.contiguous(memory_format=torch.channels_last)

    return tree_map_only(Tensor, lay, inputs)


def check_gradient(loss: Tensor) -> None:
    """Check that a loss has a gradient. Torch's own error would not help.

    Raises:
        ExperimentError: If the loss does not depend on any trained parameter.
    """
    if not loss.requires_grad:
        raise ExperimentError(
            "the loss does not depend on any trained parameter, so nothing can be learned",
            field="model",
            allowed="a forward pass that keeps gradients",
            next_step="Remove torch.no_grad, torch.inference_mode and detach from forward.",
        )


def lay_like_parameters(optimizer: Any) -> None:
    """Give the optimizer's state the memory format of its parameters.

    A checkpoint may have another format. Fused optimizers read both in the order of memory,
    whatever their format, so the two must agree.

    Args:
        optimizer: An optimizer of torch. Any other optimizer copies its state into existing
            tensors, so it needs no change.
    """
    if not isinstance(optimizer, Optimizer):
        return
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            has_values = isinstance(value, Tensor) and value.shape == parameter.shape
            if has_values and value.stride() != parameter.stride():
                state[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
