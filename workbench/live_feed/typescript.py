"""The TypeScript types of the live feed: `python -m workbench.live_feed.typescript` prints them."""

from __future__ import annotations

import sys

from workbench.live_feed.action_typescript import ACTION_MESSAGES
from workbench.live_feed.protocol import (
    AcknowledgeMessage,
    SubscribeMessage,
    Update,
)
from workbench.typescript import typescript_of


def typescript() -> str:
    """Return the TypeScript source of all types of the live feed."""
    return typescript_of(
        (SubscribeMessage, AcknowledgeMessage, Update), "workbench.live_feed.typescript",
        shared={"./action_types": ACTION_MESSAGES},
    )  # fmt: skip


if __name__ == "__main__":
    sys.stdout.write(typescript())
