"""Writes files and folders atomically, hashes and lists them, and guesses encodings of bad text.

A reader gets either the earlier or the new content, never a part of it. Checkpoints, which must
also survive a loss of power, have their own writer. Files that tools hide are not listed, such as
.ipynb_checkpoints or ._cat.jpg.
"""

from __future__ import annotations

import codecs
import contextlib
import glob
import hashlib
import json
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path

_MARKS = {codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16"}
_UNFINISHED = ".unfinished-"
"""The start of the names of unfinished copies. The machine and the number of the process follow."""
_DECIDED = ".replacing"
"""The folder of a complete copy, whose files only have to be renamed."""
_CONTENT = "content"
_REMOVED = "removed.json"


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file, all or nothing.

    Args:
        path: The file. An existing one is replaced.
        content: Its content. A text is written as UTF-8.

    Raises:
        OSError: If it cannot be written.
    """
    if isinstance(content, str):
        content = content.encode()
    # Processes, and threads of one process, may write the same file at once.
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def copy_into(source: Path, folder: Path, *, remove: Iterable[str] = ()) -> None:
    """Copy the content of a folder into another one, all or nothing, even if the process is killed.

    Everything is first copied next to the existing files. Then a single rename marks the copy as
    complete. After that only names change. If that is interrupted, `finish_copy` completes it.

    Args:
        source: The folder to copy from.
        folder: The folder to copy into, made if it is missing. Its files stay, but files of the
            same names are replaced.
        remove: Files to remove from the folder at the same time, by relative path.

    Raises:
        OSError: If it cannot be written.
    """
    new_folders = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        finish_copy(folder)
        _remove_abandoned(folder)
        # Inside the folder, which is certainly on the same disk. So a full disk is noticed before
        # anything changes.
        prefix = f"{_UNFINISHED}{socket.gethostname()}-{os.getpid()}-"
        with tempfile.TemporaryDirectory(
            prefix=prefix, dir=folder, ignore_cleanup_errors=True
        ) as name:
            prepared = Path(name, "prepared")
            (prepared / _CONTENT).mkdir(parents=True)
            for path in sorted(source.rglob("*")):
                target = prepared / _CONTENT / path.relative_to(source)
                if path.is_dir():
                    target.mkdir()
                else:
                    shutil.copy2(path, target)
            (prepared / _REMOVED).write_text(json.dumps(sorted(remove)), encoding="utf-8")
            prepared.rename(folder / _DECIDED)
        finish_copy(folder)
    except BaseException:
        if new_folders:
            shutil.rmtree(new_folders[-1], ignore_errors=True)
        raise


def finish_copy(folder: Path) -> bool:
    """Complete a copy into a folder that was interrupted after it had been decided.

    Every reader of a folder that `copy_into` writes calls this first, and several may do so at
    once.

    Args:
        folder: The folder. It may be missing.

    Returns:
        Whether there was something to complete.

    Raises:
        OSError: If files cannot be renamed there.
    """
    decided = folder / _DECIDED
    try:
        removed: list[str] = json.loads((decided / _REMOVED).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return False
    content = decided / _CONTENT
    for path in sorted(content.rglob("*")):
        target = folder / path.relative_to(content)
        # Another process may have renamed the file already.
        with contextlib.suppress(FileNotFoundError):
            if path.is_dir():
                target.mkdir(exist_ok=True)
            else:
                path.replace(target)
    for name in removed:
        (folder / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # it holds something else, or is gone
            (folder / name).parent.rmdir()
    shutil.rmtree(decided, ignore_errors=True)
    return True


def is_unfinished(name: str) -> bool:
    """Return whether a name in a folder belongs to an unfinished copy of `copy_into`."""
    return name.startswith((_UNFINISHED, _DECIDED))


def _remove_abandoned(folder: Path) -> None:
    """Remove what processes of this machine left that were killed while they copied."""
    for path in folder.glob(f"{_UNFINISHED}{glob.escape(socket.gethostname())}-*-*"):
        pid = path.name.rsplit("-", 2)[1]
        if pid.isdigit() and int(pid) != os.getpid() and not _is_running(int(pid)):
            shutil.rmtree(path, ignore_errors=True)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as opened:
        digest = hashlib.sha256()
        while chunk := opened.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def encoding_in_words(error: UnicodeDecodeError) -> str:
    """Return which encoding a text that is not UTF-8 seems to have.

    Example:
        >>> from workbench.foundation.files import encoding_in_words
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
