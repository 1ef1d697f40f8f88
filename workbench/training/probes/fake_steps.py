"""Steps of a trial on fake tensors: the real model, strategy and optimizer, without memory.

Use it only in a child process. See `memory_estimate`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
import torch.distributed
from pydantic import JsonValue
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
    unset_fake_temporarily,
)
from torch.optim import Optimizer
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from workbench.data import Datasets
from workbench.experiment import Experiment
from workbench.experiment.plan import Hardware, PartialPlan
from workbench.experiment.searched_fields import data_params
from workbench.foundation.errors import ExperimentError
from workbench.hardware.performance.memory import StepMemory
from workbench.models.model_calls import map_tensors
from workbench.training.assembly import (
    build_trial_model,
    for_model,
    step_settings,
    strategy_of,
)
from workbench.training.loading import load_trial_data
from workbench.training.optimizers import optimizer_factory
from workbench.training.planning.settings import resolve
from workbench.training.strategies.capabilities import capabilities_of, strategy_on
from workbench.training.strategies.divided_optimizer import DividedOptimizer
from workbench.training.strategies.kept_blocks import PassCost, measure_pass
from workbench.training.strategies.pipeline_order import most_under_way
from workbench.training.strategies.recompute import recompute_blocks
from workbench.training.strategies.strategy import (
    HeldBatch,
    MicroBatch,
    OptimizerFactory,
    StepSettings,
    Worker,
)
from workbench.training.strategies.tensor_shards import local_part
from workbench.training.strategies.worker_group import Group, Part, Sent
from workbench.training.tensor_source import Source

_NEEDS_VALUES = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)
_CPU = torch.device("cpu")


class _PretendedGroup(Group):
    """The group of a worker, without the other workers. Every exchange returns at once."""

    def __init__(self, num_workers: int, rank: int = 0, received: Tensor | None = None) -> None:
        """Pretend to join.

        Args:
            num_workers: The pretended number of workers.
            rank: Rank of this worker.
            received: The values that the previous worker would send.
        """
        super().__init__()
        self.num_workers = num_workers
        self.rank = rank
        self._received = received
        self.sent: Tensor | None = None
        """The values that this worker would send to the next one."""
        store = FakeStore()
        torch.distributed.init_process_group("fake", rank=rank, world_size=num_workers, store=store)
        self._joined = True

    def mesh(self, **sizes: int) -> Any:
        """Return the mesh. Torch reads the values of its tensors, so they must be real."""
        with unset_fake_temporarily():
            return super().mesh(**sizes)

    def across(self, size: int) -> Part:
        """Return one worker, because exchanges between replicas take no lasting memory."""
        return Part()

    def send(self, values: Tensor, receiver: int, *, is_known: bool = False) -> Sent:
        """Remember the values that the next worker would receive."""
        if not is_known:
            self.sent = values.detach().to("meta")
        return Sent(())

    def receive(self, sender: int, like: Tensor | None = None) -> Tensor:
        """Return a tensor with the shape that the other worker would send."""
        if like is None:
            like = self._received
        assert like is not None
        return torch.empty(like.shape, dtype=like.dtype)


class _FakeTensors(FakeTensorMode):
    """Tensors without values, except for tensors of device meshes, whose values torch reads."""

    def __init__(self) -> None:
        """Allow operations with real tensors.

        If a number is assigned to a part of a fake tensor, torch makes a real tensor of it.
        """
        super().__init__(allow_non_fake_inputs=True)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # No fake tensor takes part: compute on the real ones.
        if not types and any(isinstance(value, Tensor) for value in args):
            return func(*args, **(kwargs or {}))
        return super().__torch_dispatch__(func, types, args, kwargs)


class FakeTrial:
    """One configuration of an experiment, which can make steps at any micro batch."""

    def __init__(
        self,
        experiment: Experiment,
        params: Mapping[str, JsonValue],
        plan: PartialPlan,
        *,
        length: int | None = None,
        datasets: Datasets | None = None,
    ) -> None:
        """Load the data, for its shapes.

        Args:
            experiment: The experiment.
            params: The configuration.
            plan: Decisions about the plan. They take precedence over experiment and configuration.
            length: Length of a sample, instead of the length in the data.
            datasets: The data, if it is loaded already.

        Raises:
            WorkbenchError: If the data or a setting is wrong.
        """
        self._experiment, self._params = experiment, params
        self.datasets = self._datasets = datasets or load_trial_data(
            "estimate", experiment, params=data_params(params)
        )
        self._length, self._data_length = length, next(iter(self._datasets.input_shape), None)
        # The number of samples is not passed: a batch that does not fit may also be larger than the
        # training data, and must be traced anyway.
        self._settings = resolve(
            experiment, params, hardware=Hardware(has_gpu=True, has_bf16=True), decided=plan
        )
        source = Source(self._datasets.train, _CPU)
        self._samples = source.fetch(np.arange(min(2, len(source))))
        if length is not None:
            shape = (length, *self._datasets.input_shape[1:])
            self._datasets = dataclasses.replace(self._datasets, input_shape=shape)

    @property
    def num_train_samples(self) -> int:
        """Samples of the training data."""
        return len(self._datasets.train)

    @property
    def micro_batch(self) -> int:
        """The micro batch of the plan."""
        return self._settings.plan.micro_batch

    @property
    def length(self) -> int | None:
        """Length of a sample, or None if samples are not sequences."""
        shape = self._datasets.input_shape
        is_sequence = len(shape) == 2 or (
            len(shape) == 1 and self._datasets.vocabulary_size is not None
        )
        if not is_sequence:
            return None
        return shape[0]

    def pass_cost(self, micro_batch: int) -> PassCost:
        """Return the activations of a forward pass on one worker, and the costs of its blocks.

        Args:
            micro_batch: Samples of the pass.

        Raises:
            ExperimentError: If the model has no blocks, or cannot be traced.
        """
        settings = self._step_settings()
        with _needing_no_values(), FakeTensorMode():
            model = build_trial_model(
                self._experiment, self._params, self._settings, self._datasets, pretrained=False
            )
            [batch] = self._batch(micro_batch, 1)
            blocks = recompute_blocks(model)

            def compute() -> Any:
                with torch.autocast("cpu", torch.bfloat16, enabled=settings.precision != "fp32"):
                    return settings.loss(settings.call(model, batch.inputs), batch.targets)

            return measure_pass(blocks, model, compute)[1]

    def step_memory(self, micro_batch: int, num_steps: int) -> StepMemory:
        """Return the memory of the last of some steps.

        Args:
            micro_batch: Samples that the worker computes at once.
            num_steps: Steps to make. The optimizer has its state from the second step on.

        Raises:
            ExperimentError: If the memory of the model cannot be estimated without real values.
        """
        with _needing_no_values():
            return self._step_memory(micro_batch, num_steps)

    def plain_memory(self, micro_batch: int, num_steps: int) -> StepMemory:
        """Return the memory of a loop that is written in plain torch.

        See `step_memory` for the arguments.
        """
        with _needing_no_values():
            return self._stage_memory(micro_batch, num_steps, 0, None, PlainLoop)[0]

    def _step_memory(self, micro_batch: int, num_steps: int) -> StepMemory:
        steps, received = [], None
        for stage in range(self._settings.plan.stages):
            step, received = self._stage_memory(micro_batch, num_steps, stage, received)
            steps.append(step)
        return max(steps, key=lambda step: max(step.compute_peak_bytes, step.update_peak_bytes))

    def _stage_memory(
        self,
        micro_batch: int,
        num_steps: int,
        stage: int,
        received: Tensor | None,
        way: type[Any] | None = None,
    ) -> tuple[StepMemory, Tensor | None]:
        """Return the memory of a stage of the model, and the tensor that it sends on."""
        settings, made = self._settings, []
        plan, name = settings.plan, settings.plan.strategy
        # Two micro batches have the same peak as any larger number. Workers that exchange gradients
        # keep them allocated, as between two micro batches.
        num_micro_batches = 1 if plan.workers * plan.accumulation == 1 else 2
        # A stage of a pipeline holds several micro batches at once, and then receives the next.
        if plan.stages > 1:
            most = plan.accumulation
            num_micro_batches = min(
                most, most_under_way(plan.pipeline_schedule, 0, plan.stages, most) + 1
            )
        able = capabilities_of(name)
        group = Group()
        if not able.has_whole_step:
            group = _PretendedGroup(plan.workers, stage, received)
        # An exchange of gradients holds no more than two micro batches do, so one worker is enough.
        if able.holds_whole_model:
            name = "single" if able.divides_state else strategy_on(name, 1)
        try:
            with _FakeTensors(), LiveMemory() as live:
                model = build_trial_model(
                    self._experiment, self._params, settings, self._datasets, pretrained=False
                )
                steps = for_model(self._step_settings(), settings, model)
                strategy = (way or strategy_of(self._experiment, name))(steps)
                worker = Worker(stage, group.num_workers, _CPU, group, plan.workers_per_replica)
                strategy.setup(model, self._optimizer_factory(made, group), worker)
                strategy.train(True)
                batch = self._batch(micro_batch, num_micro_batches)
                compute_peak_bytes = 0
                for _ in range(num_steps):
                    live.start_peak()
                    strategy.forward_backward(batch)
                    compute_peak_bytes = live.peak_bytes
                    live.start_peak()
                    strategy.update(settings.lr)
                parameters = list(model.parameters())
                trained = [parameter for parameter in parameters if parameter.requires_grad]
                # If you wrote the training steps, your class has made its own optimizers.
                made = made or list(getattr(model, "optimizers", {}).values())
                states = [state for optimizer in made for state in optimizer.state.values()]
                remembered = [item for state in states for item in state.values()]
                step = StepMemory(
                    micro_batch=micro_batch,
                    parameters_bytes=_sum_bytes([*parameters, *model.buffers()]),
                    gradients_bytes=_sum_bytes(trained),
                    optimizer_bytes=_sum_bytes(remembered),
                    compute_peak_bytes=compute_peak_bytes,
                    update_peak_bytes=live.peak_bytes,
                )
                return step, getattr(group, "sent", None)
        finally:
            if torch.distributed.is_initialized():
                torch.distributed.destroy_process_group()

    def _optimizer_factory(self, made: list[Optimizer], group: Group) -> OptimizerFactory:
        """Return a function that makes the strategy's optimizer and appends it to `made`."""
        settings = self._settings
        kind = optimizer_factory(settings.training, settings.lr)
        able = capabilities_of(settings.plan.strategy)

        def make(parameters: Iterable[Any]) -> Optimizer:
            made.append(kind(parameters))
            return made[0]

        if able.holds_whole_model and able.divides_state:
            return cast(OptimizerFactory, functools.partial(DividedOptimizer, make, group=group))
        return make

    def _step_settings(self) -> StepSettings:
        # bf16 takes as many bytes as fp16, whose scaler would read values.
        precision = "fp32" if self._settings.plan.precision == "fp32" else "bf16"
        settings = step_settings(self._experiment, self._settings, self._datasets)
        return dataclasses.replace(settings, precision=precision, compiles=False, records=False)

    def _batch(self, micro_batch: int, num_micro_batches: int) -> HeldBatch:
        def enlarge(part: Tensor) -> Tensor:
            sizes = part.shape[1:]
            if self._length is not None and sizes and sizes[0] == self._data_length:
                sizes = (self._length, *sizes[1:])
            return torch.empty((micro_batch, *sizes), dtype=part.dtype)

        inputs, targets = (map_tensors(enlarge, part) for part in self._samples)
        parts = [MicroBatch(inputs, targets, 1.0 / num_micro_batches)] * num_micro_batches
        return HeldBatch(parts, micro_batch * num_micro_batches)


