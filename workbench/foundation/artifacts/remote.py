"""Artifacts on a URL, through a filesystem of pyarrow, which is loaded when a file is first needed.

An object store shows only complete files. Elsewhere a file is written under a temporary name and
moved.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from workbench.foundation.artifacts.place import Artifacts
from workbench.foundation.errors import ArtifactsError, first_line_of

_REMEDY = "Check that it exists, is reachable and is writable."
_ONE_REQUEST = "allow_delayed_open"
"""Option to send a small file to S3 in one request, instead of three for an upload in parts."""
_ATOMIC = frozenset({"s3", "gcs", "abfs"})


class RemoteArtifacts(Artifacts):
    """A folder on a filesystem of pyarrow."""

    is_local = False

    def __init__(self, url: str, filesystem: Any = None, path: str = "") -> None:
        """Use a folder, which need not exist yet.

        Args:
            url: Its URL.
            filesystem: An open filesystem of pyarrow. None opens the one of the URL.
            path: The folder in that filesystem.
        """
        self.url = url
        self._shown = _shown(url)
        self._filesystem = filesystem
        self._root = path

    def __str__(self) -> str:
        return self._shown

    @property
    def working_folder(self) -> Path:
        """A folder of this machine that belongs to this one alone."""
        import platformdirs

        mark = hashlib.sha256(self._shown.encode()).hexdigest()[:12]
        name = f"{self._shown.rpartition('/')[2]}-{mark}"
        return Path(platformdirs.user_cache_dir("workbench", appauthor=False)) / "artifacts" / name

    def below(self, name: str) -> RemoteArtifacts:
        """Return a folder in this one."""
        parts = urlsplit(self.url)
        url = urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{name}"))
        return RemoteArtifacts(
            url, self._filesystem, self._root and f"{self._root.rstrip('/')}/{name}"
        )

    def claim(self) -> None:
        """Do nothing: who may read there is decided where the store is."""

    def prepare(self) -> None:
        """Check that the folder can be reached. Object stores have no empty folders."""
        with self._open() as (filesystem, root):
            filesystem.get_file_info(root)
            if filesystem.type_name not in _ATOMIC:
                filesystem.create_dir(root, recursive=True)

    def write(self, name: str, content: bytes) -> None:
        """Write a whole file."""
        with self._open(name) as (filesystem, path):
            _upload(filesystem, path, content)

    def put(self, source: Path, name: str) -> None:
        """Move a file of this machine here."""
        import pyarrow

        with self._open(name) as (filesystem, path):
            if source.stat().st_size == 0:
                _upload(filesystem, path, b"")
            else:
                with pyarrow.memory_map(str(source)) as mapped:
                    _upload(filesystem, path, mapped.read_buffer())
        source.unlink()

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        with self._open(name) as (filesystem, path), filesystem.open_input_file(path) as file:
            return file.readall()

    @contextlib.contextmanager
    def as_file(self, name: str) -> Iterator[Path]:
        """Fetch a file into a temporary one."""
        with tempfile.TemporaryDirectory(prefix="workbench-") as folder:
            target = Path(folder) / name.rpartition("/")[2]
            with (
                self._open(name) as (filesystem, path),
                filesystem.open_input_stream(path) as stream,
                target.open("wb") as file,
            ):
                shutil.copyfileobj(stream, file, 1 << 20)
            yield target

    def exists(self, name: str) -> bool:
        """Return whether a file or folder of that name exists."""
        from pyarrow.fs import FileType

        with self._open(name) as (filesystem, path):
            return filesystem.get_file_info(path).type != FileType.NotFound

    def stamps(self, name: str = "") -> dict[str, tuple[int, int]]:
        """Return the size in bytes and the time of change of every file below a folder, by name."""
        from pyarrow.fs import FileSelector

        with self._open() as (filesystem, root):
            path = f"{root}/{name}" if name else root
            selector = FileSelector(path, recursive=True, allow_not_found=True)
            return {
                info.path[len(root) :].lstrip("/"): (info.size, info.mtime_ns or 0)
                for info in filesystem.get_file_info(selector)
                if info.is_file
            }

    def delete(self, name: str) -> None:
        """Remove a file, or a folder with all in it, if it is there."""
        from pyarrow.fs import FileType

        with self._open(name) as (filesystem, path):
            kind = filesystem.get_file_info(path).type
            if kind == FileType.File:
                filesystem.delete_file(path)
            elif kind == FileType.Directory:
                filesystem.delete_dir(path)

    @contextlib.contextmanager
    def _open(self, name: str = "") -> Iterator[tuple[Any, str]]:
        """Give the filesystem and a path in it, and translate its errors."""
        try:
            if self._filesystem is None:
                self._filesystem, self._root = _connect(self.url)
            yield (
                self._filesystem,
                f"{self._root.rstrip('/')}/{name}" if name else self._root.rstrip("/"),
            )
        except ArtifactsError:
            raise
        except (OSError, ValueError, NotImplementedError) as error:
            place = f"{self}/{name}" if name else str(self)
            # Only the first line: the rest may be a page of libraries that were searched for.
            message = _without_secrets(first_line_of(error), self.url)
            raise ArtifactsError(f"{place}: {message}", next_step=_REMEDY) from None


@functools.lru_cache(maxsize=16)
def _connect(url: str) -> tuple[Any, str]:
    from pyarrow.fs import FileSystem

    parts = urlsplit(url)
    if parts.scheme == "s3" and _ONE_REQUEST not in parts.query:
        url = urlunsplit(
            parts._replace(query="&".join(filter(None, [parts.query, f"{_ONE_REQUEST}=true"])))
        )
    return FileSystem.from_uri(url)


def _upload(filesystem: Any, path: str, content: Any) -> None:
    if filesystem.type_name in _ATOMIC:
        with filesystem.open_output_stream(path) as stream:
            stream.write(content)
        return
    folder, _, name = path.rpartition("/")
    filesystem.create_dir(folder, recursive=True)
    temporary = f"{folder}/.{name}.{uuid.uuid4().hex}"
    try:
        with filesystem.open_output_stream(temporary) as stream:
            stream.write(content)
        filesystem.move(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            filesystem.delete_file(temporary)
        raise


def _shown(url: str) -> str:
    """Return a URL as people may see it: no user, no password, no options."""
    parts = urlsplit(url)
    return urlunsplit(
        (parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", "")
    )


def _without_secrets(text: str, url: str) -> str:
    parts = urlsplit(url)
    user = parts.netloc.rpartition("@")[0]
    values = [pair.partition("=")[2] for pair in re.split("[&;]", parts.query)]
    secrets = [url, parts.query, user, *user.split(":"), *values]
    for secret in sorted({*secrets, *map(unquote, secrets)}, key=len, reverse=True):
        if len(secret) > 3:
            text = text.replace(secret, "***")
    return text
