"""The types of lists of runs and comparisons.

`python -m workbench.views.live_feed.run_list_typescript`.
"""

from __future__ import annotations

import sys

from workbench.foundation.typescript import typescript_of
from workbench.views.live_feed.protocol import Comparison, ComparisonQuery, RunList, RunsQuery
from workbench.views.live_feed.run_typescript import RUN_MESSAGES

RUN_LIST_MESSAGES = (RunsQuery, RunList, ComparisonQuery, Comparison)


def typescript() -> str:
    """Return the TypeScript source of all types that lists and comparisons of runs show."""
    return typescript_of(
        RUN_LIST_MESSAGES,
        "workbench.views.live_feed.run_list_typescript",
        shared={"./run_types": RUN_MESSAGES},
    )


if __name__ == "__main__":
    sys.stdout.write(typescript())
