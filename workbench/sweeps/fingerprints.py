"""Fingerprints of what a run depends on and cannot keep a copy of, for each version.

Each file has a stamp (its size and time of change) and a hash. Small files are also stored under
their hash, so that a bundle contains the data and the configuration that its trial read.
`code_versions` decides when hashes are taken and what follows from a change.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from workbench.cluster.remote.kept_code import PACKAGES, Stamp, content_of, hash_of, stamp_of
from workbench.foundation.artifacts import Artifacts

FILE_NAME = "fingerprints.json"
"""The file among the artifacts of a run that stores them."""
MAX_STORED_BYTES = 2**20
MAX_STORED_FILES = 200
"""Beyond these limits, files are only hashed: a run must not copy a data set."""


class WrittenFile(NamedTuple):
    """A file that trials seem to write.

    Attributes:
        before: Its hash before it changed, or None if it had none.
        trials: The numbers of the trials that ran when it first changed.
        is_sure: Whether it has changed again since then. People rarely do that.
    """

    before: str | None
    trials: list[int]
    is_sure: bool = False


@dataclass
class Fingerprints:
    """The stamps and hashes of files, and their hashes before each version that changed them."""

    stamps: dict[str, Stamp | None] = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict)
    """The hash is empty for a missing file. Files that there was no time to read are absent."""
    earlier: dict[int, dict[str, str | None]] = field(default_factory=dict)
    """For each version number, the files that changed with it and their hashes before."""
    written: dict[str, WrittenFile] = field(default_factory=dict)
    """The files that changed while trials ran, so that trials seem to write them."""
    unwritten: set[str] = field(default_factory=set)
    """The files that a complete trial has left as they were. So trials do not write them."""

    @classmethod
    def read(cls, artifacts: Artifacts) -> Fingerprints | None:
        """Return what a run has stored, or None if it has stored nothing.

        Raises:
            ArtifactsError: If it cannot be read.
        """
        if not artifacts.exists(FILE_NAME):
            return None
        stored = json.loads(artifacts.read(FILE_NAME))
        stamps = {
            path: None if stamp is None else tuple(stamp)
            for path, stamp in stored["stamps"].items()
        }
        earlier = {int(version): hashes for version, hashes in stored.get("earlier", {}).items()}
        written = {path: WrittenFile(*item) for path, item in stored.get("written", {}).items()}
        return cls(stamps, stored["hashes"], earlier, written, set(stored.get("unwritten", ())))

    @classmethod
    def begin(cls, paths: Iterable[str]) -> Fingerprints:
        """Return the stamps of files that are still to be hashed."""
        return cls({path: stamp_of(path) for path in paths})

    def write(self, artifacts: Artifacts) -> None:
        """Store them among the artifacts of the run.

        Raises:
            ArtifactsError: If they cannot be written.
        """
        content = {
            "stamps": self.stamps,
            "hashes": self.hashes,
            "earlier": self.earlier,
            "written": self.written,
            "unwritten": sorted(self.unwritten),
        }
        artifacts.write(FILE_NAME, json.dumps(content).encode())

    def differing(self) -> list[str]:
        """Return the files whose size or time of change differs from their stamp."""
        return [path for path, stamp in self.stamps.items() if stamp_of(path) != stamp]

    def hash_at(self, path: str, version: int) -> str | None:
        """Return the hash that a file had for the trials of a version, or None if unknown."""
        for later in sorted(number for number in self.earlier if number > version):
            if path in self.earlier[later]:
                return self.earlier[later][path]
        return self.hashes.get(path)

    def hash_now(self, path: str) -> str:
        """Return the hash of a file as it is now. The file is read only if its stamp differs."""
        stamp = stamp_of(path)
        if stamp is None:
            return ""
        sha256 = self.hashes.get(path)
        if sha256 is not None and stamp == self.stamps.get(path):
            return sha256
        return hash_of(path)


def store_content(artifacts: Artifacts, path: str, sha256: str) -> None:
    """Store a small file, or the list of the installed packages, by its hash.

    Args:
        artifacts: The artifacts of the run.
        path: The file.
        sha256: Its hash. If the content has another hash, it is not stored.

    Raises:
        ArtifactsError: If it cannot be written.
    """
    stamp = stamp_of(path)
    if not sha256 or stamp is None or (path != PACKAGES and stamp[0] > MAX_STORED_BYTES):
        return
    content = content_of(path)
    if (
        content is not None
        and hash_of(path) == sha256
        and not artifacts.exists(content_name(sha256))
    ):
        artifacts.write(content_name(sha256), content)


def stored_content(artifacts: Artifacts, sha256: str) -> bytes | None:
    """Return a small file by its hash, or None if it was not stored.

    Raises:
        ArtifactsError: If it cannot be read.
    """
    name = content_name(sha256)
    return artifacts.read(name) if sha256 and artifacts.exists(name) else None


def content_name(sha256: str) -> str:
    """Return the name of a file among the artifacts of its run."""
    return f"kept-data/{sha256}"
