"""The interface between the loop and the ways in which workers make one step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from workbench.foundation.errors import ExperimentError
from workbench.training.exchanges.exchange import Exchange
from workbench.training.strategies.capabilities import Capabilities
from workbench.training.strategies.group import Group
from workbench.training.strategies.shards import StateParts
from workbench.training.strategies.weight_mean import WeightMean

OptimizerFactory = Callable[[Iterable[Any]], Optimizer]
"""From parameters, or groups of parameters as torch takes them, to an optimizer."""


@dataclass(frozen=True)
class Worker:
    """Which worker this process is.

    Attributes:
        rank: From 0 to num_workers - 1; rank 0 reports and writes checkpoints.
        num_workers: Workers that share each optimizer step.
        device: The device of this worker.
        group: The group through which workers exchange values.
        workers_per_replica: Number of workers that hold one copy of the model together, and so see
            the same samples.
    """

    rank: int = 0
    num_workers: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    group: Group = field(default_factory=Group)
    workers_per_replica: int = 1

    def __post_init__(self) -> None:
        assert self.num_workers % self.workers_per_replica == 0

    @property
    def replica(self) -> int:
        """Number of the model's copy that this worker belongs to, from 0, for samples and seeds."""
        return self.rank // self.workers_per_replica

    @property
    def num_replicas(self) -> int:
        """Copies of the model, among which the samples of a step are divided."""
        return self.num_workers // self.workers_per_replica


@dataclass(frozen=True)
class Hiding:
    """How each sample is hidden.

    Attributes:
        max_norm: Norm to which the gradient of each sample is clipped.
        noise_multiplier: Standard deviation of the noise of each value, in units of `max_norm`.
        expected_batch: Samples that a step has in the mean.
    """

    max_norm: float
    noise_multiplier: float
    expected_batch: int


@runtime_checkable
class CountedLoss(Protocol):
    """A loss that may count something other than samples in the parts of a step. Optional."""

    @property
    def is_counted(self) -> bool:
        """Whether they do, the same on every worker."""
        ...

    def measure(self, outputs: Any, targets: Any) -> tuple[Tensor, Tensor | int]:
        """Return total and count of a part: the loss of a step is the sum of both, divided."""
        ...


