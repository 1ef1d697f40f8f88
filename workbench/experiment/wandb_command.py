"""The command of a sweep of Weights & Biases as the command of an experiment."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from workbench.foundation.errors import ExperimentError

_DEFAULT = ("${env}", "${interpreter}", "${program}", "${args}")
_MACRO = re.compile(r"\$\{([^}]*)\}")
_PLAIN = {"interpreter": "python", "args_json": "{args:json}", "args_json_file": "{config}"}
_LISTS = ("args", "args_no_hyphens", "args_no_boolean_flags")


def command_of(
    document: Mapping[str, Any],
    search: Mapping[str, Any],
    nested_names: Collection[str],
    note: Callable[[str], None],
) -> list[str]:
    """Return the arguments that a sweep starts its program with, with our placeholders.

    Args:
        document: The content of the sweep file, which names a program.
        search: The searched parameters, as an experiment writes them.
        nested_names: Those that are nested in the sweep file; W&B passes each group as one literal.
        note: Called with a sentence for what is only approximated.

    Raises:
        ExperimentError: If a macro has no counterpart.
    """
    given = document.get("command", _DEFAULT)
    if isinstance(given, str) or not isinstance(given, list | tuple):
        raise ExperimentError(
            f"{given!r} is not a list", field="command", allowed="a list, as in W&B"
        )
    booleans = [name for name, domain in search.items() if _is_boolean(domain)]
    groups = list(dict.fromkeys(name.partition(".")[0] for name in nested_names))
    names = [name for name in search if name not in nested_names]
    found: list[str] = []
    for place, part in enumerate(str(part) for part in given):
        macro = _MACRO.fullmatch(part)
        name = macro[1] if macro else ""
        if name == "env":
            continue
        if name in _LISTS:
            found += _arguments(name, names, booleans, groups)
            continue
        found.append(_replaced(part, str(document["program"]), f"command.{place}"))
    if not any("{" in part for part in found):
        note("command: no macro passes the parameters, so {args} was added")
        found += _arguments("args", names, booleans, groups)
    return found


def _arguments(macro: str, names: list[str], booleans: list[str], groups: list[str]) -> list[str]:
    # W&B writes True, False and mappings as Python does.
    literals = [name for name in names if name in booleans]
    if macro == "args_no_hyphens":
        plain = [f"{name}={{{name}{':python' if name in literals else ''}}}" for name in names]
        return [*plain, *(f"{name}={{{name}:python}}" for name in groups)]
    written = [f"--{name}={{{name}:python}}" for name in groups]
    if macro == "args_no_boolean_flags":
        return [*(f"{{{name}:flag}}" for name in literals), *written, "{args}"]
    return [*(f"--{name}={{{name}:python}}" for name in literals), *written, "{args}"]


def _replaced(part: str, program: str, field: str) -> str:
    def replace(match: re.Match[str]) -> str:
        if match[1] == "program":
            return program.replace("{", "{{").replace("}", "}}")
        if match[1] not in _PLAIN:
            raise ExperimentError(
                f"${{{match[1]}}} has no counterpart",
                field=field,
                allowed=["${env}", "${program}", *(f"${{{name}}}" for name in (*_PLAIN, *_LISTS))],
                next_step="Write what it stands for.",
            )
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
