"""The TypeScript types of what the views of one run show.

`python -m workbench.views.live_feed.run_typescript` prints them.
"""

from __future__ import annotations

import sys

from workbench.foundation.typescript import typescript_of
from workbench.views.live_feed.action_typescript import ACTION_MESSAGES
from workbench.views.live_feed.protocol import (
    ChartQuery,
    ChartUpdate,
    LogUpdate,
    RunDetail,
    TableQuery,
    TrialDetail,
    TrialTable,
)
from workbench.views.live_feed.trial_log import TrialLog, TrialLogQuery

RUN_MESSAGES = (
    RunDetail,
    ChartQuery,
    ChartUpdate,
    TableQuery,
    TrialTable,
    TrialDetail,
    TrialLogQuery,
    TrialLog,
    LogUpdate,
)


def typescript() -> str:
    """Return the TypeScript source of all types that the views of one run show."""
    return typescript_of(
        RUN_MESSAGES,
        "workbench.views.live_feed.run_typescript",
        shared={"./action_types": ACTION_MESSAGES},
    )


if __name__ == "__main__":
    sys.stdout.write(typescript())
