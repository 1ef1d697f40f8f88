"""Folders with a folder of images, or of texts, for each class, read into memory at once.

`image_folders` and `images` read folders that do not fit into memory, for experiments.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from workbench.data.image_folders import ENDINGS, list_folder, part_names
from workbench.data.table_files import TABLE_ENDINGS
from workbench.data.visible_files import visible_below
from workbench.foundation.errors import DataError

IMAGE_SIZE = 64
"""Height and width that images are resized to, in pixels."""
_TEXT = ".txt"


def is_sample_folder(path: str | Path) -> bool:
    """Return whether a path is a folder with folders of images or texts, and no table."""
    folder = Path(path).expanduser()
    if not folder.is_dir():
        return False
    entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    tables = {ending for ending in TABLE_ENDINGS if ending != _TEXT}
    if any(entry.suffix.lower() in tables for entry in entries if entry.is_file()):
        return False
    return any(
        file.suffix.lower() in (*ENDINGS, _TEXT)
        for entry in entries
        if entry.is_dir()
        for file in visible_below(entry)
    )


def are_image_files(given: Any) -> bool:
    """Return whether samples are the path of an image file or of a folder, or several of them."""
    paths = [given] if isinstance(given, str | Path) else given
    if not isinstance(paths, Sequence) or not paths:
        return False
    return all(isinstance(path, str | Path) and _is_image_path(Path(path)) for path in paths)


def _is_image_path(path: Path) -> bool:
    return path.suffix.lower() in ENDINGS or path.is_dir()


def read_sample_folder(path: str | Path) -> tuple[np.ndarray, list[str], bool]:
    """Return images or texts, the class of each, and whether they are images.

    Args:
        path: A folder with a folder for each class.

    Raises:
        DataError: If there are fewer than two classes, or a file cannot be read.
    """
    folder = Path(path).expanduser()
    if parts := part_names(folder):
        names = list(parts.values())
        step = f"Give {folder / names[0]}"
        if "test" in parts:
            step += f", and {folder / parts['test']} as the test samples (--test)"
        raise DataError(
            f"{folder} has the parts {' and '.join(names)}, which are no classes",
            field="data",
            allowed="a folder for each class",
            next_step=f"{step}.",
        )
    texts = [file for file in visible_below(folder, f"*{_TEXT}") if file.parent != folder]
    if texts and not any(file.suffix.lower() in ENDINGS for file in visible_below(folder)):
        classes = [file.relative_to(folder).parts[0] for file in texts]
        return np.array([_text_in(file) for file in texts], dtype=object), classes, False
    listed = list_folder(folder)
    classes = [listed.class_names[number] for number in listed.targets]
    return read_images(listed.files.tolist()), classes, True


def read_images(files: Sequence[str]) -> np.ndarray:
    """Return the pixels of image files, uint8, (images, height, width, 3).

    Args:
        files: Image files, or folders of them.

    Raises:
        DataError: If one cannot be read.
    """
    from workbench.data.images import decode_image

    found: list[str] = []
    for file in files:
        path = Path(file).expanduser()
        if path.is_dir():
            found += [str(one) for one in visible_below(path) if one.suffix.lower() in ENDINGS]
        else:
            found.append(str(path))
    pixels = [decode_image(file, IMAGE_SIZE, 3).transpose(1, 2, 0) for file in found]
    if not pixels:
        raise DataError("there are no images", field="data", allowed=sorted(ENDINGS))
    return np.stack(pixels)


def _text_in(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        return file.read_text(encoding="cp1252", errors="replace")
