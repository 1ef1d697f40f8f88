"""Artifacts in a folder of this machine: plain files, moved into place."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path

from workbench.foundation.artifacts.place import Artifacts
from workbench.foundation.errors import ArtifactsError

_REMEDY = "Check that it exists, has free space and is writable."


class LocalArtifacts(Artifacts):
    """A folder of this machine."""

    is_local = True

    def __init__(self, path: Path) -> None:
        """Use a folder, which need not exist yet."""
        self.path = path
        self.url = str(path)

    def __str__(self) -> str:
        return self.url

    @property
    def working_folder(self) -> Path:
        """The folder itself."""
        return self.path

    def below(self, name: str) -> LocalArtifacts:
        """Return a folder in this one."""
        return LocalArtifacts(self.path / name)

    def claim(self) -> None:
        """Make the folder for its owner only. An existing folder keeps its rights."""
        with contextlib.suppress(OSError):  # later writes report the error
            make_private(self.path)

    def prepare(self) -> None:
        """Make the folder."""
        with _translated(self.path):
            self.path.mkdir(parents=True, exist_ok=True)

    def write(self, name: str, content: bytes) -> None:
        """Write a whole file, on the disk before it has its name."""
        path = self.path / name
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            with _translated(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                with temporary.open("wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise

    def put(self, source: Path, name: str) -> None:
        """Move a file here. From another file system it is copied first."""
        path = self.path / name
        with _translated(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.replace(source, path)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
                try:
                    shutil.copyfile(source, temporary)
                    os.replace(temporary, path)
                finally:
                    temporary.unlink(missing_ok=True)
                source.unlink()

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        with _translated(self.path / name):
            return (self.path / name).read_bytes()

    @contextlib.contextmanager
    def as_file(self, name: str) -> Iterator[Path]:
        """Give the path of a file."""
        yield self.path / name

    def exists(self, name: str) -> bool:
        """Return whether a file or folder of that name exists."""
        return (self.path / name).exists()

    def stamps(self, name: str = "") -> dict[str, tuple[int, int]]:
        """Return the size in bytes and the time of change of every file below a folder, by name."""
        stamps: dict[str, tuple[int, int]] = {}
        folders = [self.path / name]
        while folders:
            with (
                _translated(self.path),
                contextlib.suppress(FileNotFoundError),
                os.scandir(folders.pop()) as items,
            ):
                for item in items:
                    if item.is_dir(follow_symlinks=False):
                        folders.append(Path(item.path))
                        continue
                    with contextlib.suppress(FileNotFoundError):
                        status = item.stat(follow_symlinks=False)
                        if stat.S_ISREG(status.st_mode):
                            file = Path(item.path).relative_to(self.path).as_posix()
                            stamps[file] = status.st_size, status.st_mtime_ns
        return stamps

    def delete(self, name: str) -> None:
        """Remove a file, or a folder with all in it, if it is there."""
        path = self.path / name
        with _translated(path), contextlib.suppress(FileNotFoundError):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for their owner only.

    Folders that exist keep their permissions.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)


@contextlib.contextmanager
def _translated(path: Path) -> Iterator[None]:
    """Translate disk errors to `ArtifactsError`."""
    try:
        yield
    except OSError as error:
        raise ArtifactsError(
            f"{error.filename or path}: {error.strerror or error}", next_step=_REMEDY
        ) from error
