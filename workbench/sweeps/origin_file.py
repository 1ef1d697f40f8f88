"""Store where a run was started among its artifacts, so that a restarted driver finds the user's modules.

Code that was submitted to a cluster is stored as well: Ray unpacks it on one node, and may remove it later.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json

from workbench.artifacts import Artifacts, open_artifacts
from workbench.head import ray_environment
from workbench.remote.code_archive import pack
from workbench.remote.code_origin import ARCHIVE_NAME, Origin

FILE_NAME = "origin.json"


def write_origin(artifacts: Artifacts, origin: Origin | None = None) -> None:
    """Store where a run was started among its artifacts, unless it is stored already.

    Args:
        artifacts: The artifacts of the run.
        origin: Where it was started; None for this process.

    Raises:
        ArtifactsError: If it cannot be written there.
        RunError: If the submitted code is larger than the limit.
    """
    if artifacts.exists(FILE_NAME):
        return
    kept = origin or _keep_submitted_code(artifacts) or Origin.here()
    if kept.archived is not None and kept.archive_place != artifacts.url:
        artifacts.write(ARCHIVE_NAME, open_artifacts(kept.archive_place).read(ARCHIVE_NAME))
    # The reader knows the location, and the URL may contain credentials.
    fields = {**dataclasses.asdict(kept), "archive_place": ""}
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
        kept["directory"], tuple(kept["search_path"]), kept.get("archived"), kept.get("archive_sha256", ""),
        artifacts.url,
    )  # fmt: skip


def _keep_submitted_code(artifacts: Artifacts) -> Origin | None:
    """Store the working folder of the Ray job that this process is, if it is a job with a folder."""
    folder = ray_environment.job_folder()
    if folder is None:
        return None
    content = pack(folder, whole=True).content
    artifacts.write(ARCHIVE_NAME, content)
    return dataclasses.replace(
        Origin.here(), archived=str(folder), archive_sha256=hashlib.sha256(content).hexdigest(),
        archive_place=artifacts.url,
    )  # fmt: skip
