"""A folder of a person's code as one archive, and back: how code comes to machines that do not have it.

The same files give the same bytes, so an archive is named by its hash. What belongs to a machine or to a
version control system stays at home, and so does what git is told to ignore. An archive is unpacked once per
machine, into a folder of this person's own that is named by the hash.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import os
import shutil
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import filelock
import platformdirs

from workbench.errors import RunError

MOST_BYTES = 100 * 2**20
"""What Ray takes as one package, and what may lie unpacked."""
KEPT_S = 30 * 86400.0
_LEFT_OUT = frozenset({
    ".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", ".ipynb_checkpoints",
    ".pytest_cache", ".ruff_cache", ".mypy_cache", ".hypothesis", ".tox", ".workbench",
})  # fmt: skip
_GIT_TIMEOUT_S = 20.0
_LONG_AGO = (1980, 1, 1, 0, 0, 0)
_MIB = 2**20


@dataclass(frozen=True)
class CodeArchive:
    """Files as one archive."""

    content: bytes
    num_files: int
    identity: str
    """The SHA-256 of the names and the bytes of its files, however they are compressed."""


def pack(
    folder: Path, *, also: Iterable[str] = (), added: Mapping[str, bytes] | None = None, whole: bool = False,
    without: Callable[[Path, Sequence[str]], Collection[str]] = lambda _folder, _names: (),
) -> CodeArchive:  # fmt: skip
    """Put the files of a folder into an archive.

    Args:
        folder: The folder.
        also: Files and folders in it, by relative name, that come along even where git ignores them.
        added: Files that are not in the folder, by the name that they get in the archive.
        whole: Leave nothing at home but what Python compiled.
        without: Says which files of the folder stay at home, besides; not asked with `whole`.

    Raises:
        RunError: If that is more than Ray takes, or a file cannot be read.
    """
    if whole:
        own = set(_below(folder, "", frozenset({"__pycache__"})))
    else:
        found = _names(folder)
        own = {*found} - {*without(folder, found)}
    names = sorted({*own, *(name for item in also for name in _below(folder, item))})
    _refuse_too_much(folder, names)
    content = io.BytesIO()
    digest = hashlib.sha256()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in itertools.chain(_contents(folder, names), sorted((added or {}).items())):
            digest.update(f"{name}\0{len(data)}\0".encode(errors="surrogateescape"))
            digest.update(data)
            entry = zipfile.ZipInfo(name, _LONG_AGO)
            entry.compress_type = zipfile.ZIP_DEFLATED
            runs = name not in (added or {}) and os.access(folder / name, os.X_OK)
            entry.external_attr = (0o755 if runs else 0o644) << 16
            archive.writestr(entry, data)
    return CodeArchive(content.getvalue(), len(names) + len(added or {}), digest.hexdigest())


def unpack(content: bytes, folder: Path) -> None:
    """Put the files of an archive into a folder that does not exist yet: all of them, or no folder.

    Args:
        content: The bytes of an archive.
        folder: Where they are to lie.

    Raises:
        RunError: If it is no such archive.
    """
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    unfinished = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=folder.parent))
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for name in archive.namelist():
                path = PurePosixPath(name)
                if path.is_absolute() or ".." in path.parts:
                    raise RunError(f"an archive of code holds {name!r}, which lies outside of it")
            archive.extractall(unfinished)
            for entry in archive.infolist():
                if entry.external_attr >> 16 & 0o100:
                    (unfinished / entry.filename).chmod(0o755)
        with contextlib.suppress(OSError):  # another process was quicker: the same files are there
            unfinished.rename(folder)
    except zipfile.BadZipFile as error:
        raise RunError("an archive of code is damaged", next_step="Submit the run again.") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def unpacked(sha256: str, fetch: Callable[[], bytes]) -> Path:
    """Return the folder on this machine that holds an archive's files; it is filled when it is missing.

    Args:
        sha256: The hash of the archive's bytes.
        fetch: Gives the archive's bytes; called only if they are needed.

    Raises:
        RunError: If what was fetched is another archive.
    """
    folder = Path(platformdirs.user_cache_dir("workbench", appauthor=False)) / "code" / sha256
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with filelock.FileLock(folder.parent / f"{sha256}.lock"):  # one process of this machine fetches it
            if not folder.is_dir():
                content = fetch()
                if hashlib.sha256(content).hexdigest() != sha256:
                    raise RunError("the code of the run is not what was stored", next_step="Submit it again.")
                _forget_the_old(folder.parent)
                unpack(content, folder)
    with contextlib.suppress(OSError):
        os.utime(folder)
    return folder


def _forget_the_old(place: Path) -> None:
    """Remove what no process of this machine has entered for long."""
    for item in place.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - item.stat().st_mtime > KEPT_S:
                shutil.rmtree(item) if item.is_dir() else item.unlink()


def _names(folder: Path) -> list[str]:
    """Return the files that belong to somebody's work, by relative name with slashes."""
    listed = _names_by_git(folder)
    if listed is None:
        listed = _below(folder, "")
    return [name for name in listed if _LEFT_OUT.isdisjoint(PurePosixPath(name).parts)]


