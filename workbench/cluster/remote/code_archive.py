"""Pack a folder of the user's code into an archive, and unpack it on machines that do not have it.

The same files make the same bytes, so an archive is named by its hash. Files of a machine or of a
version control system are skipped, and so are files that git ignores, known secrets and links:
whatever a link leads to was not meant to be sent. An archive is unpacked once per machine, into a
folder of the user that is named by the hash.
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

from workbench.foundation.errors import RunError
from workbench.foundation.formatting import format_bytes
from workbench.foundation.known_secrets import is_secret

MAX_BYTES = 100 * 2**20
"""The largest package that Ray accepts, and the largest content of one."""
KEPT_S = 30 * 86400.0
LEFT_OUT = frozenset(
    {
        ".git",
        ".hg",
        ".svn",
        ".venv",
        "venv",
        "node_modules",
        "__pycache__",
        ".ipynb_checkpoints",
        ".pytest_cache",
        ".ruff_cache",
        ".mypy_cache",
        ".hypothesis",
        ".tox",
        ".workbench",
    }
)
_GIT_TIMEOUT_S = 20.0
_LONG_AGO = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class CodeArchive:
    """Files packed into one archive."""

    content: bytes
    num_files: int
    identity: str
    """The SHA-256 of the names and the bytes of its files, however they are compressed."""
    names: tuple[str, ...] = ()
    """The files that it holds, by relative name."""
    secrets: tuple[str, ...] = ()
    """The files of the folder that were skipped because they are known secrets."""
    links: tuple[str, ...] = ()
    """The links in the folder, which were skipped."""


def pack(
    folder: Path,
    *,
    also: Iterable[str] = (),
    added: Mapping[str, bytes] | None = None,
    whole: bool = False,
    without: Callable[[Path, Sequence[str]], Collection[str]] = lambda _folder, _names: (),
) -> CodeArchive:
    """Pack the files of a folder into an archive.

    Args:
        folder: The folder.
        also: Files and folders in it, by relative name, that are included even if git ignores them.
            A listed file is included whatever it is. Files in a listed folder are filtered.
        added: Content that is not in the folder, by its name in the archive.
        whole: Include everything but bytecode and links, as in a folder that was sent before.
        without: Returns further files of the folder to skip. Not called with `whole`.

    Raises:
        RunError: If it is more than Ray accepts, or a file cannot be read.
    """
    if whole:
        chosen = set(_below(folder, "", frozenset({"__pycache__"})))
    else:
        listed = _names(folder)
        chosen = {*listed} - {*without(folder, listed)}
    named = {*also}
    chosen |= {name for item in named for name in _below(folder, item)}
    links = {name for name in chosen if _passes_a_link(folder, name)}
    secrets: set[str] = set()
    if not whole:
        secrets = {
            name for name in chosen - links - named if is_secret(folder / name, below=folder)
        }
    names = sorted(chosen - links - secrets)
    _check_size(folder, names)
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
    return CodeArchive(
        content=content.getvalue(),
        num_files=len(names) + len(added or {}),
        identity=digest.hexdigest(),
        names=tuple(sorted([*names, *(added or {})])),
        secrets=tuple(sorted(secrets)),
        links=tuple(sorted(links)),
    )


def unpack(content: bytes, folder: Path) -> None:
    """Unpack an archive into a folder that does not exist yet: all files, or no folder.

    Args:
        content: The bytes of an archive.
        folder: The folder to create.

    Raises:
        RunError: If it is damaged or unsafe.
    """
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    unfinished = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=folder.parent))
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for name in archive.namelist():
                path = PurePosixPath(name)
                if path.is_absolute() or ".." in path.parts:
                    raise RunError(
                        f"an archive of code contains {name!r}, which lies outside its folder"
                    )
            archive.extractall(unfinished)
            for entry in archive.infolist():
                if entry.external_attr >> 16 & 0o100:
                    (unfinished / entry.filename).chmod(0o755)
        with contextlib.suppress(OSError):  # another process was faster: the same files are there
            unfinished.rename(folder)
    except zipfile.BadZipFile as error:
        raise RunError(
            "an archive of code is damaged", next_step="Submit the run again."
        ) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def unpacked(sha256: str, fetch: Callable[[], bytes]) -> Path:
    """Return the folder on this machine with an archive's files. It is unpacked if necessary.

    Args:
        sha256: The hash of the archive's bytes.
        fetch: Returns the archive's bytes. It is only called if they are needed.

    Raises:
        RunError: If the fetched bytes are another archive.
    """
    folder = Path(platformdirs.user_cache_dir("workbench", appauthor=False)) / "code" / sha256
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # One process of this machine fetches it.
        with filelock.FileLock(folder.parent / f"{sha256}.lock"):
            if not folder.is_dir():
                content = fetch()
                if hashlib.sha256(content).hexdigest() != sha256:
                    raise RunError(
                        "the code of the run has another hash than was stored",
                        next_step="Submit it again.",
                    )
                _remove_old(folder.parent)
                unpack(content, folder)
    with contextlib.suppress(OSError):
        os.utime(folder)
    return folder


def _remove_old(folder: Path) -> None:
    """Remove folders that no process of this machine has used for a month."""
    for item in folder.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - item.stat().st_mtime > KEPT_S:
                shutil.rmtree(item) if item.is_dir() else item.unlink()


def _names(folder: Path) -> list[str]:
    """Return the files of the user's work, by relative name with slashes."""
    listed = _names_by_git(folder)
    if listed is None:
        listed = _below(folder, "")
    return [name for name in listed if LEFT_OUT.isdisjoint(PurePosixPath(name).parts)]


