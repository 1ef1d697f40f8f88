"""Steps of a model with several optimizers, such as a GAN. Each step has one phase per optimizer.

In its phase, an optimizer accumulates the gradients of its own loss over all micro batches of the
step. Then workers exchange them, and it updates its own parameters. The next phase sees the
changes. Computing the losses is left to the model.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Protocol, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from workbench.foundation.errors import ExperimentError
from workbench.training.strategies.capabilities import BUILT_IN, Capabilities
from workbench.training.strategies.counted_losses import CountedStep, stacked
from workbench.training.strategies.ddp import DataParallel
from workbench.training.strategies.gradient_norms import WatchedBatch
from workbench.training.strategies.recompute import recompute_blocks
from workbench.training.strategies.single import check_gradient, on_device
from workbench.training.strategies.strategy import (
    HeldBatch,
    MeasuredStep,
    MicroBatch,
    OptimizerFactory,
    StepBatch,
    Worker,
    parameters_in,
)


class PhasedModel(Protocol):
    """The interface of a model for phases."""

    optimizers: dict[str, Optimizer]

    def loss(self, batch: Any, name: str) -> Tensor | tuple[Tensor, Tensor | int | float] | None:
        """Return one optimizer's loss of a micro batch, or its total and count.

        None if this optimizer makes no step now.
        """
        ...


class Phased(DataParallel):
    """Steps with one phase per optimizer. Each worker holds the whole model."""

    capabilities: ClassVar[Capabilities] = BUILT_IN["ddp"]

    def setup(self, model: nn.Module, optimizer: OptimizerFactory, worker: Worker) -> None:
        """Place the model, which has made its optimizers. See Strategy.setup."""
        self._worker = worker
        self._model = self._trained = on_device(model, worker.device)
        if self._settings.kept_bytes is not None:
            raise ExperimentError(
                "a limit of bytes is not supported for models with several optimizers",
                field="plan.recompute",
                allowed="none, blocks",
            )
        self._blocks = recompute_blocks(self._model) if self._settings.recompute else ()
        self._optimizers = cast(PhasedModel, model).optimizers
        for item in self._optimizers.values():
            # The optimizer's state may have been made before the model was moved to the device.
            # Loading it moves each tensor to the device of its parameter.
            if worker.device.type == "cuda" and item.state:
                item.load_state_dict(item.state_dict())
        self._optimizer = cast(Optimizer, _Together(self._optimizers))
        self._rates = {
            name: [group["lr"] for group in item.param_groups]
            for name, item in self._optimizers.items()
        }
        self._owned: dict[str, list[Tensor]] = {}
        for name, item in self._optimizers.items():
            parameters = parameters_in(item.param_groups)
            self._owned[name] = [parameter for parameter in parameters if parameter.requires_grad]
        self._parameters = [*itertools.chain.from_iterable(self._owned.values())]
        self._scaler = (
            torch.amp.GradScaler(worker.device.type) if self._settings.precision == "fp16" else None
        )
        self._factor, self._peak_lr = 1.0, self._settings.peak_lr
        self._waiting: str | None = None
        self._mean = self._begin_mean()

    @property
    def own_steps(self) -> Any:
        """The model, which computes the losses of its optimizers."""
        return self._model

    def set_rate(self, lr: float) -> None:
        """Set the learning rate of the next step. All optimizers are scaled by the same factor."""
        self._factor = lr / self._peak_lr

    def forward_backward(self, batch: StepBatch) -> Tensor:
        """Make all phases of a step except the last update. See Strategy.forward_backward."""
        held: list[MicroBatch] = list(batch)  # each phase iterates over them
        total = torch.zeros((), device=self._worker.device)
        # A phase starts with the update of the previous one. The last update is left to `update`.
        for name in self._optimizers:
            loss = self._phase(name, held, batch.num_samples)
            if loss is not None:
                total = total + loss
        return total

    def measure(self, batch: StepBatch) -> MeasuredStep:
        """Make a step and measure the norms of all phases, which add up.

        See NoiseMeasuring.measure.
        """
        held: list[MicroBatch] = list(batch)  # each phase iterates over them
        total = torch.zeros((), device=self._worker.device)
        norms = torch.zeros(2, dtype=torch.float64, device=self._worker.device)
        for name, owned in self._owned.items():
            watched = WatchedBatch(HeldBatch(held, batch.num_samples), owned)
            with watched:
                loss = self._phase(name, watched, batch.num_samples)
            if loss is None:
                continue
            total = total + loss
            sqr_norms = watched.sqr_norms(owned, self._worker.device)
            if self._counted_step is not None:  # the norms were taken before the count was known
                factor = self._counted_step.factor.double()
                sqr_norms = sqr_norms * torch.stack([factor.square(), torch.ones_like(factor)])
            if self._scaler is not None:
                unit = torch.ones((), dtype=torch.float64, device=sqr_norms.device)
                sqr_norms /= self._scaler.scale(unit).square()
            norms += sqr_norms
        # The norms are added up over all workers later. Each of them holds the whole gradient, so
        # each contributes its share.
        return MeasuredStep(total, norms / self._worker.num_replicas)

    def update(self, lr: float) -> None:
        """Make the update of the last phase. See Strategy.update."""
        self.set_rate(lr)
        self._finish_phase()
        if self._mean is not None:
            self._mean.follow()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Compute without the other workers in this context. See Probeable.alone."""
        try:
            with super().alone():
                yield
        finally:
            self._waiting = None

    def alone_bytes(self) -> int:
        """Return the extra memory of this worker while it is alone. See Probeable.alone_bytes."""
        return 0

    def close(self) -> None:
        """Drop everything. See Strategy.close."""
        del self._optimizers, self._owned
        super().close()

    def _phase(self, name: str, batch: Any, num_samples: int) -> Tensor | None:
        """Accumulate and exchange the gradients of one optimizer.

        Returns:
            This worker's share of the optimizer's loss, or None if it makes no step.
        """
        self._finish_phase()  # the update of the previous phase
        mark = self._settings.mark
        share = None
        counted: CountedStep | None = None
        with self._training_only(self._owned[name]):
            for inputs, _, weight in batch:
                mark("data")
                with self._autocast:
                    loss = cast(PhasedModel, self._model).loss(inputs, name)
                if loss is None:
                    continue
                mark("forward")
                if isinstance(loss, tuple):
                    counted = counted or CountedStep(num_samples)
                    counted.add(stacked(*loss), weight)
                    loss, part = loss[0], counted.part(weight)
                else:
                    part = weight
                check_gradient(loss)
                scaled = loss * part if self._scaler is None else self._scaler.scale(loss * part)
                scaled.backward()
                mark("backward")
                if counted is not None:
                    continue
                part = loss.detach() * weight
                share = part if share is None else share + part
        self._counted_step = counted
        if counted is not None:
            share = counted.finish(self._owned[name], self._total_count, self._worker.device)
        if share is not None:
            self._exchange(self._owned[name])
            self._waiting = name
        return share

    @contextlib.contextmanager
    def _training_only(self, owned: Sequence[Tensor]) -> Iterator[None]:
        """Compute gradients of one optimizer's parameters only."""
        # The loss of a generator flows through the discriminator, whose parameters would otherwise
        # get gradients that belong to no optimizer in this phase.
        chosen = {id(parameter) for parameter in owned}
        others = [parameter for parameter in self._parameters if id(parameter) not in chosen]
        for parameter in others:
            parameter.requires_grad_(False)
        try:
            yield
        finally:
            for parameter in others:
                parameter.requires_grad_(True)

    def _total_count(self, count: Tensor) -> Tensor:
        """Return the count of a phase over all workers."""
        is_shared = self._worker.num_workers > 1 and not self._is_alone
        if not is_shared:
            return count
        return self._worker.group.total(count)

    def _exchange(self, owned: Sequence[Tensor]) -> None:
        """Add up gradients over the workers. A missing gradient counts as 0."""
        if self._worker.num_workers == 1 or self._is_alone:
            return
        gradients = [
            torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            for parameter in owned
        ]
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        parts = self._worker.group.total(flat).split([parameter.numel() for parameter in owned])
        for parameter, part in zip(owned, parts, strict=True):
            parameter.grad = part.view_as(parameter)

    def _finish_phase(self) -> None:
        """Clip and update the parameters of the phase that has computed its gradients."""
        name, self._waiting = self._waiting, None
        if name is None:
            return
        optimizer, owned = self._optimizers[name], self._owned[name]
        for group, rate in zip(optimizer.param_groups, self._rates[name], strict=True):
            group["lr"] = rate * self._factor
        if self._settings.clip_norm is not None:
            if self._scaler is not None:
                self._scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(owned, self._settings.clip_norm)
        if self._scaler is None:
            optimizer.step()
        else:
            self._scaler.step(optimizer)
            self._scaler.update()
        optimizer.zero_grad(set_to_none=True)
        self._settings.mark("update")


class _Together:
    """The states of several optimizers, by name."""

    def __init__(self, optimizers: dict[str, Optimizer]) -> None:
        self._optimizers = optimizers

    def state_dict(self) -> dict[str, Any]:
        return {name: item.state_dict() for name, item in self._optimizers.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, item in self._optimizers.items():
            item.load_state_dict(state[name])

    def zero_grad(self, set_to_none: bool) -> None:
        for item in self._optimizers.values():
            item.zero_grad(set_to_none)
