"""Where a run was started, kept beside it, so that a driver that comes back finds the person's modules.

What was submitted to a cluster is kept as well: Ray unpacks it on one node, and only for as long as it likes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json

from workbench.artifacts import Artifacts
from workbench.workers import surroundings
from workbench.workers.code_archive import pack
from workbench.workers.origin import ARCHIVE_NAME, Origin

FILE_NAME = "origin.json"


def write_origin(artifacts: Artifacts, origin: Origin | None = None) -> None:
    """Keep where a run was started with its files, unless it is there: here, or where another one was.

    Raises:
        ArtifactsError: If it cannot be written there.
        RunError: If the code that was submitted is more than can be kept.
    """
    if artifacts.exists(FILE_NAME):
        return
    kept = origin or _keep_submitted_code(artifacts) or Origin.here()
    if kept.archived is not None and kept.archive_place != artifacts.url:
        artifacts.write(ARCHIVE_NAME, Artifacts.at(kept.archive_place).read(ARCHIVE_NAME))
    # Where it lies is known to whoever reads it; the URL may hold keys.
    fields = {**dataclasses.asdict(kept), "archive_place": ""}
    artifacts.write(FILE_NAME, json.dumps(fields).encode())


def read_origin(artifacts: Artifacts) -> Origin:
    """Return where a run was started; this process's own place where nobody kept it.

    Raises:
        ArtifactsError: If the place of the run's files cannot be reached.
    """
    if not artifacts.exists(FILE_NAME):
        return Origin.here()
    kept = json.loads(artifacts.read(FILE_NAME))
    return Origin(
        kept["directory"], tuple(kept["search_path"]), kept.get("archived"), kept.get("archive_sha256", ""),
        artifacts.url,
    )  # fmt: skip


def _keep_submitted_code(artifacts: Artifacts) -> Origin | None:
    """Keep the folder of the Ray job that this process is, if it is one and has one."""
    folder = surroundings.job_folder()
    if folder is None:
        return None
    content = pack(folder, whole=True).content
    artifacts.write(ARCHIVE_NAME, content)
    return dataclasses.replace(
        Origin.here(), archived=str(folder), archive_sha256=hashlib.sha256(content).hexdigest(),
        archive_place=artifacts.url,
    )  # fmt: skip
