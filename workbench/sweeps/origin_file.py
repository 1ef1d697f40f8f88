"""Where a run was started, kept beside it, so that a driver that comes back finds the person's modules."""

from __future__ import annotations

import dataclasses
import json

from workbench.artifacts import Artifacts
from workbench.workers.origin import Origin

FILE_NAME = "origin.json"


def write_origin(artifacts: Artifacts, origin: Origin | None = None) -> None:
    """Keep where a run was started with its files, unless it is there: here, or where another one was.

    Raises:
        ArtifactsError: If it cannot be written there.
    """
    if not artifacts.exists(FILE_NAME):
        artifacts.write(FILE_NAME, json.dumps(dataclasses.asdict(origin or Origin.here())).encode())


def read_origin(artifacts: Artifacts) -> Origin:
    """Return where a run was started; this process's own place where nobody kept it.

    Raises:
        ArtifactsError: If the place of the run's files cannot be reached.
    """
    if not artifacts.exists(FILE_NAME):
        return Origin.here()
    kept = json.loads(artifacts.read(FILE_NAME))
    return Origin(kept["directory"], tuple(kept["search_path"]))
