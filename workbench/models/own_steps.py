"""A class with steps of its own, such as a GAN with two optimizers, as a module that the loop can
drive.

The class is called with the configuration. `configure` makes modules and optimizers, `step` returns
the loss of a micro batch for one of the optimizers, and `evaluate` the metrics of a batch. Backward
passes, accumulation, exchange, clipping and updates are left to strategies; when to do what, to
training.
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
"""The name of an optimizer that is the only one."""


class OwnSteps(nn.Module):
    """The modules of a user's object, under the names of its attributes, and its optimizers.

    Attributes:
        optimizers: By name, in the order in which they make a step.
        takes_lr: Whether the learning rate of the experiment reached them.
    """

    optimizers: dict[str, Optimizer]
    takes_lr: bool

    def __init__(self, owner: Any, lr: float) -> None:
        """Let the user's object make its modules and optimizers.

        Args:
            owner: Has `configure` and `step`, and may have `evaluate`.
            lr: Learning rate at the global batch in use; passed to `configure` if it has a
                parameter `lr`.

        Raises:
            ExperimentError: If a method is missing or returns something else.
        """
        super().__init__()
        for name in ("configure", "step"):
            if not callable(getattr(owner, name, None)):
                raise ExperimentError(
                    f"{type(owner).__name__} has no method {name}",
                    field="train",
                    allowed="a class with configure, step and evaluate, or without data a function",
                )
        self.takes_lr = "lr" in inspect.signature(owner.configure).parameters
        made = owner.configure(lr=lr) if self.takes_lr else owner.configure()
        self.optimizers = _by_name(made, type(owner).__name__)
        for name, value in vars(owner).items():
            if isinstance(value, nn.Module):
                self.add_module(name, value)
        self._takes_name = len(inspect.signature(owner.step).parameters) > 1
        self._owner: tuple[Any, ...] = (owner,)  # in a tuple, as a module would be registered here
        if isinstance(owner, nn.Module):
            self.add_module("steps", owner)

    @property
    def owner(self) -> Any:
        """The user's object."""
        return self._owner[0]

    def loss(self, batch: Any, name: str) -> Tensor | tuple[Tensor, Tensor | int | float] | None:
        """Return the loss of a micro batch for one of the optimizers.

        None if that makes no step now.

        A loss that is no mean over samples is returned as its total and of how many it is.

        Raises:
            ExperimentError: If `step` returns something else.
        """
        found = self.owner.step(batch, name) if self._takes_name else self.owner.step(batch)
        if found is None or (isinstance(found, Tensor) and found.ndim == 0) or _is_counted(found):
            return found
        raise ExperimentError(
            f"step returned an object of type {type(found).__name__}",
            field="train",
            allowed="the loss, a scalar tensor; its total and its count; or None for no step now",
        )

    def replace(self, parameters: Mapping[Tensor, Tensor]) -> None:
        """Let the optimizers know that parameters were replaced."""
        for optimizer in self.optimizers.values():
            for group in optimizer.param_groups:
                group["params"] = [parameters.get(each, each) for each in group["params"]]

    def forward(self, batch: Any) -> dict[str, Tensor]:
        """Return the metrics of a batch by name.

        What `evaluate` returns, else the sum of the losses.
        """
        if not hasattr(self.owner, "evaluate"):
            return {"loss": total_loss(self, batch)}
        found = self.owner.evaluate(batch)
        if not isinstance(found, Mapping) or not found:
            raise ExperimentError(
                f"evaluate returned an object of type {type(found).__name__}",
                field="train",
                allowed=(
                    "a mapping from names of metrics to their means over the batch, or to (total,"
                    " count)"
                ),
            )
        return dict(found)


def total_loss(model: nn.Module, batch: Any) -> Tensor:
    """Return the sum of the losses of all optimizers."""
    assert isinstance(model, OwnSteps)
    losses = [model.loss(batch, name) for name in model.optimizers]
    return sum((_mean(loss) for loss in losses if loss is not None), start=torch.zeros(()))


def _mean(loss: Tensor | tuple[Tensor, Tensor | int | float]) -> Tensor:
    return loss[0] / loss[1] if isinstance(loss, tuple) else loss


def _is_counted(found: Any) -> bool:
    return (
        isinstance(found, tuple)
        and len(found) == 2
        and isinstance(found[0], Tensor)
        and found[0].ndim == 0
        and (
            isinstance(found[1], int | float)
            or (isinstance(found[1], Tensor) and found[1].ndim == 0)
        )
    )


def call_with_batch(model: nn.Module, batch: Any) -> Any:
    """Call a module with the whole batch as its only argument, whatever it is."""
    return model(batch)


def metrics_by_name(names: list[str]) -> dict[str, BatchMetric]:
    """Return metrics that read what `evaluate` returned."""

    def reading(name: str) -> Callable[[Any, Any], tuple[Tensor, Any]]:
        of = f"evaluate, for {name},"

        def read(outputs: Any, targets: Any) -> tuple[Tensor, Any]:
            found = outputs[name]
            if isinstance(found, tuple) and len(found) == 2:
                return as_measured(found[0], of).float(), as_measured(found[1], of)
            return mean_over_samples(lambda *_: as_measured(found, of).float()).measure(
                outputs, targets
            )

        return read

    return {name: BatchMetric(reading(name)) for name in names}


def _by_name(made: Any, owner: str) -> dict[str, Optimizer]:
    optimizers = made if isinstance(made, Mapping) else {ONLY: made}
    if not optimizers or not all(isinstance(item, Optimizer) for item in optimizers.values()):
        kinds = {type(item).__name__ for item in optimizers.values()}
        raise ExperimentError(
            f"configure of {owner} returned {', '.join(sorted(kinds)) or 'nothing'}",
            field="train",
            allowed="an optimizer, or a mapping from names to optimizers",
        )
    return {str(name): item for name, item in optimizers.items()}
