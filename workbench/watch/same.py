"""The command and the Python that do the same as an action, written from what the action is asked with.

What is shown of an action is what is done: the server runs these words. `extensions/src/same.ts` writes them
while somebody fills in a form, where no server may be at hand; `extensions/tests/same.json` holds both to the
same letters.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from workbench.workers.jobs import is_jobs_address

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
_NO_TEXT = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"})
_IN_YAML = {None: "null", True: "true", False: "false"}
_IN_PYTHON = {None: "None", True: "True", False: "False"}


class Same(NamedTuple):
    """A command and a piece of Python, where the workbench is imported as `wb`."""

    command: str
    python: str


def same_as(kind: str, run_id: str, arguments: Mapping[str, Any]) -> Same:
    """Return the command and the Python that do the same as an action.

    Args:
        kind: Of an action or an offer.
        run_id: The run; "" where one is started.
        arguments: What the action is asked with.
    """
    return Same(
        shlex.join(["workbench", *words_of(kind, run_id, arguments)]), _python(kind, run_id, arguments)
    )


def words_of(kind: str, run_id: str, arguments: Mapping[str, Any]) -> list[str]:
    """Return the words of the command after the program's name; arguments as in `same_as`."""
    match kind:
        case "start":
            name, address = arguments.get("name"), arguments.get("address")
            more = [*(["--name", name] if name else []), *(["--address", address] if address else [])]
            command = "submit" if is_jobs_address(address) else "sweep"
            return [command, arguments["path"], *_assignments(arguments.get("settings") or {}), *more]
        case "stop_trial":
            return ["stop", run_id, *_options(arguments)]
        case "enqueue":
            return ["enqueue", run_id, *_assignments(arguments["params"])]
        case "save_report":
            return ["report", run_id, *_options(arguments)]
        case "attach":
            return ["follow", run_id]
        case _:
            return [kind, run_id, *_options(arguments)]


def folder_of(trial: int | None) -> str:
    """Return the folder that a trial is exported to where nobody names one; None for the best trial."""
    return "best" if trial is None else f"trial-{trial}"


def report_of(run_id: str) -> str:
    """Return the file that a report is saved as where nobody names one."""
    return f"{run_id}-report.html"


def _python(kind: str, run_id: str, arguments: Mapping[str, Any]) -> str:
    if kind == "start":
        return _python_of_start(arguments)
    run = f"wb.attach({_in_python(run_id)})"
    match kind:
        case "attach":
            return run
        case "stop_trial":
            return f"{run}.stop({_keywords(arguments)})"
        case "enqueue":
            return f"{run}.enqueue({_in_python(arguments['params'])})"
        case "save_report":
            return f"{run}.report({_in_python(arguments['to'])})"
        case "export":
            rest = {name: value for name, value in arguments.items() if name != "to"}
            words = ", ".join(filter(None, [_in_python(arguments["to"]), _keywords(rest)]))
            return f"{run}.export({words})"
        case _:
            return f"{run}.{kind}({_keywords(arguments)})"


def _python_of_start(arguments: Mapping[str, Any]) -> str:
    path, name, address = arguments["path"], arguments.get("name"), arguments.get("address")
    settings = {**(arguments.get("settings") or {}), **({"name": name} if name else {})}
    verb = "submit" if is_jobs_address(address) else "sweep"
    where = f", address={_in_python(address)}" if address else ""
    if not settings:
        return f"wb.{verb}({_in_python(path)}{where})"
    read = f"read_experiment({_in_python(path)}, {_in_python(settings)})"
    return f"from workbench.run import read_experiment\nwb.{verb}({read}{where})"


def _options(arguments: Mapping[str, Any]) -> list[str]:
    return [
        word
        for name, value in arguments.items()
        for word in (f"--{name}", value if isinstance(value, str) else _in_yaml(value))
    ]


def _assignments(settings: Mapping[str, Any]) -> list[str]:
    return [word for name, value in settings.items() for word in ("--set", f"{name}={_assigned(value)}")]


def _assigned(value: Any) -> str:
    """Write a value as YAML that reads back as it: text stands plain where nothing else is written so."""
    is_plain = isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _NO_TEXT
    return value if is_plain else _in_yaml(value)


def _keywords(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_in_python(value)}" for name, value in arguments.items())


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
