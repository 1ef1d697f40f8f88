"""Write files atomically, and name the encoding of text that cannot be read.

A reader meanwhile gets the earlier content or the new one, never a part. What must also survive a loss of
power, as checkpoints must, is left to its own writer.
"""

from __future__ import annotations

import codecs
import os
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
