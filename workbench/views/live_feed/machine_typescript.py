"""The TypeScript types of machines.

`python -m workbench.views.live_feed.machine_typescript` prints them.
"""

from __future__ import annotations

import sys

from workbench.foundation.typescript import typescript_of
from workbench.views.live_feed.machine_history import MachinesHistory
from workbench.views.live_feed.machines import MachinesStatus

MACHINE_MESSAGES = (MachinesStatus, MachinesHistory)


def typescript() -> str:
    """Return the TypeScript source of all types of machines, now and over time."""
    return typescript_of(MACHINE_MESSAGES, "workbench.views.live_feed.machine_typescript")


if __name__ == "__main__":
    sys.stdout.write(typescript())
