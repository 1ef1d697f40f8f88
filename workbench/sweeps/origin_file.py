"""Store among a run's artifacts where it was started, so that a restarted driver finds its modules.

Code that was submitted to a cluster is stored as well, because Ray unpacks it on one node only, and
may remove it later.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os

from workbench.cluster.head import ray_environment
from workbench.cluster.remote.code_archive import pack
from workbench.cluster.remote.code_origin import ARCHIVE_NAME, Origin, kept_name
from workbench.cluster.remote.kept_code import changed_files, keep
from workbench.experiment import Experiment
from workbench.foundation.artifacts import Artifacts, open_artifacts
from workbench.training.programs.kept_imports import MANIFEST

FILE_NAME = "origin.json"


def write_origin(
    artifacts: Artifacts, origin: Origin | None = None, *, experiment: Experiment | None = None
) -> None:
    """Store where a run was started and the code that it runs, unless both are stored.

    Args:
        artifacts: The artifacts of the run.
        origin: The origin of another run whose code this run also uses, or None for this process.
        experiment: The experiment whose code is kept.

    Raises:
        ArtifactsError: If it cannot be written there.
        RunError: If the submitted code is larger than the limit.
    """
    if artifacts.exists(FILE_NAME):
        return
    kept = origin or _keep_submitted_code(artifacts) or Origin.here()
    if kept.archived is not None and kept.archive_place != artifacts.url:
        artifacts.write(ARCHIVE_NAME, open_artifacts(kept.archive_place).read(ARCHIVE_NAME))
    if kept.kept_sha256:
        name = kept_name(kept.kept_sha256)
        artifacts.write(name, open_artifacts(kept.archive_place).read(name))
    elif (
        experiment is not None
        and (kept.archived is None or experiment.links is not None)
        and (code := keep(experiment, kept)) is not None
    ):
        artifacts.write(kept_name(code.sha256), code.content)
        kept = dataclasses.replace(kept, kept_sha256=code.sha256)
    write_latest_origin(artifacts, kept)


def write_latest_origin(artifacts: Artifacts, origin: Origin) -> None:
    """Store where a run was started, with the code that its next trials run.

    Args:
        artifacts: The artifacts of the run.
        origin: Where it was started. The code itself is among the artifacts.

    Raises:
        ArtifactsError: If it cannot be written there.
    """
    # The reader knows the location, and the URL may contain credentials.
    fields = {**dataclasses.asdict(origin), "archive_place": ""}
    artifacts.write(FILE_NAME, json.dumps(fields).encode())


def read_origin(artifacts: Artifacts) -> Origin:
    """Return where a run was started, or the origin of this process if that was not stored.

    Raises:
        ArtifactsError: If the run's artifacts cannot be reached.
    """
    if not artifacts.exists(FILE_NAME):
        return Origin.here()
    kept = json.loads(artifacts.read(FILE_NAME))
    return Origin(
        kept["directory"],
        tuple(kept["search_path"]),
        kept.get("archived"),
        kept.get("archive_sha256", ""),
        artifacts.url,
        kept.get("kept_sha256", ""),
    )


def has_changed(artifacts: Artifacts) -> bool:
    """Return whether the kept code of a run differs from what is on the disk of this machine.

    Args:
        artifacts: The artifacts of the run.

    Raises:
        ArtifactsError: If they cannot be reached.
    """
    origin = read_origin(artifacts)
    folder = origin.kept_folder()
    if folder is None or not os.path.isdir(origin.directory):
        return False
    return bool(changed_files(json.loads((folder / MANIFEST).read_text("utf-8"))))


def _keep_submitted_code(artifacts: Artifacts) -> Origin | None:
    """Store the working folder of the Ray job that this process is, if it is one."""
    folder = ray_environment.job_folder()
    if folder is None:
        return None
    content = pack(folder, whole=True).content
    artifacts.write(ARCHIVE_NAME, content)
    return dataclasses.replace(
        Origin.here(),
        archived=str(folder),
        archive_sha256=hashlib.sha256(content).hexdigest(),
        archive_place=artifacts.url,
    )