def _names_by_git(folder: Path) -> list[str] | None:
    """Return what git would not ignore; None where there is no repository, or no git."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        found = subprocess.run(command, cwd=folder, capture_output=True, timeout=_GIT_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if found.returncode != 0:
        return None
    names = [os.fsdecode(name) for name in found.stdout.split(b"\0") if name]
    if not names and _is_ignored(folder):
        return None
    # A repository within, a submodule, a link to a folder: git names them, but not what is in them.
    return [file for name in names if (folder / name).exists() for file in _below(folder, name)]


def _is_ignored(folder: Path) -> bool:
    """Say whether a folder as a whole is ignored by the repository around it: then all of it is meant."""
    return subprocess.run(
        ["git", "check-ignore", "--quiet", "."], cwd=folder, capture_output=True, check=False
    ).returncode == 0  # fmt: skip


def _below(folder: Path, name: str, left_out: frozenset[str] = _LEFT_OUT) -> list[str]:
    """Return every file at or below a place in a folder; a link that leads to a folder is not followed."""
    place = folder / name
    if place.is_file():
        return [place.relative_to(folder).as_posix()]
    found: list[str] = []
    total_bytes = 0
    for parent, folders, files in os.walk(place):
        folders[:] = sorted(item for item in folders if item not in left_out)
        for file in files:
            path = Path(parent) / file
            if path.is_file():
                found.append(path.relative_to(folder).as_posix())
                total_bytes += path.stat().st_size
        if total_bytes > 4 * MOST_BYTES:  # enough is known; a whole disk need not be walked
            break
    return found


def _refuse_too_much(folder: Path, names: Iterable[str]) -> None:
    by_part: dict[str, int] = {}
    for name in names:
        part = PurePosixPath(name).parts[0]
        by_part[part] = by_part.get(part, 0) + (folder / name).stat().st_size
    total_bytes = sum(by_part.values())
    if total_bytes <= MOST_BYTES:
        return
    largest = sorted(by_part, key=lambda part: -by_part[part])[:3]
    told = ", ".join(f"{part} ({by_part[part] / _MIB:.0f} MiB)" for part in largest)
    raise RunError(
        f"{folder} holds more than the {MOST_BYTES // _MIB} MiB that can be sent with a run: {told}",
        next_step="Start from a folder that holds the code only, or name what is not needed in a repository's"
        " .gitignore; put data where the cluster reads it.",
    )


def _contents(folder: Path, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    for name in names:
        try:
            yield name, (folder / name).read_bytes()
        except OSError as error:
            raise RunError(f"cannot read {folder / name}: {error.strerror}") from error
