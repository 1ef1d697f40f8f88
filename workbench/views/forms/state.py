"""The state of a form: everything that it shows of a draft."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from workbench.experiment.actions import is_jobs_address
from workbench.foundation.errors import WorkbenchError
from workbench.foundation.python_values import plain
from workbench.views.forms.draft import Draft
from workbench.views.forms.fields import datasets, models, sections_of
from workbench.views.forms.presets import described, example
from workbench.views.forms.protocol import FormState, NamedChoice
from workbench.views.forms.search_rows import rows_of_search


def state_of(
    draft: Draft, *, answered: int = 0, refusal: WorkbenchError | None = None
) -> FormState:
    """Return everything that a form shows of a draft.

    Args:
        draft: The draft.
        answered: The last message of the form that the draft includes.
        refusal: Why that message was refused.
    """
    own_names = draft.notebook.names()
    problems = list(draft.problems)
    if refusal is not None:
        problems.insert(0, refusal)
    saved_path = None
    if draft.saved_path is not None:
        saved_path = str(draft.saved_path)
    shipped_example = None
    if draft.is_untouched:
        shipped_example = example()
    return FormState(
        revision=draft.revision,
        answered=answered,
        document=plain(draft.document),
        is_experiment=draft.is_experiment,
        problems=tuple(error.to_problem() for error in problems),
        yaml=draft.yaml,
        yaml_problems=tuple(error.to_problem() for error in draft.yaml_problems),
        python=draft.python,
        python_problems=tuple(error.to_problem() for error in draft.python_problems),
        hash=draft.hash,
        command=command_of(draft),
        can_undo=draft.undo_label is not None,
        undo_label=draft.undo_label,
        can_redo=draft.can_redo,
        saved_path=saved_path,
        is_saved=draft.is_saved,
        address=draft.address,
        notes=tuple(draft.notes),
        search=rows_of_search(plain(draft.document)),
        sections=tuple(sections_of(draft.document, own_names, draft.own_values())),
        models=(
            *(
                NamedChoice(name=name, help="From this notebook.", is_own=True)
                for name in own_names
            ),
            *models(),
        ),
        datasets=tuple(datasets()),
        presets=tuple(described()),
        example=shipped_example,
    )


def command_of(draft: Draft) -> str:
    """Return the command that runs the experiment once it is saved."""
    address = draft.valid_address  # an invalid one may contain a password
    command = "sweep"
    if is_jobs_address(address):
        command = "submit"
    words = ["workbench", command, str(draft.saved_path or default_path(draft))]
    if address is not None:
        words += ["--address", address]
    return shlex.join(words)


def default_path(draft: Draft) -> Path:
    """Return the default path for saving the experiment."""
    name = re.sub(r"[^\w.-]+", "-", draft.experiment.name).strip("-.")
    return Path(f"{name or 'experiment'}.yaml")
