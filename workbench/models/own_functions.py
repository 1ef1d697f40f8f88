"""Checks the result of your own loss or metric, and that it compares outputs of the same samples.

Such a function receives outputs and targets unchanged. It may return a number, or a total and a
count. It is an error if the shapes of its arguments make it broadcast every sample against every
other one.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from workbench.foundation.errors import ExperimentError, first_line_of
from workbench.models.metrics import as_measured, without_options
from workbench.models.model_calls import num_samples, output_in
from workbench.models.pairing import SingleScores

_TORCH_LOSSES: dict[str, SingleScores] = {
    "binary_cross_entropy_with_logits": "logits",
    "BCEWithLogitsLoss": "logits",
    "binary_cross_entropy": "probabilities",
    "BCELoss": "probabilities",
}
_SHAPE_ERRORS = (RuntimeError, ValueError, TypeError, IndexError)
_TOLERANCE = 1e-4


def instance_of(function: Any) -> Any:
    """Return a function of (outputs, targets). A class of torch modules is instantiated.

    Args:
        function: A function, a module, or a class of modules such as `torch.nn.CrossEntropyLoss`,
            perhaps with options.
    """
    kind = without_options(function)
    if inspect.isclass(kind) and issubclass(kind, nn.Module):
        return function()
    return function


def single_scores_of(function: Any) -> SingleScores:
    """Return how a loss reads single scores of two classes: as logits or as probabilities.

    This is only known for losses of torch.

    Args:
        function: A function, a class or a module, perhaps with options.
    """
    kind = without_options(function)
    name = getattr(kind, "__name__", type(kind).__name__)
    return _TORCH_LOSSES.get(name, "unknown")


def as_loss(function: Callable[[Any, Any], Any], name: str) -> Callable[[Any, Any], Any]:
    """Return a loss that checks its results: the mean over the batch, or a total and a count.

    Args:
        function: A function of (outputs, targets).
        name: Its name, for messages.
    """

    @functools.wraps(function, updated=())
    def loss(outputs: Any, targets: Any) -> Tensor | tuple[Tensor, Tensor]:
        value = function(outputs, targets)
        if isinstance(value, tuple) and len(value) == 2:
            total = _as_loss_value(value[0], name)
            value = total, as_measured(value[1], name)
        else:
            if not isinstance(value, Tensor) or value.ndim or not value.is_floating_point():
                value = _as_loss_value(value, name)
            total = value
        if torch.is_grad_enabled() and not total.requires_grad and _requires_grad(outputs):
            raise ExperimentError(
                f"{name} returns a number that does not depend on the outputs, so nothing can be"
                " learned",
                field="loss",
                allowed="a tensor that is computed from the outputs",
                next_step="Remove detach, item, argmax and rounding.",
            )
        return value

    return loss


def as_total(value: Any, outputs: Any, targets: Any, name: str) -> tuple[Tensor, int | Tensor]:
    """Return the result of a metric for a batch as a total and a count.

    Args:
        value: The mean over the samples, or (total, count). Each may be a tensor or a number.
        outputs: The result of a model.
        targets: The targets of the same samples.
        name: Name of the metric.

    Raises:
        ExperimentError: If the value has another form.
    """
    if isinstance(value, tuple) and len(value) == 2:
        total, count = value
        return as_measured(total, name), as_measured(count, name)
    num = num_samples(targets) or num_samples(outputs)
    return as_measured(value, name) * num, num


def check_function(
    function: Callable[[Any, Any], Any], outputs: Any, targets: Any, *, name: str, field: str
) -> None:
    """Check that your own loss or metric does not fail for a batch, or broadcast its samples.

    A column and a row of the same length broadcast to a table that compares every sample with every
    other one. The mean of the table is a number, so nothing fails. But the number changes if both
    arguments get the same shape.

    Args:
        function: A function of (outputs, targets) that returns a number, or a total and a count.
        outputs: The result of a model.
        targets: The targets of the same samples.
        name: Name of the function.
        field: The dotted path of the function.

    Raises:
        ExperimentError: If the function fails or broadcasts.
    """
    output = output_in(outputs)
    try:
        function(outputs, targets)
    except torch.OutOfMemoryError:
        raise
    except _SHAPE_ERRORS as error:
        if isinstance(error, ExperimentError) or not isinstance(targets, Tensor):
            raise
        raise ExperimentError(
            f"{name} fails for outputs {_shape_of(output)} and targets {_shape_of(targets)}: "
            f"{type(error).__name__}: {first_line_of(error)}",
            field=field,
            allowed="a function that accepts both",
            next_step=(
                "Give them the same shape and type in this function, in the model or in the data."
            ),
        ) from error
    check_pairs(function, outputs, targets, name=name, field=field)


def check_pairs(
    function: Callable[[Any, Any], Any], outputs: Any, targets: Any, *, name: str, field: str
) -> None:
    """Check that a function does not compare every sample with every other one.

    See `check_function` for the arguments.
    """
    if not isinstance(outputs, Tensor) or not isinstance(targets, Tensor):
        return
    aligned = _aligned(outputs, targets)
    if aligned is None or len(targets) < 2:
        return
    drawn, wanted = _drawn(outputs, targets)
    try:
        with torch.no_grad():
            as_given = _mean_of(function(drawn, wanted))
            as_one = _mean_of(function(drawn.reshape(aligned[0]), wanted.reshape(aligned[1])))
    except Exception:  # it only accepts one of the two forms, so it does not broadcast
        return
    if not math.isclose(as_given, as_one, rel_tol=_TOLERANCE, abs_tol=1e-7) and as_one == as_one:
        step = "targets.squeeze(1)"
        if aligned[0] != tuple(outputs.shape):
            step = "outputs.squeeze(1)"
        raise ExperimentError(
            f"{name} compares every sample with every other one: outputs of shape"
            f" {tuple(outputs.shape)} and targets of shape {tuple(targets.shape)} broadcast to one"
            " number for each pair",
            field=field,
            allowed="a function that compares outputs with the targets of the same samples",
            next_step=f"Compare {step} in this function.",
        )


def _aligned(outputs: Tensor, targets: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return shapes in which samples cannot broadcast against each other.

    None if they do not broadcast anyway.
    """
    shape, wanted = tuple(outputs.shape), tuple(targets.shape)
    if len(shape) < 1 or len(wanted) < 1 or shape[0] != wanted[0]:
        return None
    if shape == (*wanted, 1):
        return wanted, wanted
    if len(wanted) < 2 or wanted[-1] != 1:
        return None
    # The targets are a column. If outputs have as many dimensions, they may be scores of classes.
    is_row = wanted[:-1] == shape
    are_scores = len(shape) == len(wanted) and shape != wanted and shape[-1] > 1
    if is_row or are_scores:
        return shape, wanted[:-1]
    return None


