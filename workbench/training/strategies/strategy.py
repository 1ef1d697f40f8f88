"""The interface between the loop and the ways in which workers make one step.

It also compiles models for training. A compiled module shares the parameters of the model, and
their names stay the same. Evaluations use the model itself.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from workbench.foundation.errors import ExperimentError
from workbench.training.exchanges.exchange import Exchange
from workbench.training.strategies.capabilities import Capabilities
from workbench.training.strategies.tensor_shards import StateParts
from workbench.training.strategies.weight_mean import WeightMean
from workbench.training.strategies.worker_group import Group

OptimizerFactory = Callable[[Iterable[Any]], Optimizer]
"""Makes an optimizer of parameters, or of groups of parameters in torch's form."""


@dataclass(frozen=True)
class Worker:
    """Which worker this process is.

    Attributes:
        rank: From 0 to num_workers - 1. Rank 0 reports and writes checkpoints.
        num_workers: Workers that share each optimizer step.
        device: The device of this worker.
        group: The group through which workers exchange values.
        workers_per_replica: Number of workers that hold one copy of the model together. They see
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
    """How each sample is hidden in a private training.

    Attributes:
        max_norm: Norm to which the gradient of each sample is clipped.
        noise_multiplier: Standard deviation of the noise of each value, in units of `max_norm`.
        expected_batch: Samples that a step has on average.
    """

    max_norm: float
    noise_multiplier: float
    expected_batch: int


@runtime_checkable
class CountedLoss(Protocol):
    """A loss that may count something other than samples in the parts of a step. Optional."""

    @property
    def is_counted(self) -> bool:
        """Whether it does. The same on every worker."""
        ...

    def measure(self, outputs: Any, targets: Any) -> tuple[Tensor, Tensor | int]:
        """Return total and count of a part. The loss of a step is the total over all parts,
        divided by the count over all parts.
        """
        ...


@dataclass(frozen=True)
class StepSettings:
    """The settings of a step for every strategy.

    Attributes:
        loss: (outputs, targets) -> mean over the samples of a batch. It may be a CountedLoss.
        precision: Type of the arithmetic: fp32, bf16 or fp16.
        gradient_hook: Changes the gradients of a step in place, by the names of their parameters,
            before they are clipped. Only for strategies in which each worker holds all of them.
        clip_norm: Maximum norm of the gradients. Larger ones are scaled down.
        recompute: Whether the activations of the model's blocks are recomputed in the backward
            pass.
        kept_bytes: Maximum bytes that the forward passes of all unfinished micro batches may keep.
            Only as many blocks are recomputed as that requires. None recomputes all blocks.
        compiles: Whether torch.compile makes code for the model in the first step.
        records: Whether kernels are recorded in CUDA graphs and replayed. See `single`.
        is_channels_last: Whether images and the weights of convolutions have the channels-last
            memory format.
        mark: Called at the end of each part of a step with its name: data, forward, backward,
            update.
        group: Divides named parameters into the groups of the optimizer. None makes one group.
            The rate of a step is multiplied by the `lr_factor` of a group, and is 0 in its first
            `frozen_steps`.
        average: Makes the mean of the weights, which is evaluated and stored instead of them. None
            makes no mean.
        find_unused: Whether workers look in each step for parameters without a gradient. auto: if
            there are any in the first step.
        peak_lr: The peak learning rate. Schedules multiply it by a factor.
        call: How a model is called with the inputs of a micro batch, which need not be one tensor.
        bucket_bytes: Size of the buckets in which gradients are exchanged, or None for torch's
            default.
        pipeline_schedule: Order of the tasks of a pipeline stage: 1f1b, gpipe, or zero_bubble,
            which allows neither shards nor recomputed blocks.
        example: Inputs of some samples, for their shapes, or None if there are none.
        exchange: How replicas agree. None averages each gradient.
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
        """Check that the settings work with a model of which each worker holds only a part.

        Args:
            model: The model in words, for the error.

        Raises:
            ExperimentError: If they do not.
        """
        for name, is_refused, allowed in (
            ("precision", self.precision == "fp16", "fp32, bf16, auto"),
            ("compile", self.compiles, "none, auto"),
        ):
            if is_refused:
                raise ExperimentError(
                    f"{model} cannot be trained with this {name}",
                    field=f"plan.{name}",
                    allowed=allowed,
                )