def _names_by_git(folder: Path) -> list[str] | None:
    """Return the files that git does not ignore, or None without a repository or git."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(
            command, cwd=folder, capture_output=True, timeout=_GIT_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if listed.returncode != 0:
        return None
    names = [os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]
    if not names and _is_ignored(folder):
        return None
    # Git lists a nested repository, a submodule or a link to a folder, but not the files in it.
    present = [name for name in names if os.path.lexists(folder / name)]
    return [file for name in present for file in _below(folder, name)]


def _is_ignored(folder: Path) -> bool:
    """Return whether the surrounding repository ignores the folder: then all files are meant."""
    command = ["git", "check-ignore", "--quiet", "."]
    checked = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    return checked.returncode == 0


def _below(folder: Path, name: str, left_out: frozenset[str] = LEFT_OUT) -> list[str]:
    """Return every file and link at or below a path in a folder. Links are not followed."""
    place = folder / name
    if name and (place.is_file() or place.is_symlink()):
        return [place.relative_to(folder).as_posix()]
    below: list[str] = []
    total_bytes = 0
    for parent, folders, files in os.walk(place):
        folders[:] = sorted(item for item in folders if item not in left_out)
        linked = [item for item in folders if (Path(parent) / item).is_symlink()]
        for path in (Path(parent) / file for file in [*files, *linked]):
            if path.is_symlink() or path.is_file():
                below.append(path.relative_to(folder).as_posix())
                total_bytes += 0 if path.is_symlink() else path.stat().st_size
        if total_bytes > 4 * MAX_BYTES:  # already too much, so do not walk the whole disk
            break
    return below


def _passes_a_link(folder: Path, name: str) -> bool:
    """Return whether a file, or one of the folders between it and `folder`, is a link."""
    path = folder
    for part in PurePosixPath(name).parts:
        path /= part
        if path.is_symlink():
            return True
    return False


def _check_size(folder: Path, names: Iterable[str]) -> None:
    by_part: dict[str, int] = {}
    for name in names:
        top_name = PurePosixPath(name).parts[0]
        by_part[top_name] = by_part.get(top_name, 0) + (folder / name).stat().st_size
    total_bytes = sum(by_part.values())
    if total_bytes <= MAX_BYTES:
        return
    largest = sorted(by_part, key=lambda top_name: -by_part[top_name])[:3]
    largest_parts = ", ".join(
        f"{top_name} ({format_bytes(by_part[top_name])})" for top_name in largest
    )
    raise RunError(
        f"{folder} exceeds the {format_bytes(MAX_BYTES)} that can be sent with a run:"
        f" {largest_parts}",
        next_step=(
            "Submit from a folder that contains only code, or list other files in .gitignore. Put"
            " data where the cluster can read it."
        ),
    )


def _contents(folder: Path, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    for name in names:
        try:
            yield name, (folder / name).read_bytes()
        except OSError as error:
            raise RunError(f"cannot read {folder / name}: {error.strerror}") from error
