"""The TypeScript types of the live feed: `python -m workbench.live_feed.typescript` prints them."""

from __future__ import annotations

import sys

from workbench.errors import Problem
from workbench.live_feed.action_messages import Action, ActionSnippet, Done, ExperimentFile, SizeOfRun
from workbench.live_feed.protocol import (
    AcknowledgeMessage,
    SubscribeMessage,
    Update,
)
from workbench.typescript import typescript_of

_PROTOCOL = (
    SubscribeMessage,
    AcknowledgeMessage,
    Update,
    Action,
    Done,
    Problem,
    ActionSnippet,
    ExperimentFile,
    SizeOfRun,
)


def typescript() -> str:
    """Return the TypeScript source of all types of the live feed."""
    return typescript_of(_PROTOCOL, "workbench.live_feed.typescript")


if __name__ == "__main__":
    sys.stdout.write(typescript())