def _drawn(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return random outputs and targets of these shapes.

    An untrained model may give all samples the same output, which would hide a wrong comparison.
    """
    generator = torch.Generator().manual_seed(0)
    drawn = torch.rand(tuple(outputs.shape), generator=generator).to(outputs)
    if drawn.ndim > 1 and drawn.shape[-1] > 1:
        drawn = drawn / drawn.sum(dim=-1, keepdim=True)
    num_classes = 2
    if outputs.ndim > 1:
        num_classes = max(2, outputs.shape[-1])
    is_whole = not targets.is_floating_point() or bool((targets == targets.round()).all())
    if is_whole:
        wanted = torch.randint(num_classes, tuple(targets.shape), generator=generator)
    else:
        wanted = torch.rand(tuple(targets.shape), generator=generator)
    return drawn, wanted.to(targets)


def _mean_of(value: Any) -> float:
    if isinstance(value, tuple):
        return float(value[0]) / float(value[1])
    return float(value)


def _as_loss_value(value: Any, name: str) -> Tensor:
    if isinstance(value, Tensor) and value.numel() == 1 and value.is_floating_point():
        return value.reshape(())
    step = "Return a tensor that is computed from the outputs."
    if getattr(value, "ndim", 0) > 0:
        step = "Return its mean over the samples: .mean()."
    returned = f"an object of type {type(value).__name__}"
    if value is None:
        returned = "None"
    elif isinstance(value, Tensor):
        returned = f"a tensor {_shape_of(value)}"
    raise ExperimentError(
        f"{name} returned {returned}",
        field="loss",
        allowed=(
            "one number as a tensor, the mean over the samples of the batch, or a total and a count"
        ),
        next_step=step,
    )


def _shape_of(value: Any) -> str:
    if not isinstance(value, Tensor | np.ndarray):
        return f"of type {type(value).__name__}"
    return f"of shape {tuple(value.shape)} ({str(value.dtype).removeprefix('torch.')})"


def _requires_grad(outputs: Any) -> bool:
    output = output_in(outputs)
    return isinstance(output, Tensor) and output.requires_grad
