"""What a user's loss or metric may return, and whether it compares what belongs together.

Such a function receives outputs and targets as they are. The form of what it returns is decided
here, and so is whether a shape of its arguments makes it broadcast every sample against every
other.
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
from workbench.models.calls import num_samples, output_in
from workbench.models.metrics import as_measured
from workbench.models.pairing import SingleScores

_TORCH_LOSSES: dict[str, SingleScores] = {
    "binary_cross_entropy_with_logits": "logits",
    "BCEWithLogitsLoss": "logits",
    "binary_cross_entropy": "probabilities",
    "BCELoss": "probabilities",
}
_SHAPE_ERRORS = (RuntimeError, ValueError, TypeError, IndexError)
_TOLERANCE = 1e-4


def instance_of(found: Any) -> Any:
    """Return what is called with outputs and targets: of a class of torch modules, an instance.

    Args:
        found: A function, a module, or a class of modules such as `torch.nn.CrossEntropyLoss`,
            perhaps with options.
    """
    kind = found.func if isinstance(found, functools.partial) else found
    return found() if inspect.isclass(kind) and issubclass(kind, nn.Module) else found


def single_scores_of(found: Any) -> SingleScores:
    """Return what a loss takes single numbers of two classes for.

    Unknown for one that torch does not have.

    Args:
        found: A function, a class or a module, perhaps with options.
    """
    kind = found.func if isinstance(found, functools.partial) else found
    name = getattr(kind, "__name__", type(kind).__name__)
    return _TORCH_LOSSES.get(name, "unknown")


def as_loss(found: Callable[[Any, Any], Any], name: str) -> Callable[[Any, Any], Any]:
    """Return a loss whose results are checked: the mean over the batch, or a total and a count.

    Args:
        found: A function of (outputs, targets).
        name: What it is called, for messages.
    """

    @functools.wraps(found, updated=())
    def loss(outputs: Any, targets: Any) -> Tensor | tuple[Tensor, Tensor]:
        value = found(outputs, targets)
        if isinstance(value, tuple) and len(value) == 2:
            value = _as_loss_value(value[0], name), as_measured(value[1], name)
        elif not isinstance(value, Tensor) or value.ndim or not value.is_floating_point():
            value = _as_loss_value(value, name)
        total = value[0] if isinstance(value, tuple) else value
        if torch.is_grad_enabled() and not total.requires_grad and _requires_grad(outputs):
            raise ExperimentError(
                f"{name} returns a number that does not depend on the outputs, so nothing can be"
                " learned",
                field="loss",
                allowed="a tensor that was computed from the outputs",
                next_step="Leave out detach, item, argmax and rounding.",
            )
        return value

    return loss


def as_total(value: Any, outputs: Any, targets: Any, name: str) -> tuple[Tensor, int | Tensor]:
    """Return what a metric returned for a batch as a total and a count.

    Args:
        value: The mean over the samples, or (total, count); tensors or numbers.
        outputs: What a model returned.
        targets: Of the same samples.
        name: Name of the metric.

    Raises:
        ExperimentError: If it is something else.
    """
    if isinstance(value, tuple) and len(value) == 2:
        total, count = value
        return as_measured(total, name), as_measured(count, name)
    num = num_samples(targets) or num_samples(outputs)
    return as_measured(value, name) * num, num


def check_function(
    function: Callable[[Any, Any], Any], outputs: Any, targets: Any, *, name: str, field: str
) -> None:
    """Refuse a loss or metric of the user's own that fails for a batch, or broadcasts its samples.

    A column beside a row of as many samples makes a table of each sample against each other, whose
    mean is a number, too. Such a function returns something else once both have one shape.

    Args:
        function: A function of (outputs, targets) that returns a number, or a total and a count.
        outputs: What a model returned.
        targets: Of the same samples.
        name: What it is called.
        field: Where it is named.

    Raises:
        ExperimentError: If it does.
    """
    found = output_in(outputs)
    try:
        function(outputs, targets)
    except torch.OutOfMemoryError:
        raise
    except _SHAPE_ERRORS as error:
        if isinstance(error, ExperimentError) or not isinstance(targets, Tensor):
            raise
        raise ExperimentError(
            f"{name} fails for outputs {_shape_of(found)} and targets {_shape_of(targets)}: "
            f"{type(error).__name__}: {first_line_of(error)}",
            field=field,
            allowed="a function that takes both as they are",
            next_step=(
                "Bring them into one shape and type in this function, in the model or in the data."
            ),
        ) from error
    check_pairs(function, outputs, targets, name=name, field=field)


def check_pairs(
    function: Callable[[Any, Any], Any], outputs: Any, targets: Any, *, name: str, field: str
) -> None:
    """Refuse a function that compares each sample with each other.

    Arguments as of `check_function`.
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
    except Exception:  # it takes one of the two only, and so it does not broadcast
        return
    if not math.isclose(as_given, as_one, rel_tol=_TOLERANCE, abs_tol=1e-7) and as_one == as_one:
        step = "outputs.squeeze(1)" if aligned[0] != tuple(outputs.shape) else "targets.squeeze(1)"
        raise ExperimentError(
            f"{name} compares each sample with each other: outputs of shape {tuple(outputs.shape)}"
            f" and targets of shape {tuple(targets.shape)} broadcast to one number for each pair",
            field=field,
            allowed="a function that compares outputs with the targets of the same samples",
            next_step=f"Compare {step} in this function.",
        )


