"""The TypeScript types of the messages of the live feed.

`python -m workbench.views.live_feed.typescript`.
"""

from __future__ import annotations

import sys

from workbench.foundation.typescript import typescript_of
from workbench.views.live_feed.action_typescript import ACTION_MESSAGES
from workbench.views.live_feed.machine_typescript import MACHINE_MESSAGES
from workbench.views.live_feed.protocol import AcknowledgeMessage, SubscribeMessage, Update
from workbench.views.live_feed.run_list_typescript import RUN_LIST_MESSAGES
from workbench.views.live_feed.run_typescript import RUN_MESSAGES


def typescript() -> str:
    """Return the TypeScript source of all messages of the live feed.

    What they carry has other files.
    """
    shared = {
        "./action_types": ACTION_MESSAGES,
        "./machine_types": MACHINE_MESSAGES,
        "./run_list_types": RUN_LIST_MESSAGES,
        "./run_types": RUN_MESSAGES,
    }
    return typescript_of(
        (SubscribeMessage, AcknowledgeMessage, Update),
        "workbench.views.live_feed.typescript",
        shared=shared,
    )


if __name__ == "__main__":
    sys.stdout.write(typescript())