class PlainLoop:
    """A step on one worker, as it is usually written by hand.

    Outputs and loss stay in memory until the next ones replace them.
    """

    def __init__(self, settings: StepSettings) -> None:
        self._settings = settings

    def setup(self, model: nn.Module, optimizer: OptimizerFactory, worker: Worker) -> None:
        """Make the optimizer with the implementation that torch chooses by default on a GPU."""
        self._model, self._optimizer = model, optimizer(model.parameters())
        for group in self._optimizer.param_groups:
            if group.get("fused"):
                group["fused"], group["foreach"] = False, True

    def train(self, mode: bool) -> None:
        """Switch dropout and batch statistics on or off."""
        self._model.train(mode)

    def forward_backward(self, batch: Sequence[MicroBatch]) -> None:
        """Accumulate the gradients of micro batches."""
        for inputs, targets, weight in batch:
            with torch.autocast("cpu", torch.bfloat16, enabled=self._settings.precision != "fp32"):
                self._outputs = self._settings.call(self._model, inputs)
                self._loss = self._settings.loss(self._outputs, targets) * weight
            self._loss.backward()

    def update(self, lr: float) -> None:
        """Update the parameters, and drop the gradients."""
        self._optimizer.step()
        self._optimizer.zero_grad()


@contextlib.contextmanager
def _needing_no_values() -> Iterator[None]:
    """Raise an ExperimentError if a model needs values."""
    try:
        yield
    except _NEEDS_VALUES as error:
        raise ExperimentError(
            f"the memory of the model cannot be estimated without real values: {error}",
            field="model",
            next_step="Measure it instead: run `workbench advise`, or a sweep of one trial.",
        ) from error


