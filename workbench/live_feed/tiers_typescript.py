"""The TypeScript types of the view of tiers: `python -m workbench.live_feed.tiers_typescript` prints them."""

from __future__ import annotations

import sys

from workbench.errors import Problem
from workbench.live_feed.tiers_picture import (
    RunTiers,
    StopTiers,
    TiersHello,
    TiersPicture,
    TiersRun,
    TiersStatus,
)
from workbench.typescript import typescript_of

_PROTOCOL = (TiersHello, RunTiers, StopTiers, TiersPicture, TiersStatus, TiersRun)


def typescript() -> str:
    """Return the TypeScript source of all types of the view of tiers."""
    shared = {"../action_types": (Problem,)}
    return typescript_of(_PROTOCOL, "workbench.live_feed.tiers_typescript", shared=shared)


if __name__ == "__main__":
    sys.stdout.write(typescript())
