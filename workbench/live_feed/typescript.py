"""The TypeScript types of the messages of the live feed: `python -m workbench.live_feed.typescript`."""

from __future__ import annotations

import sys

from workbench.live_feed.action_typescript import ACTION_MESSAGES
from workbench.live_feed.machine_typescript import MACHINE_MESSAGES
from workbench.live_feed.protocol import AcknowledgeMessage, SubscribeMessage, Update
from workbench.live_feed.run_list_typescript import RUN_LIST_MESSAGES
from workbench.live_feed.run_typescript import RUN_MESSAGES
from workbench.typescript import typescript_of


def typescript() -> str:
    """Return the TypeScript source of all messages of the live feed; what they carry has other files."""
    shared = {
        "./action_types": ACTION_MESSAGES, "./machine_types": MACHINE_MESSAGES,
        "./run_list_types": RUN_LIST_MESSAGES, "./run_types": RUN_MESSAGES,
    }  # fmt: skip
    return typescript_of(
        (SubscribeMessage, AcknowledgeMessage, Update), "workbench.live_feed.typescript",
        shared=shared,
    )  # fmt: skip


if __name__ == "__main__":
    sys.stdout.write(typescript())