@dataclass(frozen=True)
class StepSettings:
    """The settings of a step for every strategy.

    Attributes:
        loss: (outputs, targets) -> mean over the samples of a batch; it may be a CountedLoss.
        precision: Type of the arithmetic: fp32, bf16 or fp16.
        gradient_hook: Changes the gradients of a step in place, by the names of their parameters,
            before they are clipped. Only for strategies in which each worker holds all of them.
        clip_norm: Gradients are scaled down to at most this norm.
        recompute: Whether the activations of the model's blocks are recomputed in the backward
        pass.
        kept_bytes: Maximum bytes that the forward passes of all unfinished micro batches may keep.
            Blocks are recomputed only beyond that, or None for all blocks.
        compiles: Whether torch.compile makes code for the model in the first step.
        records: Whether kernels are recorded in CUDA graphs and replayed; see `cuda_graphs`.
        is_channels_last: Whether images and the weights of convolutions have their channels last in
            memory.
        mark: Called at the end of each part of a step with its name: data, forward, backward,
            update.
        group: Divides named parameters into the groups of the optimizer. None makes one group.
            The rate of a step is multiplied by the `lr_factor` of a group, and is 0 in its first
            `frozen_steps`.
        average: Makes the mean of the weights, which is evaluated and stored instead of them. None
            makes no mean.
        find_unused: Whether workers look in each step for parameters that it leaves without a
            gradient; auto: if the first step leaves any.
        peak_lr: The learning rate of which schedules are parts.
        call: How a model is called with the inputs of a micro batch, which need not be one tensor.
        bucket_bytes: Size of the pieces in which gradients are exchanged, or None for torch's.
        pipeline_schedule: Order of the tasks of a pipeline stage: 1f1b, gpipe, or zero_bubble,
            which allows neither shards nor recomputed blocks.
        example: Inputs of some samples, for their shapes, or None if there are none.
        exchange: How replicas agree, or None for averaging each gradient.
        hiding: How each sample is hidden, or None if the training is not private.
        shard: Number of replicas that divide the parameters that each worker would hold. 0 means
            the strategy's own division.
    """

    loss: Callable[[Any, Any], Tensor]
    precision: str = "fp32"
    gradient_hook: Callable[[dict[str, Tensor]], None] | None = None
    clip_norm: float | None = None
    recompute: bool = False
    kept_bytes: int | None = None
    compiles: bool = False
    records: bool = False
    is_channels_last: bool = False
    mark: Callable[[str], None] = lambda part: None
    group: Callable[[Iterable[tuple[str, nn.Parameter]]], list[dict[str, Any]]] | None = None
    average: Callable[[nn.Module], WeightMean] | None = None
    find_unused: bool | Literal["auto"] = "auto"
    peak_lr: float = 1.0
    call: Callable[[nn.Module, Any], Any] = nn.Module.__call__
    bucket_bytes: int | None = None
    pipeline_schedule: str = "1f1b"
    example: Any = None
    exchange: Exchange | None = None
    hiding: Hiding | None = None
    shard: int = 0

    def groups(self, named: list[tuple[str, nn.Parameter]]) -> list[dict[str, Any]]:
        """Return trained parameters as the groups of an optimizer.

        Args:
            named: The parameters with their names.
        """
        if self.group is None:
            return [{"params": [parameter for _, parameter in named]}]
        return self.group(named)

    def check_for_parts(self, model: str) -> None:
        """Refuse what cannot be done with a model of which each worker holds a part.

        Args:
            model: Which model it is, in words.

        Raises:
            ExperimentError: If the plan asks for it.
        """
        for name, is_refused, allowed in (
            ("precision", self.precision == "fp16", "fp32, bf16, auto"),
            ("compile", self.compiles, "none, auto"),
        ):
            if is_refused:
                raise ExperimentError(
                    f"{model} cannot be trained like this", field=f"plan.{name}", allowed=allowed
                )


