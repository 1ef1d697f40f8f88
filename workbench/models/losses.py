"""Losses: functions of (outputs, targets) that return the mean over the predictions of a batch.

How outputs and targets of different shapes belong together is left to `pairing`. If a model returns
more than one tensor, `calls.output_in` chooses the one to compare.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from workbench.foundation.errors import ExperimentError
from workbench.models.model_calls import AnswerRewards, EmbeddedPairs, TokenLosses, loss_in
from workbench.models.pairing import UNKNOWN, Pairing, is_readable, num_predictions, reads


@reads("classes")
def cross_entropy(outputs: Any, targets: Any, pairing: Pairing = UNKNOWN) -> Tensor:
    """Return the mean negative log-likelihood of the targets, in nats."""
    if isinstance(outputs, TokenLosses):
        return outputs.total / outputs.num
    scores, wanted = pairing.classes(outputs, targets, reader="cross_entropy", checks_numbers=False)
    with _naming_classes(pairing, targets):
        return functional.cross_entropy(scores, wanted)


@reads("classes")
def cross_entropy_in_parts(
    outputs: Any, targets: Any, pairing: Pairing = UNKNOWN
) -> tuple[Tensor, Any]:
    """Return the total of `cross_entropy`, and the number of targets that are not ignored."""
    if isinstance(outputs, TokenLosses):
        return outputs.total, outputs.num
    scores, wanted = pairing.classes(outputs, targets, reader="cross_entropy", checks_numbers=False)
    with _naming_classes(pairing, targets):
        return functional.cross_entropy(scores, wanted, reduction="sum"), num_predictions(wanted)


@contextlib.contextmanager
def _naming_classes(pairing: Pairing, targets: Any) -> Iterator[None]:
    """Explain which class has no score in the model. Torch's error only has its number."""
    try:
        yield
    except IndexError:
        if is_readable(targets):
            pairing.check_targets(targets, kind="classes")
        raise


@reads("numbers")
def mean_squared_error(outputs: Any, targets: Any, pairing: Pairing = UNKNOWN) -> Tensor:
    """Return the mean squared difference, in the squared unit of the targets."""
    return functional.mse_loss(*pairing.numbers(outputs, targets, reader="mean_squared_error"))


@reads("numbers")
def mean_absolute_error(outputs: Any, targets: Any, pairing: Pairing = UNKNOWN) -> Tensor:
    """Return the mean absolute difference, in the unit of the targets."""
    return functional.l1_loss(*pairing.numbers(outputs, targets, reader="mean_absolute_error"))


@reads("numbers")
def huber(outputs: Any, targets: Any, pairing: Pairing = UNKNOWN) -> Tensor:
    """Return the mean Huber loss: squared below a difference of 1, linear above."""
    return functional.huber_loss(*pairing.numbers(outputs, targets, reader="huber"))


def dpo(outputs: AnswerRewards, targets: Any) -> Tensor:
    """Return the mean of -log sigmoid(reward of the chosen answer - reward of the other).

    Source: Rafailov et al., Direct Preference Optimization (2023), equation 7.

    Args:
        outputs: The rewards of the answers.
        targets: Not used: the model has read which tokens count.
    """
    return -functional.logsigmoid(outputs.chosen - outputs.rejected).mean()


def contrastive(outputs: EmbeddedPairs, targets: Any) -> Tensor:
    """Return how badly each first text tells its second text from those of the other pairs.

    It is the cross entropy of the cosines, divided by the temperature, over the batch.

    Source: Henderson et al., Efficient Natural Language Response Suggestion (2017), section 4.

    Args:
        outputs: The embedded pairs of a batch.
        targets: Not used: row number i belongs to column number i.
    """
    scores = outputs.first @ outputs.second.T / outputs.temperature
    return functional.cross_entropy(scores, torch.arange(len(scores), device=scores.device))


def of_model(outputs: Any, targets: Any) -> Tensor:
    """Return the loss that the model has computed.

    Raises:
        ExperimentError: If the model has not returned a loss.
    """
    loss = loss_in(outputs)
    if loss is None:
        raise ExperimentError(
            "the model does not return a loss",
            field="loss",
            allowed=(
                "a model that returns `loss` as an attribute, as an entry, or as the only scalar"
            ),
            next_step="Return the loss from the model, or set loss to a function or a name.",
        )
    return loss