def parameters_in(groups: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Return the parameters of the groups of an optimizer, in order."""
    return [parameter for group in groups for parameter in group["params"]]


class MicroBatch(NamedTuple):
    """Samples that one worker computes at once, on its device."""

    inputs: Any
    targets: Any
    weight: float
    """Its part of the samples of the step over all workers. 0 means padding, so that all workers
    compute equally many micro batches.
    """


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
    """The micro batches of a step in memory, which can be iterated several times."""

    def __init__(self, micro_batches: Sequence[MicroBatch], num_samples: int) -> None:
        """Hold micro batches.

        Args:
            micro_batches: The micro batches of this worker.
            num_samples: Samples of the step over all workers.
        """
        super().__init__(micro_batches)
        self.num_samples = num_samples


class MeasuredStep(NamedTuple):
    """The loss of a step, and the norms from which gradient noise is estimated."""

    loss: Tensor
    """This worker's share of the mean loss of the step."""
    sqr_norms: Tensor
    """This worker's shares of two squared norms, as fp64 on its device.

    The first is the mean over the micro batches of all workers. The second belongs to the gradient
    of the whole step.
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
            optimizer: Makes the optimizer. It is called when the parameters have their final form,
                because sharding replaces them.
            worker: Which worker this is.
        """
        ...

    def forward_backward(self, batch: StepBatch) -> Tensor:
        """Compute the gradient of the loss of a step.

        Gradients are exchanged once in each step, with its last micro batch. Micro batches count by
        their weights, or by the count of the loss.

        Args:
            batch: This worker's micro batches.

        Returns:
            This worker's share of the mean loss of the step, a detached scalar on the device. The
            shares of all workers add up to the mean.
        """
        ...

    def update(self, lr: float) -> None:
        """Clip, update the parameters, and drop the gradients.

        Args:
            lr: The learning rate of this step.
        """
        ...

    def predict(self, inputs: Any) -> Any:
        """Return the outputs for a batch, in the precision of training and without gradients.

        Returns:
            The outputs. None on a worker that does not hold the end of the model, because another
            worker of its replica has them.
        """
        ...

    def train(self, mode: bool) -> None:
        """Switch dropout and batch statistics on (True) or off (False).

        Every worker must call it.
        """
        ...

    def state(self) -> dict[str, Any]:
        """Return model, optimizer and scaler as tensors and plain values, for a checkpoint.

        Every worker must call it. It is the whole state, under the names of the original model. So
        any strategy can load it, with any number of workers. The tensors may be in use: write or
        copy them before the next step.
        """
        ...

    def load(self, state: dict[str, Any]) -> None:
        """Load what `state` of this strategy or another one has returned."""
        ...

    def close(self) -> None:
        """Free everything, so that the worker can serve another trial."""
        ...


@runtime_checkable
class WritableInParts(Protocol):
    """A strategy whose workers each write their own part of the state. Optional."""

    def parts(self) -> StateParts:
        """Return the part of `state` that this worker writes. Every worker must call it."""
        ...


@runtime_checkable
class RateSetting(Protocol):
    """A strategy that updates parameters before `update`, so it must know the rate earlier.

    Optional.
    """

    def set_rate(self, lr: float) -> None:
        """Set the learning rate of the next step."""
        ...


@runtime_checkable
class StepCounting(Protocol):
    """A strategy that knows the count of a step if its loss does not count samples. Optional."""

    @property
    def step_count(self) -> Tensor | None:
        """The count of the last step over all workers, on the device, or None if samples count."""
        ...


@runtime_checkable
class NoiseMeasuring(Protocol):
    """A strategy that can measure the norms of gradients, to estimate gradient noise. Optional."""

    def measure(self, batch: StepBatch) -> MeasuredStep:
        """Do exactly what `forward_backward` does, and measure norms of gradients.

        The norms are taken before clipping, without the loss scale. All workers call it for the
        same steps.

        Args:
            batch: This worker's micro batches. All of them have samples.
        """
        ...


@runtime_checkable
class StatisticsRenewing(Protocol):
    """A strategy that may evaluate weights whose statistics of batch normalisation are stale.

    Optional. The mean weights of SWA need it: no batch was ever computed with them.
    """

    @property
    def needs_statistics(self) -> bool:
        """Whether it evaluates such weights now. The same on every worker."""
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
        """Return how many more bytes this worker may hold while it is alone."""
        ...

    def alone(self) -> AbstractContextManager[None]:
        """Compute without exchanges in this context, to measure the step without them.

        Inside, `forward_backward` and `update` affect only this worker, so the parameters must not
        be used afterwards. Remaining gradients are dropped at the end. Every worker must enter and
        leave the context. If each worker holds the whole model, that exchanges nothing.
        """
        ...


def compiled(model: nn.Module) -> nn.Module:
    """Return a module to call in training instead of a model. The first call compiles it."""
    return cast(nn.Module, _compile(model))


def compile_forward(module: nn.Module) -> None:
    """Compile the forward pass of a module, but not the hooks around it."""
    module.forward = _compile(module.forward)  # type: ignore[method-assign]


def as_it_is() -> AbstractContextManager[Any]:
    """Let compiled modules run without their compiled code for a while.

    Otherwise evaluations would compile them a second time.
    """
    return torch.compiler.set_stance("force_eager")


def _compile(target: Any) -> Any:
    # With more threads, inductor starts processes that outlive the trial.
    settings: Any = importlib.import_module("torch._inductor.config")
    settings.compile_threads = 1
    return torch.compile(target)


def num_compiled() -> int:
    """Return how many graphs this process has compiled. A new kind of batch may need another."""
    utils: Any = importlib.import_module("torch._dynamo.utils")
    return int(utils.counters["stats"]["unique_graphs"])


def forget_compiled() -> None:
    """Drop all compiled code of this process, because it keeps models alive."""
    torch._dynamo.reset()
