"""Files below a folder, without those that tools hide, such as .ipynb_checkpoints or ._cat.jpg."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def is_hidden(names: Iterable[str]) -> bool:
    """Return whether a file is hidden.

    Args:
        names: The names of the folders that it is in, from the one that a user named, and its own.

    Example:
        >>> is_hidden(["cats", ".ipynb_checkpoints", "tom-checkpoint.png"])
        True
        >>> is_hidden(["cats", "tom.png"])
        False
    """
    return any(name.startswith(".") for name in names)


def visible_below(folder: Path, pattern: str = "*") -> list[Path]:
    """Return the files below a folder whose names match a pattern, sorted, without hidden ones.

    Args:
        folder: The folder, which may be hidden itself.
        pattern: A pattern of `Path.rglob`.
    """
    return sorted(
        file
        for file in folder.rglob(pattern)
        if file.is_file() and not is_hidden(file.relative_to(folder).parts)
    )
