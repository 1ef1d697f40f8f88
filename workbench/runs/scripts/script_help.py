"""Options of scripts that declare none with argparse or click.

Fire, hydra, and what `--help` prints.

Signatures and configuration files are read. Only where neither is there, and the source looks as if
it took options, the script is started with `--help`. Nothing of it is patched.
"""

from __future__ import annotations

import ast
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from workbench.experiment.yaml_file import read_yaml_file
from workbench.foundation.errors import WorkbenchError
from workbench.runs.scripts.script_options import ScriptOption, called_name, literal_of

Style = Literal["options", "fire", "hydra"]
"""How a script takes its options: --name=value, the same with values of Python, or name=value."""
HELP_S = 60.0
_MISSING = "???"
"""What hydra's configurations hold for a value that must be given."""
_OF_EVERY_SCRIPT = frozenset(
    ("help", "version", "install-completion", "show-completion", "helpfull", "helpshort")
)
_TAKES_OPTIONS = re.compile(
    r"parse_args|parse_known|get_args|\bargv\b|parser\b|typer|tyro|docopt|absl|simple_parsing|CLI\b|\bcli\b|click"
)
_OPTION = re.compile(
    r"^[\s│|*]*(?:-\w(?: [A-Z_]+)?,\s*)?--(?P<no>\[no\])?(?P<name>[A-Za-z][\w.-]*)"
    r"(?:(?:,|[ /]+)\s*--no-[\w-]+)?(?P<rest>(?:[ =:\t][^\n]*)?)$",
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


def options_elsewhere(path: Path, source: str) -> tuple[list[ScriptOption], Style]:
    """Return the options of a script that its source does not declare with argparse or click.

    Args:
        path: The script.
        source: Its source, which is Python.

    Returns:
        The options in their order, none where none are found, and how they are passed.
    """
    tree = ast.parse(source)
    if options := list(_of_fire(tree)):
        return options, "fire"
    if (config := _config_of_hydra(path, tree)) is not None:
        return list(_of_mapping(config)), "hydra"
    if not _TAKES_OPTIONS.search(source):
        return [], "options"
    return _of_help(path), "options"


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
        option = ScriptOption(
            name,
            default=None if default is None else _value(default["value"]),
            choices=tuple(map(_value, listed)),
            is_flag=match["no"] is not None or _TAKES_VALUE.match(rest) is None,
            is_required=_REQUIRED.search(text[match.start() : end]) is not None,
        )
        options.setdefault(name, option)
    return list(options.values())


def _of_help(path: Path) -> list[ScriptOption]:
    try:
        process = subprocess.Popen(
            [sys.executable, str(path), "--help"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError:
        return []
    with process:
        try:
            text, _ = process.communicate(timeout=HELP_S)
        except subprocess.TimeoutExpired:  # it ignores its options, and trains
            os.killpg(process.pid, signal.SIGKILL)
            return []
    if process.returncode not in (0, 1):  # the help of absl ends with 1
        return []
    return options_in_help(text.decode(errors="replace"))


def _of_fire(tree: ast.Module) -> Iterator[ScriptOption]:
    """Yield the parameters of the function that is passed to fire."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        if called_name(call) != "Fire" or not call.args or not isinstance(call.args[0], ast.Name):
            continue
        function = functions.get(call.args[0].id)
        if function is None:
            continue
        arguments = [*function.args.posonlyargs, *function.args.args]
        missing = [None] * (len(arguments) - len(function.args.defaults))
        given = [
            *zip(arguments, [*missing, *function.args.defaults], strict=True),
            *zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True),
        ]
        for argument, default in given:
            value = literal_of(default)
            kind = argument.annotation.id if isinstance(argument.annotation, ast.Name) else None
            yield ScriptOption(
                argument.arg,
                default=value,
                is_flag=isinstance(value, bool),
                kind=kind,
                is_required=default is None,
            )


def _config_of_hydra(path: Path, tree: ast.Module) -> Mapping[str, Any] | None:
    """Return the configuration of `hydra.main`, including its groups, or None."""
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        is_main = isinstance(call.func, ast.Attribute) and call.func.attr == "main"
        if not is_main or getattr(call.func.value, "id", "") != "hydra":  # type: ignore[union-attr]
            continue
        given = {keyword.arg: literal_of(keyword.value) for keyword in call.keywords}
        folder = path.parent / str(given.get("config_path") or ".")
        name = str(given.get("config_name") or "config").removesuffix(".yaml")
        try:
            return _with_groups(folder, read_yaml_file(folder / f"{name}.yaml"))
        except WorkbenchError:
            return None
    return None


def _with_groups(folder: Path, config: dict[str, Any]) -> Mapping[str, Any]:
    listed = config.pop("defaults", [])
    groups: dict[str, Any] = {}
    for group, chosen in (
        item for entry in listed if isinstance(entry, dict) for item in entry.items()
    ):
        try:
            groups[group] = read_yaml_file(folder / group / f"{chosen}.yaml")
        except WorkbenchError:  # of hydra itself, or of another package
            continue
    return {**groups, **config}


def _of_mapping(config: Mapping[str, Any], prefix: str = "") -> Iterator[ScriptOption]:
    for name, value in config.items():
        if isinstance(value, Mapping):
            if name != "hydra":
                yield from _of_mapping(value, f"{prefix}{name}.")
        elif re.fullmatch(r"\w+", str(name)) and not str(value).startswith("${"):
            is_missing = value == _MISSING
            yield ScriptOption(
                f"{prefix}{name}",
                default=None if is_missing else value,
                is_flag=isinstance(value, bool),
                is_required=is_missing,
            )


def _value(text: str) -> Any:
    """Return the value of a text in a help: a number, or the text itself."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    if isinstance(value, int | float | str):
        return value
    return text
