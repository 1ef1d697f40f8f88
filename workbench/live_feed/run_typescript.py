"""The TypeScript types of what the views of one run show: `python -m workbench.live_feed.run_typescript`."""

from __future__ import annotations

import sys

from workbench.live_feed.action_typescript import ACTION_MESSAGES
from workbench.live_feed.protocol import (
    ChartQuery,
    ChartUpdate,
    LogUpdate,
    RunDetail,
    TableQuery,
    TrialDetail,
    TrialTable,
)
from workbench.live_feed.trial_log import TrialLog, TrialLogQuery
from workbench.typescript import typescript_of

RUN_MESSAGES = (
    RunDetail, ChartQuery, ChartUpdate, TableQuery, TrialTable, TrialDetail, TrialLogQuery, TrialLog,
    LogUpdate,
)  # fmt: skip


def typescript() -> str:
    """Return the TypeScript source of all types that the views of one run show."""
    return typescript_of(
        RUN_MESSAGES, "workbench.live_feed.run_typescript", shared={"./action_types": ACTION_MESSAGES}
    )


if __name__ == "__main__":
    sys.stdout.write(typescript())
