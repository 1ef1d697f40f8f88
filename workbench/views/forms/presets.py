"""Presets: experiment files that come with the workbench, and experiment files of a folder."""

from __future__ import annotations

import functools
from pathlib import Path

from workbench.foundation.errors import UnknownNameError
from workbench.views.forms.protocol import NamedChoice

_FOLDER = "search_spaces"
_PACKAGE = Path(__file__).parents[2]
# In a wheel they are in the package, in a checkout next to it.
_SHIPPED = (_PACKAGE / _FOLDER, _PACKAGE.parent / _FOLDER)
_EXAMPLE = "digits"
_KINDS = ("model", "train", "command")
_OF_TIERS = ("tiers", "place")
_SUFFIXES = (".yaml", ".yml")
_MAX_BYTES = 65_536
_MAX_FILES = 100


def presets(folder: Path | None = None) -> dict[str, Path]:
    """Return the preset files by name.

    Args:
        folder: The user's folder, or None for the current folder. Its files and the files in its
            `search_spaces` take precedence.
    """
    here = Path.cwd() if folder is None else folder
    return _experiments(here, here / _FOLDER, *_SHIPPED)


def shipped() -> dict[str, Path]:
    """Return the experiment files that come with the workbench, by name."""
    return _experiments(*_SHIPPED)


def example(folder: Path | None = None) -> NamedChoice | None:
    """Return the shipped preset that takes least time, or None if the user has replaced it."""
    files, ours = presets(folder), shipped().get(_EXAMPLE)
    if ours is None or files[_EXAMPLE] != ours:
        return None
    return NamedChoice(name=_EXAMPLE, help=first_comment(ours))


def described(folder: Path | None = None) -> list[NamedChoice]:
    """Return the presets with their first comments. Arguments as of `presets`."""
    return [
        NamedChoice(name=name, help=first_comment(path)) for name, path in presets(folder).items()
    ]


def preset_path(name: str, folder: Path | None = None) -> Path:
    """Return the file of a preset.

    Raises:
        UnknownNameError: If there is no preset of that name.
    """
    files = presets(folder)
    if name not in files:
        raise UnknownNameError(f"there is no preset {name!r}", field="preset", allowed=list(files))
    return files[name]


def _experiments(*folders: Path) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for folder in folders:
        for path in _files(folder):
            if first_comment(path) is not None:
                files.setdefault(path.stem, path)
    return files


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES)[:_MAX_FILES]
    except OSError:
        return []


def first_comment(path: Path) -> str | None:
    """Return the first comment of an experiment file, or None if it is not an experiment."""
    kind, words = _read(path)
    if kind != "experiment":
        return None
    return words


def first_comment_of_tiers(path: Path) -> str | None:
    """Return the first comment of a file of tiers, or None if it is not one."""
    kind, words = _read(path)
    if kind != "tiers":
        return None
    return words


def _read(path: Path) -> tuple[str, str]:
    try:
        status = path.stat()
        return _read_help(path, status.st_mtime_ns, status.st_size)
    except OSError:
        return "", ""


@functools.lru_cache(maxsize=4 * _MAX_FILES)
def _read_help(path: Path, _changed_ns: int, _size_bytes: int) -> tuple[str, str]:
    # Called after every edit: reading a folder of long files would take too long.
    with path.open(encoding="utf-8", errors="replace") as file:
        lines = file.read(_MAX_BYTES).splitlines()
    keys = {line.partition(":")[0] for line in lines}
    is_experiment = "objectives" in keys and not keys.isdisjoint(_KINDS)
    if not is_experiment and not keys.issuperset(_OF_TIERS):
        return "", ""
    words = []
    for line in lines:
        if not line.startswith("#"):
            break
        words.append(line.lstrip("# ").strip())
    return "experiment" if is_experiment else "tiers", " ".join(words)
