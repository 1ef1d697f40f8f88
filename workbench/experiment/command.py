"""The command line of an experiment that runs a program: its placeholders and arguments.

The line is split once, as a shell would split it, but no shell ever reads it. So a value with
spaces stays one argument. A placeholder is `{name}` or `{name:form}`. The name is a searched
parameter or one of `BUILT_IN`. `{optimizer:json}` means all parameters that start with
`optimizer.`. `{resume_from:model.pt}` is the path of a file that an earlier attempt left. If a
value is null or missing, its argument is dropped, and so is the option before it. The training
starts the program.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from pydantic import Field, JsonValue, field_validator

from workbench.experiment.code_versions import CODE
from workbench.experiment.setting_types import Section
from workbench.foundation.errors import ExperimentError

if TYPE_CHECKING:
    from workbench.experiment.space import Space

BUILT_IN = {
    "args": "all searched parameters without a placeholder, as --name=value",
    "config": "the path of a JSON file with all parameters",
    "folder": "the trial's folder, whose files are kept",
    "master": "the address of the worker with rank 0, host:port",
    "rank": "the rank of the worker, from 0",
    "resume": "whether an earlier attempt left files in the folder",
    "resume_from": "the path of a file that an earlier attempt left: {resume_from:model.pt}",
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
RESUME_FROM = "resume_from"
_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_PATH_NAMES = ("folder", "trial", "seed")
_FORMS_OF_GROUPS = ("json", "python")


class Workdir(Section):
    """A working folder for each trial of a command, and what is linked into it.

    Example:
        >>> from workbench.experiment.command import Workdir
        >>> Workdir(link=["data"]).link
        {'data': 'data'}
    """

    link: dict[str, str] = Field(
        description=(
            "Data to link into each working folder: paths relative to the folder of the run, or "
            "{data: /path/to/data}."
        ),
    )

    @field_validator("link", mode="before")
    @classmethod
    def _accept_list(cls, given: Any) -> Any:
        if isinstance(given, str):
            given = [given]
        if isinstance(given, list | tuple):
            return {str(path): str(path) for path in given}
        return given

    @field_validator("link")
    @classmethod
    def _check(cls, link: dict[str, str]) -> dict[str, str]:
        if not link:
            raise ExperimentError("there is nothing to link", next_step="Write workdir: fresh.")
        for name in link:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or not path.parts:
                raise ExperimentError(
                    f"{name!r} would be outside the working folder",
                    allowed="a path below it, such as data",
                    next_step=f"Choose a name in the folder: {{{path.name or 'data'}: {name}}}.",
                )
        return {PurePosixPath(name).as_posix(): path for name, path in link.items()}


def parse_command(given: Any) -> Any:
    """Return a command as it is stored: one line with as few quotes as possible.

    Args:
        given: A line, which is split as a shell would split it, or a list of arguments.

    Raises:
        ExperimentError: If it is neither, or if a placeholder is not complete.
    """
    if isinstance(given, str):
        try:
            words = shlex.split(given)
        except ValueError as error:
            raise ExperimentError(
                f"the line cannot be split into arguments: {error}",
                next_step="Close the quotation, or write a list.",
            ) from error
    elif isinstance(given, Sequence):
        words = list(given)
    else:
        raise ExperimentError(
            f"an object of type {type(given).__name__} is not a command",
            allowed="a line such as python train.py --lr {lr}, or a list of arguments",
        )
    # A list in YAML may contain numbers: [python, train.py, --epochs, 10].
    if (
        not words
        or not all(isinstance(word, str | int | float) for word in words)
        or words[0] == ""
    ):
        raise ExperimentError("there is no program", allowed="a program and its arguments")
    arguments = [str(word) for word in words]
    for argument in arguments:
        if "\0" in argument:
            raise ExperimentError(
                "an argument cannot contain a null character", next_step="Remove it."
            )
        for _ in _names_in(argument):  # raises if a placeholder is not complete
            pass
    return " ".join(_quoted(argument) for argument in arguments)


def arguments_of(command: str) -> list[str]:
    """Return the arguments of a command, placeholders included."""
    return shlex.split(command)


def files_to_resume_from(command: str) -> list[str]:
    """Return the files from which a command continues: names or patterns, relative to the folder.

    Args:
        command: The command as it is stored.

    Example:
        >>> from workbench.experiment.command import files_to_resume_from
        >>> files_to_resume_from("python train.py --resume {resume_from:ckpt_*.pt}")
        ['ckpt_*.pt']
    """
    names = (name for word in arguments_of(command) for name in _names_in(word))
    return list(dict.fromkeys(form for name, form in names if name == RESUME_FROM))


def reads_earlier_files(command: str) -> bool:
    """Return whether a command tells its program that an earlier attempt left files."""
    names = {name for word in arguments_of(command) for name, _ in _names_in(word)}
    return not names.isdisjoint(("resume", RESUME_FROM))


def check_command(command: str, search: Space, *, has_other_way: bool = False) -> None:
    """Check that every placeholder has a value, and that the command receives every parameter.

    Args:
        command: The command as it is stored.
        search: The searched parameters.
        has_other_way: Whether the program receives the parameters without its command.

    Raises:
        ExperimentError: If a placeholder has no value, or a parameter has no placeholder.
    """
    names = [*search.root, *BUILT_IN]
    if "args" in search.root:
        raise ExperimentError(
            "args means all parameters", field="search.args", next_step="Rename the parameter."
        )
    # The version of the code reaches the program as its code.
    received: set[str] = {CODE} if search.code_versions else set()
    for word in arguments_of(command):
        for name, form in _names_in(word):
            members = _members(name, search.root)
            if name not in names and members and form in _FORMS_OF_GROUPS:
                received.update(members)
                continue
            if name not in names:
                raise ExperimentError(
                    f"{{{name}}} is neither a searched parameter nor a built-in name",
                    field="command",
                    allowed=names,
                    next_step=f"Add {name} to search, or write {{{{ and }}}} for braces.",
                )
            if name == "args" and word not in ("{args}", "{args:json}"):
                raise ExperimentError(
                    f"{word!r} joins {{args}} with other text",
                    field="command",
                    allowed="{args} or {args:json} as a separate argument",
                )
            if form in ("flag", "no-flag"):
                _check_flag(name, form, word, search)
            received.add(name)
    missing = [name for name in search.root if name not in received]
    if missing and not has_other_way and not received & {"args", "config"}:
        raise ExperimentError(
            f"the command does not receive {missing[0]}",
            field=f"search.{missing[0]}",
            next_step=(
                f"Add {{{missing[0]}}} to the command, or {{args}} for all parameters, or"
                " {config} for the path of a JSON file with all of them."
            ),
        )


def check_path(path: str, field: str) -> None:
    """Raise an error if the path of a metrics file has a placeholder that paths do not have.

    Args:
        path: The path, with placeholders.
        field: The dotted field of the path.

    Raises:
        ExperimentError: If there is such a placeholder.
    """
    for name, form in _names_in(path):
        if name not in _PATH_NAMES or form:
            placeholder = ":".join(filter(None, (name, form)))
            raise ExperimentError(
                f"a path cannot contain {{{placeholder}}}",
                field=field,
                allowed=[f"{{{name}}}" for name in _PATH_NAMES],
            )


def expand(
    command: str, params: Mapping[str, JsonValue], built_in: Mapping[str, JsonValue]
) -> list[str]:
    """Return the arguments of one trial.

    Args:
        command: The command as it is stored.
        params: The configuration of the trial.
        built_in: The values of the names in `BUILT_IN`, without args. For `resume_from`, the path
            of each file that exists.

    Example:
        >>> from workbench.experiment.command import expand
        >>> params = {"lr": 0.1, "amp": True, "clip": None}
        >>> expand("train --lr {lr} {amp:flag} --clip {clip}", params, {})
        ['train', '--lr', '0.1', '--amp']
    """
    words = arguments_of(command)
    values = {**built_in, **params}
    received: set[str] = set()
    for name in [name for word in words for name, _ in _names_in(word)]:
        received.add(name)
        if name not in values and (members := _members(name, params)):
            values[name] = nested({member[len(name) + 1 :]: params[member] for member in members})
            received.update(members)
    others = {name: value for name, value in params.items() if name not in received}
    arguments: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        if word == "{args}":
            arguments += [
                argument for name, value in others.items() for argument in _option(name, value)
            ]
            continue
        if word == "{args:json}":
            arguments.append(json.dumps(others, ensure_ascii=False))
            continue
        expanded = _expand_part(word, values)
        if expanded is not None:
            arguments += expanded
        elif _takes_value(before) and not word.startswith("-"):
            # In "--clip {clip}", an option without its value would take the next argument instead.
            arguments.pop()
    return arguments


def nested(params: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return parameters as nested mappings, split at the dots in their names.

    If one name is the start of another, such as `optimizer` and `optimizer.lr`, both stay as they
    are.

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
    if expanded is None:
        return path
    return expanded[0]


def _members(group: str, names: Iterable[str]) -> list[str]:
    """Return the parameters of a group: `optimizer.lr` is in the group `optimizer`."""
    return [name for name in names if len(name) > len(group) + 1 and name.startswith(f"{group}.")]


def _check_flag(name: str, form: str, word: str, search: Space) -> None:
    values: Sequence[Any] | None = None
    if name in search.root:
        values = search.root[name].values()
    elif name == "resume":
        values = [True, False]
    if values is None or not all(isinstance(value, bool) or value is None for value in values):
        raise ExperimentError(
            f"{{{name}:{form}}} needs true or false, but {name} has other values",
            field="command",
            next_step=f"Write {{{name}}}, or search {name} with the choices true and false.",
        )
    if word != f"{{{name}:{form}}}":
        raise ExperimentError(
            f"{word!r} joins a flag with other text",
            field="command",
            allowed=f"{{{name}:{form}}} as a separate argument",
        )


def _names_in(word: str) -> Iterator[tuple[str, str]]:
    """Yield the names and forms of the placeholders of an argument."""
    for match in _PLACEHOLDER.finditer(word):
        if match[0] in ("{{", "}}"):
            continue
        name, _, form = (match[1] or "").partition(":")
        if name == RESUME_FROM:
            _check_file(form, word)
            yield name, form
            continue
        if (
            not name
            or (form and form not in FORMS)
            or (":" in match[0] and not form)
            or " " in name
        ):
            raise ExperimentError(
                f"{match[0]} in {word!r} is not a placeholder",
                allowed=["{name}", *(f"{{name:{form}}}" for form in FORMS)],
                next_step="Write {{ and }} for braces.",
            )
        yield name, form


def _check_file(name: str, word: str) -> None:
    """Raise an error unless a file to continue from is below the folder of the trial."""
    problem = None
    if not name:
        problem = "does not say from which file"
    elif name.startswith(("/", "~")) or ".." in name.split("/"):
        problem = "is outside the folder of the trial"
    if problem is not None:
        raise ExperimentError(
            f"{word!r} {problem}",
            allowed="{resume_from:model.pt}, or a pattern such as {resume_from:ckpt_*.pt}",
        )


def _expand_part(word: str, values: Mapping[str, JsonValue]) -> list[str] | None:
    """Return the arguments that one part expands to, or None if it is dropped."""
    match = _PLACEHOLDER.fullmatch(word)
    if match is not None and match[1]:
        name, form, value = _look_up(match[1], values)
        if form == "flag":
            return [f"--{name}"] * bool(value)
        if form == "no-flag":
            # Null is neither true nor false, so it is not written as a flag.
            return [f"--no-{name}"] * (value is False)
        if isinstance(value, list) and not form:
            # An empty list has no value, so its option is dropped, as for null.
            return [_text(item, "") for item in value] or None
    pieces: list[str] = []
    end = 0
    for match in _PLACEHOLDER.finditer(word):
        pieces.append(word[end : match.start()])
        end = match.end()
        if match[0] in ("{{", "}}"):
            pieces.append(match[0][0])
            continue
        name, form, value = _look_up(match[1] or "", values)
        if name not in values or (value is None and not form):
            return None
        pieces.append(_text(value, form))
    return ["".join([*pieces, word[end:]])]


def _look_up(placeholder: str, values: Mapping[str, JsonValue]) -> tuple[str, str, JsonValue]:
    """Return the name, the form and the value of a placeholder."""
    name, _, form = placeholder.partition(":")
    value = values.get(name)
    if name == RESUME_FROM:
        paths = value if isinstance(value, dict) else {}
        return name, "", paths.get(form)
    return name, form, value


def _option(name: str, value: JsonValue) -> list[str]:
    """Return an option with its value, as {args} writes it."""
    if value is None or value == []:
        return []
    if isinstance(value, list):
        return [f"--{name}", *(_text(item, "") for item in value)]
    return [f"--{name}={_text(value, '')}"]


def _text(value: JsonValue, form: str) -> str:
    if isinstance(value, str) and form != "json":
        return value
    if form == "python":
        return repr(value)
    return json.dumps(value, ensure_ascii=False)


def _takes_value(word: str) -> bool:
    """Return whether a part of a command is an option whose value is the next part."""
    return re.fullmatch(r"-[^\d=.{][^={]*", word) is not None


def _quoted(word: str) -> str:
    # `shlex.quote` alone would also quote {lr}, and the line would be hard to read.
    if word and not any(sign in word for sign in "'\"\\#") and shlex.split(word) == [word]:
        return word
    return shlex.quote(word)
