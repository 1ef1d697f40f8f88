"""Options of programs in R, shell and Julia, read from their source.

R: optparse, argparse, argparser, tfruns and commandArgs. Shell: parse_options, `case`, getopts,
positional parameters and variables with defaults. Julia: ArgParse and ARGS. Constants are left to
the caller.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from workbench.runs.scripts.compiled_programs import options_of_compiled
from workbench.runs.scripts.declared_options import alternatives_in
from workbench.runs.scripts.option_domains import kind_of_value
from workbench.runs.scripts.program_source import COMPILER
from workbench.runs.scripts.script_options import ScriptOption, Way
from workbench.training.programs.constants import constants_of

_R_CALL = re.compile(r"\b(?:make_option|add_option|add_argument|arg_parser\$add_argument)\s*\(")
_R_FLAG = re.compile(r"\bflag_(?P<kind>numeric|integer|boolean|string)\s*\(")
"""A flag of tfruns: `FLAGS <- flags(flag_numeric("rate", 0.1))`."""
_R_PLACE = re.compile(
    r"^\s*(?P<name>[A-Za-z][\w.]*)\s*(?:<-|=)\s*(?:(?P<kind>as\.\w+)\()?\s*\w*args\w*\[+(?P<place>\d+)\]+",
    re.MULTILINE | re.IGNORECASE,
)
_R_KINDS = {
    "double": "float",
    "numeric": "float",
    "integer": "int",
    "character": "str",
    "logical": "bool",
    "boolean": "bool",
    "string": "str",
    "as.numeric": "float",
    "as.double": "float",
    "as.integer": "int",
}
_SHELL_CASE = re.compile(
    r"^\s*(?:-\w\s*\|\s*)?(?P<name>--[\w-]+|-\w)(?:\s*\|\s*-{1,2}[\w-]+)*\)\s*"
    r"(?:(?:shift;?|\n)\s*)?(?P<variable>\w+)=[\"']?\$\{?(?P<value>2|1|OPTARG)\b",
    re.MULTILINE,
)
_SHELL_GETOPTS = re.compile(
    r"^\s*(?P<name>\w)\)\s*(?P<variable>\w+)=[\"']?\$\{?OPTARG", re.MULTILINE
)
_SHELL_PLACE = re.compile(
    r"^\s*(?:export\s+)?(?P<variable>[A-Za-z]\w*)=[\"']?\$(?:\{(?P<number>\d)(?::-(?P<default>[^}\"']*))?\}|(?P<plain>\d))",
    re.MULTILINE,
)
_SHELL_DEFAULT = re.compile(r"\$\{(?P<name>[A-Za-z]\w*):?[-=](?P<default>[^}\"'$]*)\}")
_JULIA_OPTION = re.compile(
    r"^\s*\"(?P<names>-{1,2}[\w-]+(?:\"\s*,\s*\"-{1,2}[\w-]+)*)\"(?P<rest>(?:.*\n)(?:(?!\s*\"-)(?!\s*end\b).*\n)*)",
    re.MULTILINE,
)
_JULIA_KINDS = {"Float": "float", "Int": "int", "String": "str", "Bool": "bool"}
_SHELL_OWN = re.compile(r"^(?:PATH|HOME|PWD|USER|CUDA\w*|\w*GPU\w*|\w*(?:HOST|PORT|RANK|KEY))$")


def options_of_language(text: str, interpreter: str) -> list[ScriptOption]:
    """Return the options that a program in another language takes, in their order.

    Args:
        text: Its source.
        interpreter: What starts it: Rscript, bash, zsh, julia, lua, th, or c++ for what is
            compiled.

    Example:
        >>> from workbench.runs.scripts.other_languages import options_of_language
        >>> source = 'make_option(c("-l", "--lr"), type = "double", default = 0.1)'
        >>> [(option.name, option.default) for option in options_of_language(source, "Rscript")]
        [('lr', 0.1)]
    """
    if interpreter == "Rscript":
        return list(_of_r(text))
    if interpreter in ("bash", "zsh"):
        return _of_shell(text)
    if interpreter == "julia":
        return list(_of_julia(text))
    if interpreter in ("lua", "th"):
        return list(_of_torch7(text))
    return options_of_compiled(text) if interpreter == COMPILER else []


_TORCH7 = re.compile(
    r"^\s*\w+:option\(\s*['\"]-{1,2}(?P<name>[\w-]+)['\"]\s*,\s*(?P<default>'[^'\n]*'|\"[^\"\n]*\"|[^,\n]+?)"
    r"\s*(?:,\s*(?P<quote>['\"])(?P<text>.*)(?P=quote)\s*)?\)",
    re.MULTILINE,
)


def _of_torch7(text: str) -> Iterator[ScriptOption]:
    """Yield the options that torch.CmdLine of Lua takes: `cmd:option("-rate", 0.1, "help")`."""
    for match in _TORCH7.finditer(text):
        name, written = match["name"], match["default"].strip()
        default: Any = {"true": True, "false": False}.get(written)
        if default is None:
            try:
                default = int(written) if written.lstrip("-").isdecimal() else float(written)
            except ValueError:
                default = written.strip("'\"") if written[:1] in "'\"" else None
        is_number = isinstance(default, int | float) and not isinstance(default, bool)
        # A number has no type: a rate may be written as 5.
        kind = kind_of_value(name, 0 if is_number else default)
        if is_number and kind != "float":
            kind = type(default).__name__
        way: Way = "fixed" if isinstance(default, bool) else "single"
        yield ScriptOption(name, default, kind=kind, way=way, text=match["text"] or "")


def _of_r(text: str) -> Iterator[ScriptOption]:
    text = re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)
    calls = [_arguments(text, match.end()) for match in _R_CALL.finditer(text)]
    calls += [_arguments(text, match.end()) for match in re.finditer(r"\$add_argument\s*\(", text)]
    seen: set[str] = set()
    for match in _R_FLAG.finditer(text):
        name, default, *rest = [*_arguments(text, match.end()), "", ""]
        kind = _R_KINDS[match["kind"]]
        seen.add(name.strip("\"'"))
        yield ScriptOption(
            name.strip("\"'"),
            _r_value(default),
            kind=kind,
            way="fixed" if kind == "bool" else "option",
            text=rest[0].strip("\"'"),
        )
    for arguments in calls:
        option = _r_option(arguments)
        if option is not None and option.name not in seen | {"help"}:
            seen.add(option.name)
            yield option
    if seen:
        return
    places = {int(match["place"]): match for match in _R_PLACE.finditer(text)}
    if sorted(places) == list(range(1, len(places) + 1)):
        for place in sorted(places):
            kind = _R_KINDS.get(places[place]["kind"] or "", "str")
            yield ScriptOption(places[place]["name"], kind=kind, way="positional", is_required=True)


def _arguments(text: str, start: int) -> list[str]:
    """Return the arguments of a call, whose parenthesis ends before `start`."""
    arguments, depth, quote, begin = list[str](), 1, "", start
    for place in range(start, min(len(text), start + 5000)):
        sign = text[place]
        if quote:
            quote = "" if sign == quote and text[place - 1] != "\\" else quote
        elif sign in "\"'":
            quote = sign
        elif sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
        if depth == 0 or (depth == 1 and sign == "," and not quote):
            arguments.append(text[begin:place].strip())
            begin = place + 1
        if depth == 0:
            break
    return arguments


def _r_option(arguments: list[str]) -> ScriptOption | None:
    given: dict[str, str] = {}
    names: list[str] = []
    for argument in arguments:
        match = re.match(r"(\w[\w.]*)\s*=\s*(?!=)(.*)", argument, re.DOTALL)
        if match is None or match[1] in ("opt_str", "arg", "name"):
            names += re.findall(r"[\"'](-{0,2}[A-Za-z][\w.-]*)[\"']", argument)
        else:
            given[match[1]] = match[2].strip()
    long = [name[2:] for name in names if name.startswith("--")]
    if not names:
        return None
    default = _r_value(given.get("default", ""))
    kind = _R_KINDS.get(given.get("type", "").strip("\"'"))
    text = given.get("help", "").strip("\"'")
    action = given.get("action", "").strip("\"'")
    if action in ("store_true", "store_false") or given.get("flag") in ("TRUE", "T"):
        way: Way = "switch" if long and action != "store_false" else "fixed"
        return ScriptOption((long or names)[0].lstrip("-"), False, kind="bool", way=way, text=text)
    if kind is None and isinstance(default, int | float):
        kind = "float" if "." in given["default"] or isinstance(default, float) else "int"
        if isinstance(default, int) and not given["default"].endswith("L"):
            kind = "int"
    way = "option" if long else "single"
    if not names[0].startswith("-"):
        way = "positional"
    return ScriptOption(
        (long or [name.lstrip("-") for name in names])[0],
        default,
        alternatives_in(text, default),
        kind,
        way,
        is_required=way == "positional" and "default" not in given,
        text=text,
    )


def _r_value(text: str) -> Any:
    constants = constants_of(f"value = {text}\n", ".r") if text else []
    return constants[0].value if constants else None


def _of_shell(text: str) -> list[ScriptOption]:
    variables = {constant.name: constant.value for constant in constants_of(text, ".sh")}
    if re.search(r"parse_options\.sh", text):
        before = text[: text.index("parse_options.sh")]
        return [
            ScriptOption(
                constant.name.replace("_", "-"),
                constant.value,
                kind=type(constant.value).__name__,
                way="apart",
            )
            for constant in constants_of(before, ".sh")
            if constant.name.islower()
        ]
    options: dict[str, ScriptOption] = {}
    for match in _SHELL_CASE.finditer(text):
        name = match["name"]
        way: Way = "apart" if name.startswith("--") else "single"
        default = variables.get(match["variable"])
        options[name] = ScriptOption(name.lstrip("-"), default, kind=_kind(default), way=way)
    if "getopts" in text:
        for match in _SHELL_GETOPTS.finditer(text):
            default = variables.get(match["variable"])
            options.setdefault(
                f"-{match['name']}",
                ScriptOption(match["name"], default, kind=_kind(default), way="single"),
            )
    places = {int(m["number"] or m["plain"]): m for m in _SHELL_PLACE.finditer(text)}
    if not options and places and sorted(places) == list(range(1, len(places) + 1)):
        for place in sorted(places):
            default = _shell_value(places[place]["default"] or "")
            options[str(place)] = ScriptOption(
                places[place]["variable"],
                default,
                kind=_kind(default),
                way="positional",
                is_required=places[place]["default"] is None,
            )
    for match in _SHELL_DEFAULT.finditer(text):
        name = match["name"]
        if name not in options and not _SHELL_OWN.match(name):
            default = _shell_value(match["default"])
            options[name] = ScriptOption(name, default, kind=_kind(default), way="variable")
    return list(options.values())


def _kind(value: Any) -> str | None:
    return None if value is None else type(value).__name__


def _shell_value(text: str) -> Any:
    constants = constants_of(f"value={text}\n", ".sh") if text else []
    return constants[0].value if constants else (text or None)


def _of_julia(text: str) -> Iterator[ScriptOption]:
    if "add_arg_table" not in text:
        return
    for match in _JULIA_OPTION.finditer(text):
        names = re.findall(r"-{1,2}[\w-]+", match["names"])
        long = [name for name in names if name.startswith("--")] or names
        rest = match["rest"]
        given = dict(re.findall(r"\b(arg_type|default|action|help|required)\s*=\s*([^\n,]+)", rest))
        kind = next(
            (k for t, k in _JULIA_KINDS.items() if given.get("arg_type", "").startswith(t)), None
        )
        constants = constants_of(f"value = {given.get('default', '').strip()}\n", ".jl")
        default = constants[0].value if constants else None
        option = ScriptOption(
            long[0].lstrip("-"),
            default,
            kind=kind or _kind(default),
            way="option" if long[0].startswith("--") else "single",
            is_required=given.get("required", "").strip() == "true",
        )
        if ":store_true" in given.get("action", ""):
            option = replace(option, default=False, kind="bool", way="switch")
        yield option
