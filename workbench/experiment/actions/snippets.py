"""Actions written as a command for a shell and as Python.

What is shown of an action is what is done.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from workbench.experiment.actions.action import Argument, experiment_settings
from workbench.experiment.actions.table import ACTIONS, Action, action_of
from workbench.foundation.errors import Suggestion

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
_NOT_TEXT = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"})
_IN_YAML = {None: "null", True: "true", False: "false"}
_IN_PYTHON = {None: "None", True: "True", False: "False"}


class Snippet(NamedTuple):
    """A command and a piece of Python, where the workbench is imported as `wb`."""

    command: str
    python: str


def snippet_of(kind: str, run_id: str, arguments: Mapping[str, Any]) -> Snippet:
    """Return the command and the Python that do the same as an action.

    Args:
        kind: The kind of the action.
        run_id: The run; "" for an action on a file.
        arguments: Its arguments, by name.
    """
    action = action_of(kind, arguments)
    words = command_words(action, run_id, arguments)
    return Snippet(shlex.join(["workbench", *words]), _python(action, run_id, arguments))


def command_words(action: Action, run_id: str, arguments: Mapping[str, Any]) -> list[str]:
    """Return the words of the command after the program's name; arguments as in `snippet_of`."""
    given = _given(action, arguments)
    subject = given.pop("path", None) if action.subject == "file" else run_id
    words = [action.command_name, *([] if subject is None else [subject])]
    options: list[str] = []
    operands: list[str] = []
    for argument in action.arguments:
        if argument.name in given:
            value = given[argument.name]
            if argument.is_operand:
                operands += value if argument.kind == "texts" else [value]
            else:
                options += _option(argument, value)
    if any(operand.startswith("-") for operand in operands):
        return [*words, *options, "--", *operands]
    return [*words, *operands, *options]


def suggest(
    verb: str, subject: str | None = None, *, lead: str = "", **arguments: Any
) -> Suggestion:
    """Return a next step that is a command.

    Args:
        verb: The kind of an action, or another command of the command line.
        subject: The run, or the file; of `sweep`, None for the experiment of the run in
            `warm_start`.
        lead: What the step does, as the beginning of a sentence.
        **arguments: The arguments of the action; of another command, its options.
    """
    action = ACTIONS.get(verb)
    if action is None:
        options = [word for name, value in arguments.items() for word in (f"--{name}", str(value))]
        words = [verb, *([subject] if subject is not None else []), *options]
        return Suggestion(lead, verb, subject, arguments, words=tuple(words))
    given = {"path": subject, **arguments} if action.subject == "file" else arguments
    words = command_words(action, subject or "", given)
    return Suggestion(
        lead,
        verb,
        subject,
        arguments,
        words=tuple(words),
        label=action.label,
        python=_python(action, subject or "", given),
    )


def write_for_panel(suggestion: Suggestion) -> str:
    """Return a next step as the panel shows it: by its button, or else as a command for a shell."""
    action = ACTIONS.get(suggestion.verb)
    if action is not None and action.for_run is not None and action.done_by != "nobody":
        return suggestion.write(f"choose “{action.label}”")
    return suggestion.write(shlex.join(["workbench", *suggestion.words]))


def _given(action: Action, arguments: Mapping[str, Any]) -> dict[str, Any]:
    may_be_empty = {one.name for one in action.arguments if one.may_be_empty}
    return {
        name: value
        for name, value in arguments.items()
        if value not in (None, "", [], ()) or (value == "" and name in may_be_empty)
    }


def _option(argument: Argument, value: Any) -> list[str]:
    name = argument.option_name
    match argument.kind:
        case "settings":
            return [word for one in write_assignments(value) for word in (name, one)]
        case "texts":
            return [word for one in value for word in (name, one)]
        case "flag":
            return [name] if value == argument.flag_value else []
        case _:
            return [name, value if isinstance(value, str) else _in_yaml(value)]


def write_assignments(settings: Mapping[str, Any]) -> list[str]:
    """Write settings as `--set` takes them: each as `name=value`."""
    return [f"{name}={_assigned(value)}" for name, value in settings.items()]


def _python(action: Action, run_id: str, arguments: Mapping[str, Any]) -> str:
    given = _given(action, arguments)
    if action.subject == "file":
        return _python_of_file(action, given)
    run = f"wb.attach({_in_python(run_id)})"
    if action.method is None:
        return run
    known = [one for one in action.arguments if one.name in given]
    values = [
        (
            _in_python(given[one.name])
            if one.is_positional
            else f"{one.name}={_in_python(given[one.name])}"
        )
        for one in known
    ]
    return f"{run}.{action.method or action.kind}({', '.join(values)})"


def _python_of_file(action: Action, given: Mapping[str, Any]) -> str:
    settings = experiment_settings(action.arguments, given)
    rest = [
        f", {one.name}={_in_python(given[one.name])}"
        for one in action.arguments
        if one.name in given and one.setting is None and one.name not in ("path", "settings")
    ]
    if "path" in given:
        function, source = "read_experiment", _in_python(given["path"])
    else:
        function, source = (
            "change_experiment",
            f"wb.attach({_in_python(given['warm_start'][0])}).experiment",
        )
    if not settings:
        return f"wb.{action.kind}({source}{''.join(rest)})"
    changed = f"{function}({source}, {_in_python(settings)})"
    return f"from workbench.runs import {function}\nwb.{action.kind}({changed}{''.join(rest)})"


def _assigned(value: Any) -> str:
    """Write a value as YAML that reads back as it.

    Text is written plainly where that is unambiguous.
    """
    is_plain = isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _NOT_TEXT
    return value if is_plain else _in_yaml(value)


def _in_yaml(value: Any) -> str:
    return _written(value, _IN_YAML, _in_yaml)


def _in_python(value: Any) -> str:
    return _written(value, _IN_PYTHON, _in_python)


def _written(value: Any, constants: Mapping[Any, str], write: Callable[[Any], str]) -> str:
    if value is None or isinstance(value, bool):
        return constants[value]
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e16 else repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(write, value))}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{write(str(key))}: {write(one)}' for key, one in value.items())}}}"
    return json.dumps(value, ensure_ascii=False)
