"""The TypeScript types of actions.

`python -m workbench.views.live_feed.action_typescript` prints them.
"""

from __future__ import annotations

import sys

from workbench.foundation.errors import Problem
from workbench.foundation.typescript import typescript_of
from workbench.views.live_feed.action_messages import (
    Action,
    ActionSnippet,
    Done,
    ExperimentFile,
    Offer,
    SizeOfRun,
)

ACTION_MESSAGES = (Action, Offer, Done, Problem, ActionSnippet, ExperimentFile, SizeOfRun)


def typescript() -> str:
    """Return the TypeScript source of all types of actions."""
    return typescript_of(ACTION_MESSAGES, "workbench.views.live_feed.action_typescript")


if __name__ == "__main__":
    sys.stdout.write(typescript())