def _sum_bytes(tensors: Iterable[Any]) -> int:
    held = [local_part(item) for item in tensors if isinstance(item, Tensor)]
    return sum(item.untyped_storage().nbytes() for item in held)


BLOCK_BYTES = 512
"""The allocator of a GPU rounds up to multiples of this."""


class LiveMemory(TorchDispatchMode):
    """Counts the storages of the tensors that operations return inside this context.

    Attributes:
        live_bytes: The bytes that are alive now.
        peak_bytes: The most bytes that were alive since `start_peak`.
    """

    def __init__(self) -> None:
        """Start without live tensors."""
        super().__init__()
        self.live_bytes = 0
        self.peak_bytes = 0
        self._sizes: weakref.WeakKeyDictionary[Any, list[int]] = weakref.WeakKeyDictionary()

    def start_peak(self) -> None:
        """Forget the peak so far."""
        self.peak_bytes = self.live_bytes

    def __enter__(self) -> LiveMemory:
        resize = torch.UntypedStorage.resize_

        def count_resize(storage: Any, num_bytes: int) -> Any:
            # FSDP frees gathered parameters with `resize_`, which a dispatch mode does not see.
            resized = resize(storage, num_bytes)
            if storage in self._sizes:
                self._count(self._sizes[storage], num_bytes)
            return resized

        self._resize = resize
        torch.UntypedStorage.resize_ = count_resize  # type: ignore[method-assign]
        super().__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        super().__exit__(*exception)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        returned = func(*args, **(kwargs or {}))
        tree_map_only(Tensor, self._see, returned)
        return returned

    def _see(self, tensor: Tensor) -> None:
        parts = getattr(tensor, "__tensor_flatten__", None)
        if parts is not None:  # a wrapper of other tensors, such as FSDP's shards
            inner = (getattr(tensor, name) for name in parts()[0])
            for part in inner:
                if isinstance(part, Tensor):
                    self._see(part)
            return
        storage: Any = tensor.untyped_storage()
        if storage not in self._sizes:
            size = self._sizes[storage] = [0]
            self._count(size, storage.nbytes())
            weakref.finalize(storage, self._forget, size)

    def _count(self, size: list[int], num_bytes: int) -> None:
        rounded = math.ceil(num_bytes / BLOCK_BYTES) * BLOCK_BYTES
        self.live_bytes += rounded - size[0]
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        size[0] = rounded

    def _forget(self, size: list[int]) -> None:
        self.live_bytes -= size[0]
