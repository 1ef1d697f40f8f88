"""Your own class with training steps, such as a GAN with two optimizers, as a module for the loop.

The class is called with the configuration. `configure` makes modules and optimizers, `step` returns
the loss of a micro batch for one optimizer, and `evaluate` returns the metrics of a batch. Backward
passes, accumulation, exchange, clipping and updates are left to the strategies.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from workbench.foundation.errors import ExperimentError
from workbench.models.metrics import BatchMetric, as_measured, mean_over_samples

ONLY = "optimizer"
"""The name of an optimizer if there is only one."""


class OwnSteps(nn.Module):
    """The modules and optimizers of your object. Modules have the names of their attributes.

    Attributes:
        optimizers: The optimizers by name, in the order of their steps.
        takes_lr: Whether the optimizers use the learning rate of the experiment.
    """

    optimizers: dict[str, Optimizer]
    takes_lr: bool

    def __init__(self, owner: Any, lr: float) -> None:
        """Let your object make its modules and optimizers.

        Args:
            owner: Your object. It has `configure` and `step`, and may have `evaluate`.
            lr: Learning rate at the global batch in use. `configure` receives it if it has a
                parameter `lr`.

        Raises:
            ExperimentError: If a method is missing or returns another type.
        """
        super().__init__()
        for name in ("configure", "step"):
            if not callable(getattr(owner, name, None)):
                raise ExperimentError(
                    f"{type(owner).__name__} has no method {name}",
                    field="train",
                    allowed="a class with configure, step and evaluate. Without data: a function",
                )
        self.takes_lr = "lr" in inspect.signature(owner.configure).parameters
        if self.takes_lr:
            made = owner.configure(lr=lr)
        else:
            made = owner.configure()
        self.optimizers = _by_name(made, type(owner).__name__)
        for name, value in vars(owner).items():
            if isinstance(value, nn.Module):
                self.add_module(name, value)
        self._takes_name = len(inspect.signature(owner.step).parameters) > 1
        self._owner: tuple[Any, ...] = (owner,)  # in a tuple, or a module would be registered here
        if isinstance(owner, nn.Module):
            self.add_module("steps", owner)

    @property
    def owner(self) -> Any:
        """Your object."""
        return self._owner[0]

    def loss(self, batch: Any, name: str) -> Tensor | tuple[Tensor, Tensor | int | float] | None:
        """Return one optimizer's loss of a micro batch, or None if that one makes no step now.

        A loss that is not a mean over samples is returned as a total and its count.

        Raises:
            ExperimentError: If `step` returns another type.
        """
        arguments = (batch, name) if self._takes_name else (batch,)
        loss = self.owner.step(*arguments)
        if loss is None or _is_scalar(loss) or _is_counted(loss):
            return loss
        raise ExperimentError(
            f"step returned an object of type {type(loss).__name__}",
            field="train",
            allowed="the loss as a scalar tensor, (total, count), or None to make no step now",
        )

    def replace(self, parameters: Mapping[Tensor, Tensor]) -> None:
        """Replace parameters in the optimizers."""
        for optimizer in self.optimizers.values():
            for group in optimizer.param_groups:
                group["params"] = [parameters.get(old, old) for old in group["params"]]

    def forward(self, batch: Any) -> dict[str, Tensor]:
        """Return the metrics of a batch by name: the result of `evaluate`, or the total loss."""
        if not hasattr(self.owner, "evaluate"):
            return {"loss": total_loss(self, batch)}
        metrics = self.owner.evaluate(batch)
        if not isinstance(metrics, Mapping) or not metrics:
            raise ExperimentError(
                f"evaluate returned an object of type {type(metrics).__name__}",
                field="train",
                allowed=(
                    "a mapping from names of metrics to their means over the batch, or to (total,"
                    " count)"
                ),
            )
        return dict(metrics)


def total_loss(model: nn.Module, batch: Any) -> Tensor:
    """Return the sum of the losses of all optimizers."""
    assert isinstance(model, OwnSteps)
    losses = [model.loss(batch, name) for name in model.optimizers]
    return sum((_mean(loss) for loss in losses if loss is not None), start=torch.zeros(()))


def _mean(loss: Tensor | tuple[Tensor, Tensor | int | float]) -> Tensor:
    if isinstance(loss, tuple):
        return loss[0] / loss[1]
    return loss


def _is_scalar(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim == 0


def _is_counted(value: Any) -> bool:
    if not isinstance(value, tuple) or len(value) != 2:
        return False
    total, count = value
    return _is_scalar(total) and (isinstance(count, int | float) or _is_scalar(count))


def call_with_batch(model: nn.Module, batch: Any) -> Any:
    """Call a module with the whole batch as its only argument."""
    return model(batch)


def metrics_by_name(names: list[str]) -> dict[str, BatchMetric]:
    """Return metrics that read the result of `evaluate`."""

    def reading(name: str) -> Callable[[Any, Any], tuple[Tensor, Any]]:
        source = f"evaluate, for {name},"

        def read(outputs: Any, targets: Any) -> tuple[Tensor, Any]:
            value = outputs[name]
            if isinstance(value, tuple) and len(value) == 2:
                return as_measured(value[0], source).float(), as_measured(value[1], source)
            mean = mean_over_samples(lambda *_: as_measured(value, source).float())
            return mean.measure(outputs, targets)

        return read

    return {name: BatchMetric(reading(name)) for name in names}


def _by_name(made: Any, owner: str) -> dict[str, Optimizer]:
    optimizers: Mapping[Any, Any] = {ONLY: made}
    if isinstance(made, Mapping):
        optimizers = made
    if not optimizers or not all(isinstance(item, Optimizer) for item in optimizers.values()):
        kinds = {type(item).__name__ for item in optimizers.values()}
        raise ExperimentError(
            f"configure of {owner} returned {', '.join(sorted(kinds)) or 'nothing'}",
            field="train",
            allowed="an optimizer, or a mapping from names to optimizers",
        )
    return {str(name): item for name, item in optimizers.items()}
