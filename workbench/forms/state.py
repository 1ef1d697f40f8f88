"""All that a form shows of a draft, as one document."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from workbench.errors import WorkbenchError
from workbench.forms.draft import Draft
from workbench.forms.fields import datasets, models, sections_of
from workbench.forms.presets import described
from workbench.run.words import plain
from workbench.workers.jobs import is_jobs_address


def state_of(draft: Draft) -> dict[str, Any]:
    """Return all that a form shows of a draft, as plain values.

    Args:
        draft: What somebody is working on.
    """
    own_names = draft.notebook.names()
    return plain({
        "revision": draft.revision,
        "document": draft.document,
        "is_experiment": draft.is_experiment,
        "problems": [error.to_json() for error in draft.problems],
        "yaml": draft.yaml,
        "yaml_problem": _told(draft.yaml_problem),
        "python": draft.python,
        "python_problem": _told(draft.python_problem),
        "hash": draft.hash,
        "command": command_of(draft),
        "can_undo": draft.undo_label is not None,
        "undo_label": draft.undo_label,
        "can_redo": draft.can_redo,
        "saved_path": None if draft.saved_path is None else str(draft.saved_path),
        "is_saved": draft.is_saved,
        "address": draft.address,
        "notes": draft.notes,
        "sections": sections_of(draft.document, own_names),
        "models": models() + [{"name": name, "help": "From this notebook."} for name in own_names],
        "datasets": datasets(),
        "presets": described(),
    })  # fmt: skip


def _told(error: WorkbenchError | None) -> dict[str, Any] | None:
    return None if error is None else error.to_json()


def command_of(draft: Draft) -> str:
    """Return the command that runs the experiment, once it is saved."""
    address = draft.right_address  # a wrong one may hold a password
    command = "submit" if is_jobs_address(address) else "sweep"
    words = ["workbench", command, str(draft.saved_path or default_path(draft))]
    words += [] if address is None else ["--address", address]
    return shlex.join(words)


def default_path(draft: Draft) -> Path:
    """Return a file that the experiment could be saved as."""
    name = re.sub(r"[^\w.-]+", "-", draft.experiment.name).strip("-.")
    return Path(f"{name or 'experiment'}.yaml")
