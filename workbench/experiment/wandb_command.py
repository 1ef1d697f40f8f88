"""The command of a sweep of Weights & Biases as the command of an experiment."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from workbench.errors import ExperimentError

_DEFAULT = ("${env}", "${interpreter}", "${program}", "${args}")
_MACRO = re.compile(r"\$\{([^}]*)\}")
_PLAIN = {"interpreter": "python", "args_json": "{args:json}", "args_json_file": "{config}"}
_LISTS = ("args", "args_no_hyphens", "args_no_boolean_flags")


def command_of(
    document: Mapping[str, Any], search: Mapping[str, Any], note: Callable[[str], None]
) -> list[str]:
    """Return the arguments that a sweep starts its program with, with our placeholders.

    Args:
        document: The content of the sweep file, which names a program.
        search: The searched parameters, as an experiment writes them.
        note: Called with a sentence for what is only approximated.

    Raises:
        ExperimentError: If a macro has no counterpart.
    """
    given = document.get("command", _DEFAULT)
    if isinstance(given, str) or not isinstance(given, list | tuple):
        raise ExperimentError(f"{given!r} is not a list", field="command", allowed="a list, as in W&B")
    booleans = [name for name, domain in search.items() if _is_boolean(domain)]
    found: list[str] = []
    for place, part in enumerate(str(part) for part in given):
        macro = _MACRO.fullmatch(part)
        name = macro[1] if macro else ""
        if name == "env":
            continue
        if name in _LISTS:
            found += _arguments(name, list(search), booleans)
            continue
        found.append(_replaced(part, str(document["program"]), f"command.{place}"))
    if not any("{" in part for part in found):
        note("command: no macro passes the parameters, so {args} was added")
        found += _arguments("args", list(search), booleans)
    return found


def _arguments(macro: str, names: list[str], booleans: list[str]) -> list[str]:
    if macro == "args_no_hyphens":
        return [f"{name}={{{name}{':python' if name in booleans else ''}}}" for name in names]
    if macro == "args_no_boolean_flags":
        return [*(f"{{{name}:flag}}" for name in booleans), "{args}"]
    # W&B writes True and False as Python does.
    return [*(f"--{name}={{{name}:python}}" for name in booleans), "{args}"]


def _replaced(part: str, program: str, field: str) -> str:
    def replace(match: re.Match[str]) -> str:
        if match[1] == "program":
            return program.replace("{", "{{").replace("}", "}}")
        if match[1] not in _PLAIN:
            raise ExperimentError(
                f"${{{match[1]}}} has no counterpart", field=field,
                allowed=["${env}", "${program}", *(f"${{{name}}}" for name in (*_PLAIN, *_LISTS))],
                next_step="Write what it stands for.",
            )  # fmt: skip
        return _PLAIN[match[1]]

    pieces, end = [], 0
    for match in _MACRO.finditer(part):
        pieces += [part[end : match.start()].replace("{", "{{").replace("}", "}}"), replace(match)]
        end = match.end()
    return "".join([*pieces, part[end:].replace("{", "{{").replace("}", "}}")])


def _is_boolean(domain: Any) -> bool:
    values = domain
    if isinstance(domain, Mapping):
        values = domain.get("choices", [domain.get("value")])
    values = values if isinstance(values, list) else [values]
    return bool(values) and all(isinstance(value, bool) for value in values)
