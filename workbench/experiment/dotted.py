"""Changes the document of an experiment in place, by dotted path.

A path that leads nowhere is an error. The experiment checks the values later. Names of parameters
may contain dots themselves, as in `search.optimizer.lr.low`.
"""

from __future__ import annotations

from typing import Any

from workbench.foundation.errors import ExperimentError

SHORT_FORMS = {
    "model": "name",
    "data": "name",
    "train": "name",
    "loss": "name",
    "sampler": "name",
    "early_stop": "pruner",
}
"""Parts that can be written as a single name, and the field to which the name belongs."""
_DOMAIN_KEYS = frozenset(
    {"low", "high", "step", "log", "type", "choices", "value", "when", "prior"}
)
_MAX_DIGITS = 9


def set_at(document: dict[str, Any], dotted: str, value: Any) -> None:
    """Change the value at a dotted path. Missing parts of the path are added.

    Args:
        document: The content of an experiment file.
        dotted: A path, such as `training.epochs` or `objectives.0.target`.
        value: The new value.

    Raises:
        ExperimentError: If the path leads nowhere.
    """
    keys = _keys(document, dotted, names_whole=isinstance(value, dict))
    node: Any = document
    for depth, key in enumerate(keys[:-1]):
        node = _step_into(node, key, keys[: depth + 1])
    if isinstance(node, list):
        node[_index(node, keys[-1], dotted)] = value
    else:
        node[keys[-1]] = value


def remove_at(document: dict[str, Any], dotted: str) -> None:
    """Remove the value at a dotted path, if there is one.

    Args:
        document: The content of an experiment file.
        dotted: A path, such as `search.lr` or `constraints.0`.

    Raises:
        ExperimentError: If the path has an index that its list does not have.
    """
    *parents, last = _keys(document, dotted)
    node: Any = document
    for depth, key in enumerate(parents):
        if isinstance(node, list):
            node = node[_index(node, key, ".".join(parents[: depth + 1]))]
        elif isinstance(node, dict):
            node = node.get(key)
        else:
            return
    if isinstance(node, list):
        del node[_index(node, last, dotted)]
    elif isinstance(node, dict):
        node.pop(last, None)


def _keys(document: dict[str, Any], dotted: str, *, names_whole: bool = False) -> list[str]:
    """Split a path into keys. The name of a parameter is one key, even if it contains dots.

    Args:
        document: The content of an experiment file. Parameters in it are recognised by their names.
        dotted: The path.
        names_whole: Whether a path without a known part of a parameter means a whole parameter.
    """
    keys = dotted.split(".")
    if not all(keys):
        raise ExperimentError(
            "this is not the path of a setting",
            field=dotted,
            allowed="a dotted path, such as training.epochs",
        )
    if keys[0] != "search" or len(keys) < 3:
        return keys
    parameters: dict[str, Any] = {}
    if isinstance(document.get("search"), dict):
        parameters = document["search"]
    length = _length_of_name(keys[1:], parameters)
    if length is None or (
        names_whole and keys[1 + length :] and keys[1 + length] not in _DOMAIN_KEYS
    ):
        # A new parameter: its name ends before the first part of a parameter, such as low.
        ends = (index for index, key in enumerate(keys[2:], start=1) if key in _DOMAIN_KEYS)
        length = next(ends, len(keys) - 1)
    name, rest = ".".join(keys[1 : 1 + length]), keys[1 + length :]
    if rest[:1] == ["when"] and len(rest) > 1:
        length = _length_of_name(rest[1:], parameters) or 1
        rest = ["when", ".".join(rest[1 : 1 + length]), *rest[1 + length :]]
    return ["search", name, *rest]


def _length_of_name(keys: list[str], parameters: dict[str, Any]) -> int | None:
    """Return how many of the first keys form the longest known name, or None if none do."""
    return next(
        (length for length in range(len(keys), 0, -1) if ".".join(keys[:length]) in parameters),
        None,
    )


def _step_into(node: Any, key: str, keys: list[str]) -> Any:
    """Return the value of `key`, as a mapping or list that can be changed."""
    field = ".".join(keys)
    at: Any = key
    if isinstance(node, list):
        at = _index(node, key, field)
        inner = node[at]
    else:
        inner = node.get(key)
    if keys[:-1] == ["search"] and at in node and not isinstance(inner, dict):
        inner = {"value": inner}
    elif inner is None:
        inner = {}
    elif isinstance(inner, str) and field in SHORT_FORMS:
        inner = {SHORT_FORMS[field]: inner}
    elif not isinstance(inner, dict | list):
        raise ExperimentError(
            f"its value is {inner!r}, which has no fields",
            field=field,
            next_step=f"Set {field} itself.",
        )
    node[at] = inner
    return inner


def _index(items: list[Any], key: str, field: str) -> int:
    is_number = key.isascii() and key.isdecimal() and len(key) <= _MAX_DIGITS
    if not is_number or int(key) >= len(items):
        raise ExperimentError(
            f"{key!r} is not an index of the list",
            field=field,
            allowed=f"a number from 0 to {len(items) - 1}",
        )
    return int(key)
