"""Makes your own model from a configuration: with the whole mapping, or with values by name.

A function such as `build(config)` receives the configuration as its only argument. A constructor
such as `__init__(self, hidden=64)` receives the values that have the names of its parameters.
Checking the result is left to `adapters`.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from workbench.experiment.searched_fields import is_setting
from workbench.foundation.errors import ExperimentError

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_SINGLE_VALUES = (bool, int, float, str, "bool", "int", "float", "str")
"""Annotations that mean that a parameter takes a single value, not the configuration."""


def construct(
    function: Callable[..., Any], configuration: Mapping[str, Any], *, field: str = "model"
) -> Any:
    """Call a function or a class with a configuration.

    The first parameter receives the whole configuration as a mapping. It receives a single value
    instead if the configuration has its name, or if its default or annotation is a single value.
    All other parameters receive the values with their names. Settings of the training that match no
    parameter are not passed.

    Args:
        function: The function or class that makes the model.
        configuration: The fixed options and the searched parameters.
        field: The dotted path of the function, for messages.

    Returns:
        The result of the call.

    Raises:
        ExperimentError: If a parameter or a key without a default has no value, or a value has no
            parameter.
    """
    parameters = _parameters_of(function)
    if parameters is None or _takes_mapping(parameters, configuration):
        # Later parameters also get the values with their names. With their defaults, the function
        # would build another model than the configuration says.
        _, *others = parameters or [None]
        named = {item.name for item in others if item is not None and item.kind in _BY_NAME}
        by_name = {key: configuration[key] for key in named & configuration.keys()}
        passed = dict(configuration)
        try:
            return function(passed, **by_name)
        except KeyError as error:
            if (key := _missing_key(error, passed)) is None:
                raise
            raise _missing(function, [key], f"{field}.{key}") from error
    name = getattr(function, "__qualname__", repr(function))
    named = {item.name for item in parameters if item.kind in _BY_NAME}
    if any(item.kind is item.VAR_KEYWORD for item in parameters):
        passed = dict(configuration)
    else:
        passed = {key: value for key, value in configuration.items() if key in named}
        if left := [key for key in configuration if key not in named and not is_setting(key)]:
            raise ExperimentError(
                f"{name} has no parameter {' or '.join(left)}",
                field=field,
                allowed=sorted(named) or "nothing: it has no parameters",
                next_step=(
                    "Rename it, or let the first parameter be the configuration: build(config)."
                ),
            )
    missing = [
        item.name
        for item in parameters
        if item.name in named and item.default is item.empty and item.name not in passed
    ]
    if missing:
        raise _missing(
            function,
            missing,
            field,
            " If the function takes the whole configuration, make that its first parameter:"
            " build(config).",
        )
    return function(**passed)


def _missing_key(error: KeyError, passed: dict[str, Any]) -> str | None:
    """Return the key that a configuration lacks, or None if another mapping was asked for it."""
    key = error.args[0] if error.args else None
    # A value of the configuration is a key of another table, such as that of all activations.
    if not isinstance(key, str) or key in (*passed, *passed.values()):
        return None
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    held = [*frame.f_locals.values()]
    held += getattr(frame.f_locals.get("self"), "__dict__", {}).values()
    return key if any(value is passed for value in held) else None


def _missing(
    function: Callable[..., Any], missing: list[str], field: str, more: str = ""
) -> ExperimentError:
    name = getattr(function, "__qualname__", repr(function))
    return ExperimentError(
        f"{name} needs {', '.join(missing)}, which the configuration does not set",
        field=field,
        next_step=(
            f"Search it, or set it next to the name of the model: {missing[0]}: VALUE.{more}"
        ),
    )


def _parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter] | None:
    """Return the parameters, or None if Python cannot determine them."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None


def _takes_mapping(parameters: list[inspect.Parameter], configuration: Mapping[str, Any]) -> bool:
    """Return whether the first parameter is the configuration."""
    if not parameters:
        return False
    first = parameters[0]
    if first.kind in (first.KEYWORD_ONLY, first.VAR_KEYWORD):
        return False
    if first.kind is not first.POSITIONAL_OR_KEYWORD:
        return True
    if first.name in configuration or first.annotation in _SINGLE_VALUES:
        return False
    if first.default is first.empty:
        return True
    is_by_name = any(item.name in configuration for item in parameters)
    return not is_by_name and (first.default is None or isinstance(first.default, Mapping))
