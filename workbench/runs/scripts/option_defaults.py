"""The defaults of options that a program takes from a configuration file.

An option without a default replaces what a file has: `if args.lr is not None: config["ppo"]["lr"] =
args.lr`. Or its default is read from the file: `default=config["lr"]`. The range of a search is
around that value.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from workbench.runs.scripts.configured_options import options_in_file
from workbench.runs.scripts.program_source import ProgramSource
from workbench.runs.scripts.script_options import ScriptOption, plain_name, walk
from workbench.runs.scripts.static_values import literal_of

_SUFFIXES = (".yaml", ".yml", ".json", ".toml", ".ini", ".cfg")


def with_defaults_of_files(
    program: ProgramSource, options: list[ScriptOption]
) -> list[ScriptOption]:
    """Return options with the numbers that the configuration files of a program have for them.

    Args:
        program: The program.
        options: Its declared options.
    """
    missing = {plain_name(option) for option in options if _lacks_number(option)}
    if not missing:
        return options
    texts = {
        node.value
        for node in walk(program.main.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    values = {
        option.name: option.default
        for file in _files_named(program, texts)
        for option in options_in_file(file)
        if type(option.default) in (int, float)
    }
    if not values:
        return options
    keys = dict(_keys_of_options(program, missing))
    return [
        replace(option, default=found)
        if _lacks_number(option)
        and (found := _value_of(keys.get(plain_name(option), plain_name(option)), values, texts))
        is not None
        else option
        for option in options
    ]


def _lacks_number(option: ScriptOption) -> bool:
    is_number = option.kind in ("int", "float") and not option.choices
    return is_number and option.default is None and not option.is_required


def _files_named(program: ProgramSource, texts: set[str]) -> Iterator[Path]:
    """Yield the configuration files that a program names, and that there are."""
    for text in sorted(texts):
        if text.endswith(_SUFFIXES) and "\n" not in text:
            for path in (Path(text), program.path.parent / text):
                if path.is_file():
                    yield path
                    break


def _keys_of_options(program: ProgramSource, names: set[str]) -> Iterator[tuple[str, str]]:
    """Yield options with the keys that they replace, as assignments and tables in a program say.

    `config["ppo"]["gamma"] = args.gamma`, and `{"gamma": ("ppo", "gamma")}`, are such.
    """
    for node in (node for module in program.modules for node in walk(module.tree)):
        match node:
            case ast.Assign(
                targets=[ast.Subscript() as target], value=ast.Attribute(attr=name)
            ) if name in names:
                yield name, ".".join(_keys_in(target))
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    name, path = literal_of(key) if key else None, literal_of(value)
                    parts = [path] if isinstance(path, str) else path
                    is_path = isinstance(parts, list | tuple) and bool(parts)
                    if name in names and is_path and all(isinstance(p, str) for p in parts):
                        yield str(name), ".".join(parts)


def _keys_in(node: ast.expr) -> list[str]:
    match node:
        case ast.Subscript(value=owner, slice=ast.Constant(value=str() as key)):
            return [*_keys_in(owner), key]
    return []


def _value_of(path: str, values: Mapping[str, Any], texts: set[str]) -> int | float | None:
    """Return the number at a path, or at its end in the only section that a program names."""
    found = {name: value for name, value in values.items() if f".{name}".endswith(f".{path}")}
    if len(found) > 1:
        found = {
            name: value
            for name, value in found.items()
            if name == path or name.removesuffix(f".{path}") in texts
        }
    return next(iter(found.values())) if len(found) == 1 else None
