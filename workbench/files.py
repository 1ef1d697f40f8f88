"""Write files and folders atomically, and name the encoding of text that cannot be read.

A reader meanwhile gets the earlier content or the new one, never a part. What must also survive a loss of
power, as checkpoints must, is left to its own writer.
"""

from __future__ import annotations

import codecs
import os
import shutil
import tempfile
from pathlib import Path

_MARKS = {codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16"}


def write_atomically(path: Path, text: str) -> None:
    """Write a text file as UTF-8, all or nothing.

    Args:
        path: The file; one that is there is replaced.
        text: Its content.

    Raises:
        OSError: If it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")  # two processes may write at once
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def copy_into(source: Path, folder: Path) -> None:
    """Copy what a folder contains into another one, all or nothing.

    Args:
        source: The folder to copy from.
        folder: The folder to copy into; it is made if it is missing. What it contains stays, but files of the
            same names are replaced.

    Raises:
        OSError: If it cannot be written.
    """
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Inside, as only there it is surely the same disk: a full one is noticed before anything shows.
        with tempfile.TemporaryDirectory(prefix=".", dir=folder) as beside:
            found = [(path, path.relative_to(source)) for path in sorted(source.rglob("*"))]
            for path, name in found:
                Path(beside, name).mkdir() if path.is_dir() else shutil.copy2(path, Path(beside, name))
            for path, name in found:
                if path.is_dir():
                    (folder / name).mkdir(exist_ok=True)
                else:
                    Path(beside, name).replace(folder / name)
    except BaseException:
        if made:
            shutil.rmtree(made[-1], ignore_errors=True)
        raise


def encoding_in_words(error: UnicodeDecodeError) -> str:
    """Return what a text that is not UTF-8 seems to be instead.

    Example:
        >>> from workbench.files import encoding_in_words
        >>> try:
        ...     "größe".encode("latin-1").decode()
        ... except UnicodeDecodeError as error:
        ...     encoding_in_words(error)
        'it seems to be Latin-1 (Windows-1252)'
    """
    for mark, name in _MARKS.items():
        if error.object.startswith(mark):
            return f"it seems to be {name}"
    return "it is not text" if b"\0" in error.object else "it seems to be Latin-1 (Windows-1252)"
