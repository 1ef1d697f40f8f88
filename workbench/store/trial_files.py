"""Where the files of a trial are among those of its run."""

from __future__ import annotations

TRIALS = "trials"


def trial_folder(trial: int) -> str:
    """Return the folder of a trial, below that of its run."""
    return f"{TRIALS}/{trial:05d}"
