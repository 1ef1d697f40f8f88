"""The pictures, tables and texts of a trial, for front ends.

Which there are, and the file of each.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from workbench.foundation.artifacts import Artifacts
from workbench.foundation.attachments import MEDIA_TYPES
from workbench.foundation.errors import UnknownNameError
from workbench.runs.descriptions import attachment_file
from workbench.store.history import Trial


class AttachedFile(BaseModel):
    """A picture, a table or a text that a trial reported."""

    model_config = ConfigDict(frozen=True)

    name: str
    kind: Literal["image", "table", "text"]
    step: int
    file: str = Field(description="The name of its file.")
    size_bytes: int


def attached_files(trial: Trial) -> tuple[AttachedFile, ...]:
    """Return what a trial attached to its reports, the oldest first."""
    return tuple(
        AttachedFile(
            name=saved.name,
            kind=saved.kind,
            step=saved.step,
            file=saved.file.rpartition("/")[2],
            size_bytes=saved.size_bytes,
        )
        for saved in trial.attachments
    )


def read_attached(artifacts: Artifacts, trial: int, file: str) -> tuple[str, bytes]:
    """Return the media type of an attachment and its content.

    Args:
        artifacts: The artifacts of the run.
        trial: Number of the trial.
        file: The name of the file, without a folder.

    Raises:
        UnknownNameError: If there is no such file.
    """
    media_type = MEDIA_TYPES.get(file.rpartition(".")[2])
    name = attachment_file(trial, file)
    if media_type is None or "/" in file or not artifacts.exists(name):
        raise UnknownNameError(f"trial {trial} has no attachment {file!r}", field="file")
    return media_type, artifacts.read(name)
