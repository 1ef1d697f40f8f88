"""Losses: the mean over the predictions of a batch, as a function of (outputs, targets).

Classification outputs are (batch, classes), language-model outputs (batch, context, vocabulary), both with
integer targets; regression outputs are (batch, targets), or (batch, 1) where targets are (batch,). Of a model
that returns more than one tensor, `models.calls.output_in` chooses.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional

from workbench.errors import ExperimentError
from workbench.models.calls import loss_in, output_in


def paired(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return outputs and targets of a regression in one shape and type, so that nothing broadcasts."""
    outputs = output_in(outputs)
    return outputs.reshape(targets.shape), targets.to(outputs.dtype)


def listed(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return (predictions, classes) scores and their class numbers, whatever dimensions came before.

    Targets of the shape of the scores are shares of the classes, and stay these.
    """
    scores = output_in(outputs)
    if targets.is_floating_point() and targets.shape == scores.shape:
        return scores.flatten(0, -2), targets.flatten(0, -2).to(scores.dtype)
    numbers = targets if targets.is_floating_point() else targets.long()
    return scores.flatten(0, -2), numbers.flatten()


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean negative log-likelihood of the targets, in nats."""
    return functional.cross_entropy(*listed(outputs, targets))


def mean_squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean squared difference, in the squared unit of the targets."""
    return functional.mse_loss(*paired(outputs, targets))


def mean_absolute_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean absolute difference, in the unit of the targets."""
    return functional.l1_loss(*paired(outputs, targets))


def huber(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean Huber loss: squared below a difference of 1, linear above."""
    return functional.huber_loss(*paired(outputs, targets))


def of_model(outputs: Any, targets: Any) -> Tensor:
    """Return the loss that the model computed itself.

    Raises:
        ExperimentError: If it returned none.
    """
    found = loss_in(outputs)
    if found is None:
        raise ExperimentError(
            "the model returns no loss",
            field="loss",
            allowed="a model that returns `loss` as an attribute, as an entry, or as the only scalar",
            next_step="Return it, or name a loss.",
        )
    return found