def _aligned(outputs: Tensor, targets: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return shapes that cannot broadcast samples against each other.

    None where those given cannot.
    """
    shape, wanted = tuple(outputs.shape), tuple(targets.shape)
    if len(shape) < 1 or len(wanted) < 1 or shape[0] != wanted[0]:
        return None
    if shape == (*wanted, 1):
        return wanted, wanted
    if len(wanted) >= 2 and wanted[-1] == 1 and (wanted[:-1] == shape or len(shape) == len(wanted)):
        is_scores = shape != wanted and shape[-1] > 1
        return (shape, wanted[:-1]) if is_scores or wanted[:-1] == shape else None
    return None


def _drawn(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return other outputs and targets of these shapes.

    Of a model that answers alike nothing would show.
    """
    generator = torch.Generator().manual_seed(0)
    drawn = torch.rand(tuple(outputs.shape), generator=generator).to(outputs)
    if drawn.ndim > 1 and drawn.shape[-1] > 1:
        drawn = drawn / drawn.sum(dim=-1, keepdim=True)
    num_classes = max(2, outputs.shape[-1] if outputs.ndim > 1 else 2)
    is_whole = not targets.is_floating_point() or bool((targets == targets.round()).all())
    if is_whole:
        wanted = torch.randint(num_classes, tuple(targets.shape), generator=generator)
    else:
        wanted = torch.rand(tuple(targets.shape), generator=generator)
    return drawn, wanted.to(targets)


def _mean_of(value: Any) -> float:
    return float(value[0]) / float(value[1]) if isinstance(value, tuple) else float(value)


def _as_loss_value(value: Any, name: str) -> Tensor:
    if isinstance(value, Tensor) and value.numel() == 1 and value.is_floating_point():
        return value.reshape(())
    has_several = getattr(value, "ndim", 0) > 0
    what = (
        f"a tensor {_shape_of(value)}"
        if isinstance(value, Tensor)
        else f"an object of type {type(value).__name__}"
    )
    raise ExperimentError(
        f"{name} returned {'None' if value is None else what}",
        field="loss",
        allowed=(
            "one number, the mean over the samples of the batch, as a tensor; or a total and a"
            " count"
        ),
        next_step=(
            "Return its mean over the samples: .mean()."
            if has_several
            else "Return what was computed of the outputs, as a tensor."
        ),
    )


def _shape_of(value: Any) -> str:
    if not isinstance(value, Tensor | np.ndarray):
        return f"of type {type(value).__name__}"
    return f"of shape {tuple(value.shape)} ({str(value.dtype).removeprefix('torch.')})"


def _requires_grad(outputs: Any) -> bool:
    found = output_in(outputs)
    return isinstance(found, Tensor) and found.requires_grad
