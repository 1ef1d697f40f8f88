"""The places of a run's files: folders of trials, and Python objects that belong to the run.

An object is one file, named after its SHA-256.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from workbench.foundation.artifacts import Artifacts, open_artifacts

TRIALS = "trials"
_OBJECTS = "objects"


def trial_folder(trial: int) -> str:
    """Return the folder of a trial, relative to the folder of its run."""
    return f"{TRIALS}/{trial:05d}"


def find_moved(artifacts: Artifacts, run_id: str, shown: str) -> tuple[Artifacts, str]:
    """Return the current place of a run's file that an event mentions, and its name there.

    The files of a run may have moved, because its store was restored from a backup, or its
    artifacts were moved.

    Args:
        artifacts: The place of the run's files.
        run_id: The run.
        shown: The path in the event, such as the path of a checkpoint.
    """
    name = artifacts.name_of(shown)
    if name is not None:
        return artifacts, name
    moved = shown.rpartition(f"/{run_id}/")[2]
    if moved != shown and artifacts.exists(moved):
        return artifacts, moved
    folder, _, name = shown.rpartition("/")
    return open_artifacts(folder), name


def write_objects(artifacts: Artifacts, payloads: Mapping[str, bytes]) -> None:
    """Write objects so that no reader ever sees an incomplete one.

    Args:
        artifacts: The folder of the run.
        payloads: Bytes by their SHA-256.
    """
    for sha256, payload in payloads.items():
        artifacts.write(f"{_OBJECTS}/{sha256}", payload)


def read_objects(artifacts: Artifacts, hashes: Iterable[str]) -> dict[str, bytes]:
    """Read objects of a run. The caller checks that they match their names.

    Args:
        artifacts: The folder of the run.
        hashes: The SHA-256 of each object.

    Raises:
        ArtifactsError: If one cannot be read.
    """
    return {sha256: artifacts.read(f"{_OBJECTS}/{sha256}") for sha256 in hashes}
