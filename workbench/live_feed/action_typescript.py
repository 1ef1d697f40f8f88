"""The TypeScript types of actions: `python -m workbench.live_feed.action_typescript` prints them."""

from __future__ import annotations

import sys

from workbench.errors import Problem
from workbench.live_feed.action_messages import (
    Action,
    ActionSnippet,
    Done,
    ExperimentFile,
    Offer,
    SizeOfRun,
)
from workbench.typescript import typescript_of

ACTION_MESSAGES = (Action, Offer, Done, Problem, ActionSnippet, ExperimentFile, SizeOfRun)


def typescript() -> str:
    """Return the TypeScript source of all types of actions."""
    return typescript_of(ACTION_MESSAGES, "workbench.live_feed.action_typescript")


if __name__ == "__main__":
    sys.stdout.write(typescript())
