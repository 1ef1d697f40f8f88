"""Where the files of a trial are among those of its run."""

from __future__ import annotations

from workbench.foundation.artifacts import Artifacts, open_artifacts

TRIALS = "trials"


def trial_folder(trial: int) -> str:
    """Return the folder of a trial, below that of its run."""
    return f"{TRIALS}/{trial:05d}"


def find_moved(artifacts: Artifacts, run_id: str, shown: str) -> tuple[Artifacts, str]:
    """Return where a file of a run is that an event names, and its name there.

    The files of a run may lie elsewhere by now: its store was restored from a backup, or its
    artifacts moved.

    Args:
        artifacts: The place of the run's files.
        run_id: The run.
        shown: The file as the event names it, such as the path of a checkpoint.
    """
    name = artifacts.name_of(shown)
    if name is not None:
        return artifacts, name
    moved = shown.rpartition(f"/{run_id}/")[2]
    if moved != shown and artifacts.exists(moved):
        return artifacts, moved
    folder, _, name = shown.rpartition("/")
    return open_artifacts(folder), name
