"""The list of a bundle's files with their SHA-256, in `configuration.json`.

A bundle is written once, as a whole. The list proves that the weights belong to the values next to
them. It also says which files another export into the same folder replaces.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.foundation.errors import RunError
from workbench.foundation.files import finish_copy, sha256_of

CONFIGURATION = "configuration.json"
CARD = "card.json"
"""The card of a model. It lists its own files, and timings are added to it later."""
PREDICT = "predict.py"
_FILES = "files"
_EXPORT_AGAIN = "Export the run again, with --force into this folder."


def add_manifest(folder: Path) -> None:
    """List all files of a bundle that is being written in its configuration.

    Args:
        folder: The bundle. Without a configuration nothing is done.
    """
    path = folder / CONFIGURATION
    if not path.exists():
        return
    configuration = json.loads(path.read_text(encoding="utf-8"))
    names = sorted(
        file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()
    )
    # The configuration cannot contain its own hash, and the card changes later.
    files: dict[str, str | None] = {}
    for name in names:
        if name == CARD:
            files[name] = None
        elif name != CONFIGURATION:
            files[name] = sha256_of(folder / name)
    configuration[_FILES] = files
    path.write_text(json.dumps(configuration, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def files_of_bundle(folder: Path) -> list[str]:
    """Return the files of the bundle in a folder, by relative path. Empty if there is no bundle."""
    try:
        files = json.loads((folder / CONFIGURATION).read_text(encoding="utf-8"))[_FILES]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []
    if not isinstance(files, dict):
        return []
    return [CONFIGURATION, *(name for name in files if _is_inside(name))]


def read_configuration(folder: Path) -> dict[str, Any]:
    """Read the configuration of a bundle, after completing an export that was interrupted.

    Args:
        folder: The bundle.

    Raises:
        RunError: If the folder is not a bundle, or an interrupted export cannot be completed.
    """
    complete_export(folder)
    try:
        configuration = json.loads((folder / CONFIGURATION).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise RunError(
            f"{folder} is not a bundle", next_step="Write one with: run.export(folder)"
        ) from error
    if not isinstance(configuration, dict):
        raise RunError(f"{folder} is not a bundle", next_step="Write one with: run.export(folder)")
    return configuration


def check_file(folder: Path, name: str) -> None:
    """Reject a file that was not exported with the configuration next to it.

    Args:
        folder: The bundle.
        name: The file, by relative path.

    Raises:
        RunError: If the configuration does not list the file, or lists another content.
    """
    files = read_configuration(folder).get(_FILES)
    if not isinstance(files, dict):
        files = {}
    check_listed(folder, CONFIGURATION, files, name)


def check_listed(folder: Path, listed_in: str, files: Mapping[str, Any], name: str) -> None:
    """Reject a file that a list of files describes differently, or not at all.

    Args:
        folder: The folder of both.
        listed_in: The file that holds the list.
        files: The list: SHA-256 by name.
        name: The file, by relative path.

    Raises:
        RunError: If it is another file, is not listed, or cannot be read.
    """
    expected = files.get(name)
    if not isinstance(expected, str):
        raise RunError(
            f"{folder / listed_in} does not contain the SHA-256 of {name}, so the two may not"
            " belong together",
            field=f"files.{name}",
            next_step=_EXPORT_AGAIN,
        )
    try:
        actual = sha256_of(folder / name)
    except OSError as error:
        raise RunError(
            f"{folder / name} cannot be read: {error.strerror}", next_step=_EXPORT_AGAIN
        ) from error
    if actual != expected:
        raise RunError(
            f"{folder / name} is not the file that {listed_in} describes: its SHA-256 differs",
            field=f"files.{name}",
            next_step=f"Copy the bundle again. Or: {_EXPORT_AGAIN[0].lower()}{_EXPORT_AGAIN[1:]}",
        )


def complete_export(folder: Path) -> None:
    """Complete an export into a folder that was interrupted while it replaced files.

    Args:
        folder: The bundle.

    Raises:
        RunError: If the folder cannot be written.
    """
    try:
        finish_copy(folder)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise RunError(
            f"an export into {folder} was interrupted, and cannot be completed: {reason}",
            next_step=_EXPORT_AGAIN,
        ) from error


def _is_inside(name: str) -> bool:
    path = Path(name)
    return not path.is_absolute() and ".." not in path.parts
