"""Lists the images in folders of classes, on this machine or behind a URL, and their classes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from workbench.data.shards import RemoteFiles
from workbench.foundation.errors import DataError
from workbench.foundation.files import is_hidden, visible_below

ENDINGS = frozenset(
    {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
)
PARTS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val"),
    "test": ("test", "testing"),
}


class Listed(NamedTuple):
    """Image files and their classes.

    Attributes:
        class_names: The names of the classes.
        files: Paths, or names as they are shown.
        targets: The class of each file, int64.
        numbers: The number of each file among all files of a URL, or None for local files.
    """

    class_names: tuple[str, ...]
    files: np.ndarray
    targets: np.ndarray
    numbers: np.ndarray | None = None


def part_names(folder: Path) -> dict[str, str]:
    """Return the subfolders of a split made by hand, or nothing without a train folder.

    Raises:
        DataError: If there is one for validation only.
    """
    folder_of_part = {
        part: next((name for name in names if (folder / name).is_dir()), None)
        for part, names in PARTS.items()
    }
    return _named_parts(folder_of_part, str(folder))


def version_of(folder: Path, client_folders: bool) -> tuple[int, ...]:
    """Return a version of the folders of classes, which changes when files come or go.

    Raises:
        DataError: If it is not a folder.
    """
    _check_folder(folder)
    upper: Iterable[Path] = (folder / name for name in part_names(folder).values())
    if client_folders:
        upper = folder.iterdir()
    below = (parent.iterdir() for parent in (folder, *upper) if parent.is_dir())
    folders = [folder, *sorted(entry for entries in below for entry in entries if entry.is_dir())]
    return tuple(path.stat().st_mtime_ns for path in folders)


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise DataError(
            f"{folder} is not a folder", field="data.path", allowed="one folder for each class"
        )


def list_folder(folder: Path) -> Listed:
    """Return the images of a folder with a folder for each class.

    Raises:
        DataError: If there are fewer than two, or one is empty.
    """
    _check_folder(folder)
    class_folders = sorted(
        entry for entry in folder.iterdir() if entry.is_dir() and entry.name[0] != "."
    )
    if len(class_folders) < 2:
        raise DataError(
            f"{folder} holds {len(class_folders)} class folder(s)",
            field="data.path",
            allowed="at least two folders, one for each class",
        )
    files: list[str] = []
    targets: list[int] = []
    for number, class_folder in enumerate(class_folders):
        # There may be millions of files, each of which costs three times as much as a Path.
        images = sorted(
            os.path.join(place, name)
            for place, names in _visible_in(class_folder)
            for name in names
            if os.path.splitext(name)[1].lower() in ENDINGS
        )
        if not images:
            raise DataError(
                f"the class {class_folder.name} has no image",
                field="data.path",
                allowed=sorted(ENDINGS),
                next_step=f"Put images into {class_folder} or remove it.",
            )
        files += images
        targets += [number] * len(images)
    return Listed(
        tuple(entry.name for entry in class_folders),
        np.array(files),
        np.array(targets, dtype=np.int64),
    )


def _visible_in(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each folder below a folder with the names of its files, without hidden ones."""
    for place, folders, names in os.walk(folder):
        # In place, because `os.walk` then does not enter the folders that are removed.
        folders[:] = [name for name in folders if not is_hidden([name])]
        yield place, [name for name in names if not is_hidden([name])]


def list_clients(folder: Path) -> tuple[Listed, np.ndarray]:
    """Return what all clients hold, and the client of each file.

    A client need not have every class.

    Raises:
        DataError: If one has no image, or there are fewer than two classes.
    """
    _check_folder(folder)
    clients = sorted(entry for entry in folder.iterdir() if entry.is_dir() and entry.name[0] != ".")
    images = [
        (str(file), file.relative_to(client).parts[0], number)
        for number, client in enumerate(clients)
        for file in visible_below(client)
        if file.suffix.lower() in ENDINGS and file.parent != client
    ]
    names = tuple(sorted({name for _, name, _ in images}))
    without = sorted(set(range(len(clients))) - {number for *_, number in images})
    if without or len(names) < 2:
        problem = f"there are {len(names)} classes"
        if without:
            problem = f"{clients[without[0]].name} has no image"
        raise DataError(
            f"{folder} is not a folder of clients: {problem}",
            field="data.client_folders",
            allowed="CLIENT/CLASS/IMAGE, with at least two classes in all",
        )
    files, classes, owners = zip(*images, strict=True)
    targets = np.array([names.index(name) for name in classes], dtype=np.int64)
    return Listed(names, np.array(files), targets), np.array(owners)


def list_remote(files: RemoteFiles) -> dict[str, Listed]:
    """Return the images of a URL by part, or all as train if it has only folders of classes.

    Raises:
        DataError: If there are fewer than two classes.
    """
    names = [tuple(name.split("/")) for name in files.names]
    tops = {parts[0] for parts in names if len(parts) > 2}
    folder_of_part = {
        part: next((name for name in known if name in tops), None) for part, known in PARTS.items()
    }
    parts = _named_parts(folder_of_part, files.shown)
    if not parts:
        return {"train": _remote_part(files, names, ())}
    return {part: _remote_part(files, names, (top,)) for part, top in parts.items()}


def _named_parts(folder_of_part: dict[str, str | None], shown: str) -> dict[str, str]:
    """Return the existing parts of a split made by hand, or none without a train folder.

    Raises:
        DataError: If there is one for validation only.
    """
    if folder_of_part["train"] is None and folder_of_part["validation"] is not None:
        raise DataError(
            f"{shown} holds {folder_of_part['validation']} but no train folder",
            field="data.path",
            allowed="train next to validation, or one folder for each class",
        )
    return {
        part: name
        for part, name in folder_of_part.items()
        if name is not None and folder_of_part["train"] is not None
    }


def _remote_part(
    files: RemoteFiles, names: list[tuple[str, ...]], begin: tuple[str, ...]
) -> Listed:
    depth = len(begin)
    numbers = [
        number
        for number, parts in enumerate(names)
        if len(parts) > depth + 1 and parts[:depth] == begin and not is_hidden(parts[depth:])
    ]
    classes = tuple(sorted({names[number][depth] for number in numbers}))
    if len(classes) < 2:
        raise DataError(
            f"{'/'.join([files.shown, *begin])} holds images in {len(classes)} class folder(s)",
            field="data.path",
            allowed="at least two folders, one for each class",
        )
    by_name = {name: number for number, name in enumerate(classes)}
    return Listed(
        classes,
        np.array([f"{files.shown}/{files.names[number]}" for number in numbers]),
        np.array([by_name[names[number][depth]] for number in numbers], dtype=np.int64),
        np.array(numbers, dtype=np.int64),
    )
