"""The files of a folder that code names as text: scripts that it starts, and data that they read.

Only texts are compared with the disk; nothing is executed. A path that is put together while the code runs is
not found.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from workbench.remote.code_dependencies import NOT_CODE, files_of, imported_by

_WORD = re.compile(r"[^\s\"'=,;:(){}\[\]<>|&$`]+")
_READ_AS_TEXT = frozenset({".sh", ".yaml", ".yml", ".toml", ".json"})
_MAX_TEXT_BYTES = 2**20
_MAX_NAME_CHARS = 255
_MAX_FILES = 10_000


@dataclass
class NamedFiles:
    """What texts name below a folder."""

    files: dict[str, Path] = field(default_factory=dict)
    """The path of each file to copy, by its name relative to the folder."""
    too_large: list[str] = field(default_factory=list)
    """What was named but does not fit within the limit."""


def find_named_files(
    values: Iterable[object], code: Mapping[str, Path], directory: Path, *, max_bytes: int
) -> NamedFiles:
    """Find the files and folders that options and code name, and what scripts among them name and import.

    Args:
        values: Values of options and parameters.
        code: The files of the code, by their name.
        directory: The folder to which names are relative.
        max_bytes: The limit on all files together.
    """
    found = NamedFiles()
    num_bytes = 0
    seen = {path.resolve() for path in code.values()}
    waiting = [*_texts_in(list(values)), *(text for path in code.values() for text in _texts_of(path))]
    tried: set[str] = set()
    while waiting:
        for name in [name for name in _candidates(waiting.pop()) if name not in tried]:
            tried.add(name)
            for paths in _groups(directory / name, directory):
                new = [path for path in paths if path.resolve() not in seen]
                size = sum(path.stat().st_size for path in new)
                if num_bytes + size > max_bytes or len(paths) > _MAX_FILES:
                    found.too_large.append(name)
                    continue
                num_bytes += size
                for path in new:
                    seen.add(path.resolve())
                    found.files[path.relative_to(directory).as_posix()] = path
                    waiting += _texts_of(path)
    return found


def _candidates(text: str) -> Iterator[str]:
    """Yield the relative paths that a text may be, or contain."""
    for word in {text.strip(), *_WORD.findall(text)}:
        if not 0 < len(word) <= _MAX_NAME_CHARS or "\0" in word:
            continue
        path = Path(word)
        is_below = path.parts and not path.is_absolute() and ".." not in path.parts
        if is_below and not path.parts[0].startswith(("~", ".")) and NOT_CODE.isdisjoint(path.parts):
            yield path.as_posix()


def _groups(path: Path, directory: Path) -> list[list[Path]]:
    """Return what belongs to a name: its file and, for a script, the modules that it imports; or a folder."""
    try:
        if path.is_file():
            modules = files_of(imported_by(path), [str(path.parent)]) if path.suffix == ".py" else {}
            return [[path, *(one for one in modules.values() if one.is_relative_to(directory))]]
        below = sorted(itertools.islice(path.rglob("*"), _MAX_FILES + 1)) if path.is_dir() else []
    except OSError:
        return []
    if len(below) > _MAX_FILES:
        return [below]
    return [[one for one in below if one.is_file() and NOT_CODE.isdisjoint(one.parts)]]


def _texts_of(path: Path) -> list[str]:
    """Return the texts in a file of code or configuration, without the docstrings."""
    try:
        if path.suffix not in {".py", *_READ_AS_TEXT} or path.stat().st_size > _MAX_TEXT_BYTES:
            return []
        content = path.read_text(encoding="utf-8")
        if path.suffix != ".py":
            return [content]
        tree = ast.parse(content)
    except (OSError, SyntaxError, ValueError):
        return []
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        node.value for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
    ]  # fmt: skip


def _texts_in(value: object) -> list[str]:
    """Return the texts in a value, at any depth."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return _texts_in(list(value.values()))
    return [text for one in value for text in _texts_in(one)] if isinstance(value, list | tuple) else []
