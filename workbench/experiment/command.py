"""The command line of an experiment whose trials are a program.

Its placeholders, and its arguments.

The line is split once, as a shell would split it, and no shell ever reads it: a value with spaces
stays one argument. A placeholder is `{name}` or `{name:form}`, where the name is a searched
parameter or one of `BUILT_IN`; `{optimizer:json}` stands for all parameters whose names begin with
`optimizer.`. Where a value does not exist or is null, the argument that holds it is left out, and
so is the option before it. Starting the program is left to the training.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from workbench.foundation.errors import ExperimentError

if TYPE_CHECKING:
    from workbench.experiment.space import Space

BUILT_IN = {
    "args": "all searched parameters that the command names nowhere else, as --name=value",
    "config": "the path of a JSON file with all parameters",
    "folder": "the folder of the trial, whose content is kept",
    "master": "the address at which rank 0 of several workers is reached, host:port",
    "rank": "the rank of the worker, from 0",
    "resume": "whether an earlier attempt has left files in the folder",
    "seed": "the seed of the trial",
    "trial": "the number of the trial",
    "world_size": "the number of workers",
}
FORMS = {
    "flag": "--name if true, else nothing",
    "no-flag": "--no-name if false, else nothing",
    "json": "the value as JSON",
    "python": "the value as a Python literal, such as True",
}
_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_PATH_NAMES = ("folder", "trial", "seed")
_FORMS_OF_GROUPS = ("json", "python")


def parse_command(given: Any) -> Any:
    """Return a command as it is kept: one line, in which only what must be is quoted.

    Args:
        given: A line, split as a shell would; or the list of arguments.

    Raises:
        ExperimentError: If it is neither, or a placeholder is not complete.
    """
    if isinstance(given, str):
        try:
            parts = shlex.split(given)
        except ValueError as error:
            raise ExperimentError(
                f"the line cannot be split: {error}",
                next_step="Close the quotation, or write a list.",
            ) from error
    elif isinstance(given, Sequence):
        parts = [str(part) if isinstance(part, int | float) else part for part in given]
    else:
        raise ExperimentError(
            f"an object of type {type(given).__name__} is not a command",
            allowed="a line, such as python train.py --lr {lr}; or a list of arguments",
        )
    if not parts or not all(isinstance(part, str) for part in parts) or not parts[0]:
        raise ExperimentError("there is no program", allowed="a program and its arguments")
    for part in parts:
        if "\0" in part:
            raise ExperimentError("an argument cannot contain a null character")
        for _ in _names_in(part):
            pass
    return " ".join(_quoted(part) for part in parts)


def arguments_of(command: str) -> list[str]:
    """Return the arguments of a command, placeholders included."""
    return shlex.split(command)


def check_command(command: str, search: Space) -> None:
    """Refuse placeholders that stand for nothing, and parameters that the command would never
    receive.

    Args:
        command: The command as it is kept.
        search: The searched parameters.

    Raises:
        ExperimentError: If there is one.
    """
    known = [*search.root, *BUILT_IN]
    if "args" in search.root:
        raise ExperimentError(
            "args stands for all parameters", field="search.args", next_step="Rename the parameter."
        )
    named: set[str] = set()
    for part in arguments_of(command):
        for name, form in _names_in(part):
            members = _members(name, search.root)
            if name not in known and members and form in _FORMS_OF_GROUPS:
                named.update(members)
                continue
            if name not in known:
                raise ExperimentError(
                    f"{{{name}}} stands for nothing",
                    field="command",
                    allowed=known,
                    next_step="Search a parameter of this name, or write {{ and }} for braces.",
                )
            if name == "args" and part not in ("{args}", "{args:json}"):
                raise ExperimentError(
                    f"{part!r} joins {{args}} with other text",
                    field="command",
                    allowed="{args}, or {args:json}, as an argument of its own",
                )
            if form in ("flag", "no-flag"):
                _check_flag(name, form, part, search)
            named.add(name)
    missing = [name for name in search.root if name not in named]
    if missing and not named & {"args", "config"}:
        raise ExperimentError(
            f"{missing[0]} never reaches the command",
            field=f"search.{missing[0]}",
            next_step=(
                f"Add {{{missing[0]}}} to the command, or {{args}} for all parameters, or"
                " {config} for the path of a JSON file that holds them."
            ),
        )


def check_path(path: str, field: str) -> None:
    """Refuse a path of metrics with placeholders that paths do not have."""
    for name, form in _names_in(path):
        if name not in _PATH_NAMES or form:
            raise ExperimentError(
                f"{{{name}{':' if form else ''}{form}}} stands for nothing in a path",
                field=field,
                allowed=[f"{{{name}}}" for name in _PATH_NAMES],
            )


def expand(
    command: str, params: Mapping[str, JsonValue], built_in: Mapping[str, JsonValue]
) -> list[str]:
    """Return the arguments of one trial.

    Args:
        command: The command as it is kept.
        params: The configuration of the trial.
        built_in: The values of the names in `BUILT_IN`, without args.

    Example:
        >>> from workbench.experiment.command import expand
        >>> params = {"lr": 0.1, "amp": True, "clip": None}
        >>> expand("train --lr {lr} {amp:flag} --clip {clip}", params, {})
        ['train', '--lr', '0.1', '--amp']
    """
    parts = arguments_of(command)
    values = {**built_in, **params}
    named: set[str] = set()
    for name in [name for part in parts for name, _ in _names_in(part)]:
        members = _members(name, params) if name not in values else []
        if members:
            values[name] = nested({member[len(name) + 1 :]: params[member] for member in members})
        named.update([name, *members])
    others = {name: value for name, value in params.items() if name not in named}
    arguments: list[str] = []
    for part in parts:
        if part == "{args}":
            arguments += [
                argument for name, value in others.items() for argument in _option(name, value)
            ]
            continue
        if part == "{args:json}":
            arguments.append(json.dumps(others, ensure_ascii=False))
            continue
        expanded = _expand_part(part, values)
        if expanded is None:
            if arguments and _is_option(arguments[-1]) and not _has_flag(part):
                arguments.pop()
        else:
            arguments += expanded
    return arguments


def nested(params: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return parameters as mappings in mappings, divided at the dots of their names.

    Where a name is also the beginning of another one, both stay as they are.

    Args:
        params: Values by name.

    Example:
        >>> from workbench.experiment.command import nested
        >>> nested({"epochs": 3, "optimizer.lr": 0.1, "optimizer.name": "sgd"})
        {'epochs': 3, 'optimizer': {'lr': 0.1, 'name': 'sgd'}}
    """
    grouped: dict[str, JsonValue] = {}
    for name, value in params.items():
        first, _, rest = name.partition(".")
        if not first or not rest or first in params:
            grouped[name] = value
        elif first not in grouped:
            members = _members(first, params)
            grouped[first] = nested(
                {member[len(first) + 1 :]: params[member] for member in members}
            )
    return grouped


