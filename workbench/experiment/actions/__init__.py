"""Everything that can be done with a run.

Each action is declared once, with its arguments and its wording.

The command line, `Run`, the driver, the server and the dialogs of the browser read the table: it
holds names, types, limits and texts, and says when an action is possible. Carrying an action out is
left to those above.
"""

from workbench.experiment.actions import arguments
from workbench.experiment.actions.action import (
    Action,
    Argument,
    Standing,
    check_arguments,
    check_payload,
    experiment_settings,
)
from workbench.experiment.actions.snippets import (
    Snippet,
    command_words,
    snippet_of,
    suggest,
    write_assignments,
    write_for_panel,
)
from workbench.experiment.actions.table import ACTIONS, action_of, is_jobs_address, stored_payload

__all__ = [
    "ACTIONS",
    "Action",
    "Argument",
    "Snippet",
    "Standing",
    "action_of",
    "arguments",
    "check_arguments",
    "check_payload",
    "command_words",
    "experiment_settings",
    "is_jobs_address",
    "snippet_of",
    "stored_payload",
    "suggest",
    "write_assignments",
    "write_for_panel",
]
