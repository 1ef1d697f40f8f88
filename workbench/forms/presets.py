"""Presets: the experiment files that come with the workbench, and those of a folder."""

from __future__ import annotations

import functools
from pathlib import Path

from workbench.errors import UnknownNameError
from workbench.forms.protocol import NamedChoice

_FOLDER = "search_spaces"
_PACKAGE = Path(__file__).parents[1]
_SUFFIXES = (".yaml", ".yml")
_MAX_BYTES = 65_536
_MAX_FILES = 100


def presets(folder: Path | None = None) -> dict[str, Path]:
    """Return the preset files by name.

    Args:
        folder: The user's folder: its files and those of its `search_spaces` take precedence; None for the
            current folder.
    """
    here = Path.cwd() if folder is None else folder
    found: dict[str, Path] = {}
    # In a wheel they are in the package, in a checkout next to it.
    for place in (here, here / _FOLDER, _PACKAGE / _FOLDER, _PACKAGE.parent / _FOLDER):
        for path in _files(place):
            if _help(path) is not None:
                found.setdefault(path.stem, path)
    return found


def described(folder: Path | None = None) -> list[NamedChoice]:
    """Return the presets with their first comments; arguments as of `presets`."""
    return [NamedChoice(name=name, help=_help(path)) for name, path in presets(folder).items()]


def preset_path(name: str, folder: Path | None = None) -> Path:
    """Return the file of a preset.

    Raises:
        UnknownNameError: If there is no preset of that name.
    """
    found = presets(folder)
    if name not in found:
        raise UnknownNameError(f"there is no preset {name!r}", field="preset", allowed=list(found))
    return found[name]


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES)[:_MAX_FILES]
    except OSError:
        return []


def _help(path: Path) -> str | None:
    """Return the first comment of an experiment file; None if it is not an experiment."""
    try:
        found = path.stat()
        return _read_help(path, found.st_mtime_ns, found.st_size)
    except OSError:
        return None


@functools.lru_cache(maxsize=4 * _MAX_FILES)
def _read_help(path: Path, _changed_ns: int, _size_bytes: int) -> str | None:
    # Called after every edit: reading a folder of long files would take too long.
    with path.open(encoding="utf-8", errors="replace") as file:
        lines = file.read(_MAX_BYTES).splitlines()
    keys = {line.partition(":")[0] for line in lines}
    if "objectives" not in keys or not keys & {"model", "train"}:
        return None
    words = []
    for line in lines:
        if not line.startswith("#"):
            break
        words.append(line.lstrip("# ").strip())
    return " ".join(words)
