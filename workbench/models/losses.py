"""Losses: the mean over the predictions of a batch, as a function of (outputs, targets).

How outputs and targets of which shapes are understood is decided in `pairing`. Of a model that
returns more than one tensor, `models.calls.output_in` chooses.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import Tensor
from torch.nn import functional

from workbench.foundation.errors import ExperimentError
from workbench.models.calls import loss_in
from workbench.models.pairing import IGNORED, UNKNOWN, Pairing, is_readable, reads


@reads("classes")
def cross_entropy(outputs: Any, targets: Any, pairing: Pairing = UNKNOWN) -> Tensor:
    """Return the mean negative log-likelihood of the targets, in nats."""
    scores, wanted = pairing.classes(outputs, targets, reader="cross_entropy", checks_numbers=False)
    with _naming_classes(pairing, targets):
        return functional.cross_entropy(scores, wanted)


@reads("classes")
def cross_entropy_in_parts(
    outputs: Any, targets: Any, pairing: Pairing = UNKNOWN
) -> tuple[Tensor, Any]:
    """Return the total of `cross_entropy` and of how many targets it is.

    Those that are not left out.
    """
    scores, wanted = pairing.classes(outputs, targets, reader="cross_entropy", checks_numbers=False)
    count = len(wanted) if wanted.is_floating_point() else (wanted != IGNORED).sum()
    with _naming_classes(pairing, targets):
        return functional.cross_entropy(scores, wanted, reduction="sum"), count


@contextlib.contextmanager
def _naming_classes(pairing: Pairing, targets: Any) -> Iterator[None]:
    """Say which class it is that the model has no score for, where torch states its number."""
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


def of_model(outputs: Any, targets: Any) -> Tensor:
    """Return the loss that the model computed itself.

    Raises:
        ExperimentError: If it returned none.
    """
    loss = loss_in(outputs)
    if loss is None:
        raise ExperimentError(
            "the model returns no loss",
            field="loss",
            allowed=(
                "a model that returns `loss` as an attribute, as an entry, or as the only scalar"
            ),
            next_step="Return it, or name a loss.",
        )
    return loss
