"""Actions written as a shell command and as Python.

Pages show these texts, so a user sees exactly what a button does.
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
    """A shell command, and Python code in which the workbench is imported as `wb`."""

    command: str
    python: str


def snippet_of(kind: str, run_id: str, arguments: Mapping[str, Any]) -> Snippet:
    """Return the command and the Python that do the same as an action.

    Args:
        kind: The kind of the action.
        run_id: The run, or "" for an action on a file.
        arguments: Its arguments, by name.
    """
    action = action_of(kind, arguments)
    words = command_words(action, run_id, arguments)
    return Snippet(shlex.join(["workbench", *words]), _python(action, run_id, arguments))


def command_words(action: Action, run_id: str, arguments: Mapping[str, Any]) -> list[str]:
    """Return the words of the command after the program's name.

    Args:
        action: The action.
        run_id: The run, or "" for an action on a file.
        arguments: Its arguments, by name.
    """
    given = _given(action, arguments)
    words = [action.command_name]
    if action.subject == "run":
        words.append(run_id)
    elif "path" in given:
        words.append(given.pop("path"))
    options: list[str] = []
    operands: list[str] = []
    for argument in action.arguments:
        if argument.name not in given:
            continue
        value = given[argument.name]
        if not argument.is_operand:
            options += _option(argument, value)
        elif argument.kind == "texts":
            operands += value
        else:
            operands.append(value)
    # A note such as "-3 % loss" would be read as an option without the two dashes.
    if any(operand.startswith("-") for operand in operands):
        return [*words, *options, "--", *operands]
    return [*words, *operands, *options]


def suggest(
    verb: str, subject: str | None = None, *, lead: str = "", **arguments: Any
) -> Suggestion:
    """Return a next step that is a command.

    Args:
        verb: The kind of an action, or another command of the command line.
        subject: The run or the file. For `sweep`, None means the experiment of the run in
            `warm_start`.
        lead: What the step does, as the start of a sentence.
        **arguments: The arguments of the action, or the options of another command.
    """
    action = ACTIONS.get(verb)
    if action is None:
        words = [verb]
        if subject is not None:
            words.append(subject)
        for name, value in arguments.items():
            words += [f"--{name}", str(value)]
        return Suggestion(lead, verb, subject, arguments, words=tuple(words))
    all_arguments = arguments
    if action.subject == "file":
        all_arguments = {"path": subject, **arguments}
    words = command_words(action, subject or "", all_arguments)
    return Suggestion(
        lead,
        verb,
        subject,
        arguments,
        words=tuple(words),
        label=action.label,
        python=_python(action, subject or "", all_arguments),
    )


def write_for_panel(suggestion: Suggestion) -> str:
    """Return a next step as the panel shows it: its button, or else a shell command."""
    action = ACTIONS.get(suggestion.verb)
    if action is not None and action.for_run is not None and action.done_by != "nobody":
        return suggestion.write(f"choose “{action.label}”")
    return suggestion.write(shlex.join(["workbench", *suggestion.words]))


def _given(action: Action, arguments: Mapping[str, Any]) -> dict[str, Any]:
    may_be_empty = {argument.name for argument in action.arguments if argument.may_be_empty}
    return {
        name: value
        for name, value in arguments.items()
        if value not in (None, "", [], ()) or (value == "" and name in may_be_empty)
    }


def _option(argument: Argument, value: Any) -> list[str]:
    name = argument.option_name
    match argument.kind:
        case "settings":
            return [word for assignment in write_assignments(value) for word in (name, assignment)]
        case "texts":
            return [word for text in value for word in (name, text)]
        case "flag" if value == argument.flag_value:
            return [name]
        case "flag":
            return []
        case _ if isinstance(value, str):
            return [name, value]
        case _:
            return [name, _in_yaml(value)]


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
    passed: list[str] = []
    for argument in action.arguments:
        if argument.name in given:
            value = _in_python(given[argument.name])
            if not argument.is_positional:
                value = f"{argument.name}={value}"
            passed.append(value)
    return f"{run}.{action.method or action.kind}({', '.join(passed)})"


def _python_of_file(action: Action, given: Mapping[str, Any]) -> str:
    settings = experiment_settings(action.arguments, given)
    passed = {
        argument.name: given[argument.name]
        for argument in action.arguments
        if argument.name in given and argument.setting is None
    }
    rest = [
        f", {name}={_in_python(value)}"
        for name, value in passed.items()
        if name not in ("path", "settings")
    ]
    if "path" in given:
        function, source = "read_experiment", _in_python(given["path"])
    else:
        earlier_run = _in_python(given["warm_start"][0])
        function, source = "change_experiment", f"wb.attach({earlier_run}).experiment"
    if not settings:
        return f"wb.{action.kind}({source}{''.join(rest)})"
    changed = f"{function}({source}, {_in_python(settings)})"
    return f"from workbench.runs import {function}\nwb.{action.kind}({changed}{''.join(rest)})"


def _assigned(value: Any) -> str:
    """Write a value as YAML that reads back as the same value.

    Text is written without quotes if that is unambiguous.
    """
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _NOT_TEXT:
        return value
    return _in_yaml(value)


def _in_yaml(value: Any) -> str:
    return _written(value, _IN_YAML, _in_yaml)


def _in_python(value: Any) -> str:
    return _written(value, _IN_PYTHON, _in_python)


def _written(value: Any, constants: Mapping[Any, str], write: Callable[[Any], str]) -> str:
    if value is None or isinstance(value, bool):
        return constants[value]
    if isinstance(value, float):
        # From 1e16 on, repr writes a short exponent instead of many digits.
        if value.is_integer() and abs(value) < 1e16:
            return str(int(value))
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(write, value))}]"
    if isinstance(value, Mapping):
        items = [f"{write(str(key))}: {write(item)}" for key, item in value.items()]
        return f"{{{', '.join(items)}}}"
    return json.dumps(value, ensure_ascii=False)
