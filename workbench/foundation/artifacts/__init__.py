"""Files that must outlive the process that writes them, on any path or URL that pyarrow can open.

A file is either complete or absent. On a local path that takes a rename, and nothing is loaded. For
a URL (s3, gs, hdfs, abfs, ...) pyarrow is loaded on first use. Files that grow are kept in a local
working folder. The keys, passwords and options in a URL are never shown.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from workbench.foundation.artifacts.local import LocalArtifacts
from workbench.foundation.artifacts.place import Artifacts, disk_fault
from workbench.foundation.errors import ArtifactsError

__all__ = ["Artifacts", "disk_fault", "is_url", "open_artifacts"]


def is_url(path: object) -> bool:
    """Return whether a path is a URL."""
    return isinstance(path, str) and "://" in path


def open_artifacts(place: str | Path) -> Artifacts:
    """Return the folder on a path or URL. Nothing is opened yet.

    Args:
        place: A path, or a URL such as `file:///data/runs` or `s3://bucket/runs?region=eu-west-1`.

    Raises:
        ArtifactsError: If a file URL is not a folder of this machine.
    """
    text = str(place)
    if not is_url(text):
        return LocalArtifacts(Path(text).expanduser().absolute())
    parts = urlsplit(text)
    if parts.scheme != "file":
        from workbench.foundation.artifacts.remote import RemoteArtifacts

        return RemoteArtifacts(text)
    if parts.netloc not in ("", "localhost") or not parts.path:
        raise ArtifactsError(
            f"file://{parts.netloc.rpartition('@')[2]}{parts.path} is not a folder of this machine",
            allowed="such as file:///data/runs",
        )
    return LocalArtifacts(Path(unquote(parts.path)))
