"""Everything that you can do with a run.

Each action is declared once, with its arguments, its texts and its condition. The command line,
`Run`, the driver, the server and the browser read this table, and carry the actions out.
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
