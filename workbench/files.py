"""Write files atomically: a reader meanwhile gets the earlier content or the new one, never a part.

What must also survive a loss of power, as checkpoints must, is left to its own writer.
"""

from __future__ import annotations

import os
from pathlib import Path


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
