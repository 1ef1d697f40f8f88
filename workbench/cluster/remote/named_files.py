"""The files of a folder that code names as text: scripts that it starts, and data that they read.

Only texts are compared with the disk; nothing is executed. A path that is put together while the
code runs is not found.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from workbench.cluster.remote.code_dependencies import NOT_CODE, files_of
from workbench.cluster.remote.parsed_code import parse_code

WORD = re.compile(r"[^\s\"'=,;:(){}\[\]<>|&$`]+")
_READ_AS_TEXT = frozenset({".sh", ".bash", ".mk", ".yaml", ".yml", ".toml", ".json"})
BUILD_FILES = ("GNUmakefile", "makefile", "Makefile", "justfile", "Justfile", "Taskfile.yml")
"""What programs such as make read without that their command names it."""
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
    """Find the files and folders that options and code name, and what scripts among them name and
    import.

    Args:
        values: Values of options and parameters.
        code: The files of the code, by their name.
        directory: The folder to which names are relative.
        max_bytes: The limit on all files together.
    """
    found = NamedFiles()
    num_bytes = 0
    resolved: dict[Path, Path] = {}

    def is_new(path: Path) -> bool:
        if path not in resolved:
            resolved[path] = path.resolve()
        return resolved[path] not in seen

    seen = {path.resolve() for path in code.values()}
    names = _Names(directory)
    waiting = [
        *_texts_in(list(values)),
        *(text for path in code.values() for text in _texts_of(path)),
    ]
    while waiting:
        for name in names.untried_in(waiting.pop()):
            for paths in _groups(directory / name, directory):
                new = [path for path in paths if is_new(path)]
                size = sum(path.stat().st_size for path in new)
                if num_bytes + size > max_bytes or len(paths) > _MAX_FILES:
                    found.too_large.append(name)
                    continue
                num_bytes += size
                for path in new:
                    seen.add(resolved[path])
                    found.files[path.relative_to(directory).as_posix()] = path
                    waiting += _texts_of(path)
    return found


class _Names:
    """The words in texts that may be paths below a folder, and that have not been tried before."""

    def __init__(self, directory: Path) -> None:
        try:
            # In any case of letters, as some file systems find them.
            self._top_names = {name.casefold() for name in os.listdir(directory)}
        except OSError:
            self._top_names = set()
        self._words: set[str] = set()
        self._tried: set[str] = set()

    def untried_in(self, text: str) -> list[str]:
        """Return the relative paths that a text may be, or contain."""
        untried: list[str] = []
        for word in {text.strip(), *WORD.findall(text)} - self._words:
            self._words.add(word)
            name = self._path_of(word)
            if name is not None and name not in self._tried:
                self._tried.add(name)
                untried.append(name)
        return untried

    def _path_of(self, word: str) -> str | None:
        if not 0 < len(word) <= _MAX_NAME_CHARS or "\0" in word:
            return None
        path = Path(word)
        if (
            not path.parts
            or path.is_absolute()
            or ".." in path.parts
            or path.parts[0].startswith(("~", "."))
        ):
            return None
        is_there = path.parts[0].casefold() in self._top_names
        return path.as_posix() if is_there and NOT_CODE.isdisjoint(path.parts) else None


def _groups(path: Path, directory: Path) -> list[list[Path]]:
    """Return what belongs to a name: its file and, for a script, the modules that it imports.

    Or a folder.
    """
    try:
        if path.is_file():
            modules = (
                files_of(parse_code(path).imports, [str(path.parent)])
                if path.suffix == ".py"
                else {}
            )
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
        is_text = path.suffix in {".py", *_READ_AS_TEXT} or path.name in BUILD_FILES
        if not is_text or path.stat().st_size > _MAX_TEXT_BYTES:
            return []
        if path.suffix == ".py":
            return list(parse_code(path).texts)
        return [path.read_text(encoding="utf-8")]
    except (OSError, ValueError):
        return []


def _texts_in(value: object) -> list[str]:
    """Return the texts in a value, at any depth."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return _texts_in(list(value.values()))
    return (
        [text for one in value for text in _texts_in(one)]
        if isinstance(value, list | tuple)
        else []
    )
