"""The interface of all places for artifacts, and the errors of one that is full or broken."""

from __future__ import annotations

import contextlib
import errno
import uuid
from abc import ABC, abstractmethod
from pathlib import Path

from workbench.foundation.errors import ArtifactsError


class Artifacts(ABC):
    """A folder for files that must survive. Names in it are relative, with slashes."""

    url: str
    """The URL with which another process opens it. It may hold keys, so it must not be shown."""
    is_local: bool
    """Whether it is on this machine."""

    @property
    @abstractmethod
    def working_folder(self) -> Path:
        """The local folder for files that grow: the folder itself, if it is local."""

    @abstractmethod
    def below(self, name: str) -> Artifacts:
        """Return a folder in this one."""

    @abstractmethod
    def claim(self) -> None:
        """Make a local folder that only its owner can read. An existing folder keeps its rights."""

    @abstractmethod
    def prepare(self) -> None:
        """Make the folder if it does not exist.

        Raises:
            ArtifactsError: If it does not exist and cannot be made.
        """

    @abstractmethod
    def write(self, name: str, content: bytes) -> None:
        """Write a whole file. It replaces an existing one."""

    @abstractmethod
    def put(self, source: Path, name: str) -> None:
        """Move a file of this machine here. It replaces an existing one."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Return the content of a file.

        Raises:
            ArtifactsError: If the file does not exist or cannot be read.
        """

    @abstractmethod
    def as_file(self, name: str) -> contextlib.AbstractContextManager[Path]:
        """Give a file a local path for reading, until the context ends."""

    @abstractmethod
    def exists(self, name: str) -> bool:
        """Return whether a file or folder of that name exists."""

    @abstractmethod
    def stamps(self, name: str = "") -> dict[str, tuple[int, int]]:
        """Return a stamp of every file below a folder, at any depth, by its name from here.

        Returns:
            The size in bytes, and the time of the last change in nanoseconds since 1970.
        """

    def sizes(self, name: str = "") -> dict[str, int]:
        """Return the size in bytes of every file below a folder, at any depth, by its name."""
        return {file: size_bytes for file, (size_bytes, _) in self.stamps(name).items()}

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove a file, or a folder with everything in it, if it exists."""

    def probe(self, num_bytes: int = 1) -> None:
        """Check that files can be written here, by writing one and removing it.

        Args:
            num_bytes: The size of the file.

        Raises:
            ArtifactsError: If the file cannot be written.
        """
        name = f".probe-{uuid.uuid4().hex}"
        self.write(name, bytes(num_bytes))
        self.delete(name)

    def name_of(self, shown: str) -> str | None:
        """Return the name of a file here from its shown path, or None if it is somewhere else."""
        if not shown.startswith(f"{self}/"):
            return None
        return shown[len(str(self)) + 1 :]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"


_REMEDY = "Check that it exists, has free space and is writable."
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The numbers of errors that mean that a disk, or a user's quota, is full."""
_BROKEN = frozenset({errno.EROFS, errno.EIO, errno.ESTALE, errno.ENODEV, errno.ENXIO, errno.EFBIG})
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EEXIST})


def disk_fault(error: BaseException, *places: Artifacts) -> ArtifactsError | None:
    """Return an error of ours if the cause is that a place of artifacts is full or gone.

    Args:
        error: The error, with its causes.
        *places: The folders in question, the outermost first. Each was there when the work
            started, so a folder that is missing now was removed.

    Returns:
        The translated error, or None if the cause is something else, such as a bug in a program.
    """
    current: BaseException | None = error
    while current is not None:
        if isinstance(current, ArtifactsError):
            return current
        if isinstance(current, OSError) and any(_is_fault(current, place) for place in places):
            where = current.filename or places[0]
            return ArtifactsError(f"{where}: {current.strerror}", next_step=_REMEDY)
        current = current.__cause__ or current.__context__
    return None


def _is_fault(error: OSError, place: Artifacts) -> bool:
    if error.errno in FULL:
        return True
    folder = place.working_folder
    if not isinstance(error.filename, str) or not Path(error.filename).is_relative_to(folder):
        # The error of a write into an open file does not contain the name of the file.
        return error.errno in _BROKEN and error.filename is None
    return error.errno in _BROKEN or (error.errno in _GONE and not folder.is_dir())
