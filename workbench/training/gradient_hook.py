"""The function of a user that changes the gradients of each step.

Where in a step it is called is left to the strategies.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor

from workbench.experiment import Training
from workbench.foundation.errors import ExperimentError
from workbench.foundation.registry import load_object

_FIELD = "training.gradient_hook"


def gradient_hook_of(training: Training) -> Callable[[dict[str, Tensor]], None] | None:
    """Return what `training.gradient_hook` names, its options bound.

    Args:
        training: The training section, searched values in place.

    Returns:
        It receives the gradients of a step by the names of their parameters, and changes them in
        place; None where there is none.

    Raises:
        ExperimentError: If it cannot be called with gradients and its options. The returned
            function raises it where the user's function returns something, as that would be lost.
    """
    if training.gradient_hook is None:
        return None
    options, hook = (
        training.gradient_hook_options,
        load_object(training.gradient_hook, field=_FIELD),
    )
    if not callable(hook) or inspect.isclass(hook):
        raise ExperimentError(
            f"{training.gradient_hook} is not a function",
            field=_FIELD,
            allowed="a function (gradients, **options) that changes them in place",
        )
    _check_arguments(hook, options)

    def change(gradients: dict[str, Tensor]) -> None:
        if hook(gradients, **options) is not None:
            raise ExperimentError(
                f"{training.gradient_hook} returns a value, which has no effect",
                field=_FIELD,
                next_step="Let it change the gradients in place, as in gradients[name].mul_(0.5).",
            )

    return change


def _check_arguments(hook: Callable[..., Any], options: dict[str, Any]) -> None:
    try:
        inspect.signature(hook).bind({}, **options)
    except TypeError as error:
        raise ExperimentError(
            f"cannot be passed to the gradient hook: {error}",
            field="training.gradient_hook_options",
            next_step="Name the arguments of the function after its first, the gradients.",
        ) from error
    except ValueError:  # a builtin without a signature
        return
