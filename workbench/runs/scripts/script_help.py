"""Options that a program lists for `--help`, for programs whose source does not show them.

The program is started with `--help` and ended. Nothing of it is patched.
"""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

from workbench.runs.scripts.script_options import ScriptOption, Way

HELP_S = 60.0
_OF_EVERY_SCRIPT = frozenset(
    ("help", "version", "install-completion", "show-completion", "helpfull", "helpshort")
)
TAKES_OPTIONS = re.compile(
    r"parse_args|parse_known|get_args|\bargv\b|parser\b|typer|tyro|docopt|absl|simple_parsing|CLI\b|\bcli\b|click"
)
"""What the source of a program has that takes options."""
_NO_MODULE = re.compile(r"^ModuleNotFoundError: No module named '([\w.]+)'", re.MULTILINE)
_LAST_ERROR = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception): .*$", re.MULTILINE)


@dataclass(frozen=True)
class Help:
    """What a program says for `--help`.

    Attributes:
        options: The options that it lists.
        problem: Why there is no help. None if there is.
    """

    options: list[ScriptOption] = field(default_factory=list)
    problem: str | None = None


_OPTION = re.compile(
    r"^[\s│|*]*(?:-\w(?: [A-Z_]+)?,\s*)?--(?P<no>\[no\])?(?P<name>[A-Za-z][\w.-]*)"
    r"(?:(?:,|[ /]+)\s*(?P<negative>--no-[\w-]+))?(?P<rest>(?:[ =:\t][^\n]*)?)$",
    re.MULTILINE,
)
_DEFAULT = re.compile(
    r"[\[(]?\bdefault(?:s to)?[:=]?\s+['\"]?(?P<value>[^\s\])'\",;]+)", re.IGNORECASE
)
_REQUIRED = re.compile(r"[\[(]required[\])]", re.IGNORECASE)
_CHOICES = re.compile(r"^[ =]+[\[{<](?P<values>[^\]}>\s]+(?:[,|][^\]}>\s]+)+)[\]}>]")
_TAKES_VALUE = re.compile(
    r"^(?:[=:]|\s+<(?!bool)| [\[{A-Z]|\s+(?:FLOAT|INT|INTEGER|TEXT|PATH|STR)\b)"
)


def options_in_help(text: str) -> list[ScriptOption]:
    """Return the options in a help text of argparse, click, typer, tyro or the like.

    Example:
        >>> from workbench.runs.scripts.script_help import options_in_help
        >>> options = options_in_help("  --lr FLOAT  the rate (default: 0.1)")
        >>> [(option.name, option.default) for option in options]
        [('lr', 0.1)]
    """
    matches = list(_OPTION.finditer(text))
    ends = [*(match.start() for match in matches), len(text)][1:]
    options: dict[str, ScriptOption] = {}
    for match, end in zip(matches, ends, strict=True):
        name = match["name"]
        rest = match["rest"]
        if name in _OF_EVERY_SCRIPT:
            continue
        default = _DEFAULT.search(text[match.start() : end])
        choices = _CHOICES.match(rest)
        listed = []
        if choices is not None:
            listed = re.split(r"[,|]", choices["values"])
        value = None if default is None else _value(default["value"])
        way: Way = "option"
        kind = _kind_of(rest, value)
        if match["no"] is not None or _TAKES_VALUE.match(rest) is None:
            kind = "bool"
            way = "both" if match["negative"] == f"--no-{name}" else "switch"
            if match["no"] is not None:  # absl also reads --name=false
                way = "option"
            value = {"true": True, "True": True}.get(str(value), value == name)
        option = ScriptOption(
            name,
            value,
            tuple(map(_value, listed)),
            kind,
            way,
            is_required=_REQUIRED.search(text[match.start() : end]) is not None,
        )
        options.setdefault(name, option)
    return list(options.values())


def help_of(command: list[str]) -> Help:
    """Return what a program says for `--help`.

    Args:
        command: The words that start it.
    """
    words = [sys.executable if word == "python" else word for word in command]
    try:
        process = subprocess.Popen(
            [*words, "--help"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        return Help(problem=f"it cannot be started: {error.strerror}")
    with process:
        try:
            output, _ = process.communicate(timeout=HELP_S)
        except subprocess.TimeoutExpired:  # it ignores its options, and trains
            os.killpg(process.pid, signal.SIGKILL)
            return Help(problem="it does not know --help, and started to work")
    text = output.decode(errors="replace")
    if (missing := _NO_MODULE.search(text)) is not None:
        return Help(
            problem=f"it needs the library {missing[1].partition('.')[0]}, which is not installed"
        )
    if process.returncode not in (0, 1):  # the help of absl ends with 1
        return Help(problem=f"--help ended with exit code {process.returncode}")
    options = options_in_help(text)
    errors = _LAST_ERROR.findall(text)
    if not options and process.returncode and errors:
        return Help(problem=f"--help failed: {errors[-1]}")
    return Help(options)


def _kind_of(rest: str, default: Any) -> str | None:
    """Return the type that a help shows behind the name of an option."""
    match = re.match(r"[ =:\t<]*(FLOAT|INT|INTEGER|float|int|integer)\b", rest)
    if match is not None:
        return "float" if match[1].lower() == "float" else "int"
    return type(default).__name__ if isinstance(default, int | float) else None


def _value(text: str) -> Any:
    """Return the value of a text in a help: a number, or the text itself."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    if isinstance(value, int | float | str):
        return value
    return text
