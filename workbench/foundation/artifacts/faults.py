"""Which errors mean that a disk is full, broken or gone, rather than that a program is wrong."""

from __future__ import annotations

import errno
from pathlib import Path

from workbench.foundation.artifacts.place import Artifacts
from workbench.foundation.errors import ArtifactsError

_REMEDY = "Check that it exists, has free space and is writable."
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The numbers of errors that state that a disk, or the share of a user, is full."""
_BROKEN = frozenset({errno.EROFS, errno.EIO, errno.ESTALE, errno.ENODEV, errno.ENXIO, errno.EFBIG})
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EEXIST})


def disk_fault(error: BaseException, place: Artifacts) -> ArtifactsError | None:
    """Return an error if its cause is that the place of the artifacts is full, broken or gone.

    Args:
        error: What was raised, with what it was raised from.
        place: The folder in question.

    Returns:
        The translated error; None if the cause is something else, such as a bug in a program.
    """
    current: BaseException | None = error
    while current is not None:
        if isinstance(current, ArtifactsError):
            return current
        if isinstance(current, OSError) and _is_fault(current, place):
            where = current.filename or place
            return ArtifactsError(f"{where}: {current.strerror}", next_step=_REMEDY)
        current = current.__cause__ or current.__context__
    return None


def _is_fault(error: OSError, place: Artifacts) -> bool:
    if error.errno in FULL:
        return True
    folder = place.working_folder
    if not isinstance(error.filename, str) or not Path(error.filename).is_relative_to(folder):
        # A write into a file that is open names no file.
        return error.errno in _BROKEN and error.filename is None
    return error.errno in _BROKEN or (error.errno in _GONE and not folder.is_dir())