def parameters_in(groups: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Return the parameters of the groups of an optimizer, in order."""
    return [parameter for group in groups for parameter in group["params"]]


class MicroBatch(NamedTuple):
    """Samples that one worker takes at once, on its device."""

    inputs: Any
    targets: Any
    weight: float
    """Its part of the samples of the step over all workers, or 0 if it only fills up the count."""


class StepBatch(Protocol):
    """One worker's samples of one step, in micro batches that are fetched when needed."""

    @property
    def num_samples(self) -> int:
        """Samples of the step over all workers."""
        ...

    def __len__(self) -> int:
        """Return the number of micro batches, which is the same on every worker."""
        ...

    def __iter__(self) -> Iterator[MicroBatch]:
        """Yield each micro batch."""
        ...


class HeldBatch(list[MicroBatch]):
    """The micro batches of a step in memory, which can be gone through again."""

    def __init__(self, micro_batches: Sequence[MicroBatch], num_samples: int) -> None:
        """Hold micro batches.

        Args:
            micro_batches: Those of this worker.
            num_samples: Samples of the step over all workers.
        """
        super().__init__(micro_batches)
        self.num_samples = num_samples


class MeasuredStep(NamedTuple):
    """The loss of a step and the norms from which the gradient noise follows."""

    loss: Tensor
    """This worker's share of the mean loss of the step."""
    sqr_norms: Tensor
    """This worker's shares of two squared norms, as fp64 on its device.

    The first is the mean over the gradients of the step's parts, the micro batches of all workers.
    The second is that of the step's gradient.
    """


class Strategy(Protocol):
    """How workers make one step. Made with the settings of a step, then set up once."""

    capabilities: ClassVar[Capabilities]
    """Its capabilities, known before it is made."""

    def __init__(self, settings: StepSettings) -> None: ...

    def setup(self, model: nn.Module, optimizer: OptimizerFactory, worker: Worker) -> None:
        """Place the model and make the optimizer.

        Args:
            model: The model on the CPU, the same on every worker.
            optimizer: Makes the optimizer. Called when the parameters have their final form, which
                sharding changes.
            worker: Which worker this is.
        """
        ...

    def forward_backward(self, batch: StepBatch) -> Tensor:
        """Compute the gradient of the loss of a step.

        Gradients are exchanged once a step, at its last micro batch. Micro batches count by their
        weights, or by the count of the loss.

        Args:
            batch: This worker's micro batches.

        Returns:
            This worker's share of the mean loss of the step, a detached scalar on the device: the
            shares of all workers add up to the mean.
        """
        ...

    def update(self, lr: float) -> None:
        """Clip, change the parameters, and forget the gradients.

        Args:
            lr: The learning rate of this step.
        """
        ...

    def predict(self, inputs: Any) -> Any:
        """Return the outputs for a batch, in the precision of training and without gradients.

        None on a worker that does not hold the end of the model: another one of its replica has
        them.
        """
        ...

    def train(self, mode: bool) -> None:
        """Switch dropout and batch statistics on (True) or off (False).

        Every worker must call it.
        """
        ...

    def state(self) -> dict[str, Any]:
        """Return model, optimizer and scaler as tensors and plain values, for a checkpoint.

        Every worker must call it. It is the whole state under the names of the model that came in,
        so any strategy can load it with any number of workers. The tensors may be those in use:
        write or copy them before the next step.
        """
        ...

    def load(self, state: dict[str, Any]) -> None:
        """Take over what `state` returned, in this strategy or another one."""
        ...

    def close(self) -> None:
        """Give back everything, so that the worker can serve another trial."""
        ...


@runtime_checkable
class WritableInParts(Protocol):
    """A strategy whose workers each write their own part of the state. Optional."""

    def parts(self) -> StateParts:
        """Return what this worker writes of what `state` would return.

        Every worker must call it.
        """
        ...


@runtime_checkable
class RateSetting(Protocol):
    """A strategy that updates parameters before `update`, so it must know the rate of a step.

    optional.
    """

    def set_rate(self, lr: float) -> None:
        """Set the learning rate of the coming step."""
        ...


@runtime_checkable
class StepCounting(Protocol):
    """A strategy that knows the count of a step, if that is not its samples. Optional."""

    @property
    def step_count(self) -> Tensor | None:
        """The count of the last step over all workers, on the device, or None if samples count."""
        ...


@runtime_checkable
class NoiseMeasuring(Protocol):
    """A strategy that can take the norms of gradients from which the gradient noise follows.

    optional.
    """

    def measure(self, batch: StepBatch) -> MeasuredStep:
        """Do what `forward_backward` does, bit for bit, and take norms of gradients.

        Norms are those before clipping, free of the loss scale. All workers call it for the same
        steps.

        Args:
            batch: This worker's micro batches; all of them have samples.
        """
        ...


@runtime_checkable
class StatisticsRenewing(Protocol):
    """A strategy that may show weights to which statistics of batch normalisation do not fit.

    optional.
    """

    @property
    def needs_statistics(self) -> bool:
        """Whether it shows such weights now, the same on every worker."""
        ...

    def renew_statistics(self, inputs: Iterable[Any]) -> None:
        """Gather the statistics again.

        Every worker must call it, while the strategy is not training.

        Args:
            inputs: This worker's part of the training samples, in micro batches.
        """
        ...


@runtime_checkable
class Probeable(Protocol):
    """A strategy that can make steps without the other workers, for probes. Optional."""

    def alone_bytes(self) -> int:
        """Return what this worker may hold more while it is alone than in other steps."""
        ...

    def alone(self) -> AbstractContextManager[None]:
        """Compute without exchanges in this context, to measure the step without them.

        The parameters are not used afterwards. Inside, `forward_backward` and `update` affect only
        this worker, and remaining gradients are dropped at the end. Every worker must enter and
        leave it. That exchanges nothing if each worker holds the whole model.
        """
        ...
