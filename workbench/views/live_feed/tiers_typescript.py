"""The TypeScript types of the view of tiers.

`python -m workbench.views.live_feed.tiers_typescript` prints them.
"""

from __future__ import annotations

import sys

from workbench.foundation.errors import Problem
from workbench.foundation.typescript import typescript_of
from workbench.views.live_feed.tiers_picture import (
    RunTiers,
    StopTiers,
    TiersHello,
    TiersPicture,
    TiersRun,
    TiersStatus,
)

_PROTOCOL = (TiersHello, RunTiers, StopTiers, TiersPicture, TiersStatus, TiersRun)


def typescript() -> str:
    """Return the TypeScript source of all types of the view of tiers."""
    shared = {"../action_types": (Problem,)}
    return typescript_of(_PROTOCOL, "workbench.views.live_feed.tiers_typescript", shared=shared)


if __name__ == "__main__":
    sys.stdout.write(typescript())