def expand_path(path: str, built_in: Mapping[str, JsonValue]) -> str:
    """Return a path with its placeholders replaced."""
    expanded = _expand_part(path, built_in)
    return path if expanded is None else expanded[0]


def _members(group: str, names: Iterable[str]) -> list[str]:
    """Return the parameters of a group, whose names begin with that of the group and a dot."""
    return [name for name in names if len(name) > len(group) + 1 and name.startswith(f"{group}.")]


def _check_flag(name: str, form: str, part: str, search: Space) -> None:
    values = [True, False] if name == "resume" else None
    if name in search.root:
        values = search.root[name].values()
    if values is None or not all(isinstance(value, bool) or value is None for value in values):
        raise ExperimentError(
            f"{{{name}:{form}}} is for true and false, and {name} has other values",
            field="command",
            next_step=f"Write {{{name}}}, or search {name} with the choices true and false.",
        )
    if part != f"{{{name}:{form}}}":
        raise ExperimentError(
            f"{part!r} joins a flag with other text",
            field="command",
            allowed=f"{{{name}:{form}}} as an argument of its own",
        )


def _names_in(part: str) -> Iterator[tuple[str, str]]:
    """Yield the names and forms of the placeholders of an argument."""
    for match in _PLACEHOLDER.finditer(part):
        if match[0] in ("{{", "}}"):
            continue
        name, _, form = (match[1] or "").partition(":")
        if (
            not name
            or (form and form not in FORMS)
            or (":" in match[0] and not form)
            or " " in name
        ):
            raise ExperimentError(
                f"{match[0]} in {part!r} is not a placeholder",
                allowed=["{name}", *(f"{{name:{form}}}" for form in FORMS)],
                next_step="Write {{ and }} for braces.",
            )
        yield name, form


def _expand_part(part: str, values: Mapping[str, JsonValue]) -> list[str] | None:
    """Return the arguments that one part stands for; None if it is left out."""
    match = _PLACEHOLDER.fullmatch(part)
    if match is not None and match[1]:
        name, _, form = match[1].partition(":")
        value = values.get(name)
        if form == "flag":
            return [f"--{name}"] if value else []
        if form == "no-flag":
            return [f"--no-{name}"] if value is False else []
        if isinstance(value, list) and not form:
            return [_text(item, "") for item in value] or None
    pieces: list[str] = []
    end = 0
    for match in _PLACEHOLDER.finditer(part):
        pieces.append(part[end : match.start()])
        end = match.end()
        if match[0] in ("{{", "}}"):
            pieces.append(match[0][0])
            continue
        name, _, form = (match[1] or "").partition(":")
        if name not in values or (values[name] is None and not form):
            return None
        pieces.append(_text(values[name], form))
    return ["".join([*pieces, part[end:]])]


def _option(name: str, value: JsonValue) -> list[str]:
    """Return an option with its value, as {args} writes it."""
    if value is None or value == []:
        return []
    if isinstance(value, list):
        return [f"--{name}", *(_text(item, "") for item in value)]
    return [f"--{name}={_text(value, '')}"]


def _text(value: JsonValue, form: str) -> str:
    if form == "python":
        return value if isinstance(value, str) else repr(value)
    if isinstance(value, str) and form != "json":
        return value
    return json.dumps(value, ensure_ascii=False)


def _is_option(argument: str) -> bool:
    return argument.startswith("-") and len(argument) > 1 and "=" not in argument


def _has_flag(part: str) -> bool:
    return any(form in ("flag", "no-flag") for _, form in _names_in(part))


def _quoted(part: str) -> str:
    is_plain = (
        bool(part) and "#" not in part and shlex.split(part) == [part]
        if _can_split(part)
        else False
    )
    return part if is_plain else shlex.quote(part)


def _can_split(part: str) -> bool:
    return not any(sign in part for sign in "'\"\\")
