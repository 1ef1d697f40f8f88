"""Python objects that travel with a run.

One file each in the run's folder, named by its SHA-256.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from workbench.foundation.artifacts import Artifacts

_FOLDER = "objects"


def write_objects(artifacts: Artifacts, payloads: Mapping[str, bytes]) -> None:
    """Write objects so that no reader ever sees half of one.

    Args:
        artifacts: The folder of the run.
        payloads: Bytes by their SHA-256.
    """
    for sha256, payload in payloads.items():
        artifacts.write(f"{_FOLDER}/{sha256}", payload)


def read_objects(artifacts: Artifacts, hashes: Iterable[str]) -> dict[str, bytes]:
    """Read objects of a run; the caller checks that they are what their names say.

    Args:
        artifacts: The folder of the run.
        hashes: The SHA-256 of each.

    Raises:
        ArtifactsError: If one cannot be read.
    """
    return {sha256: artifacts.read(f"{_FOLDER}/{sha256}") for sha256 in hashes}
