"""The ways of making a step that are registered, so that tests cover a new one without naming it."""

from __future__ import annotations

from workbench.strategies import STRATEGIES
from workbench.strategies.capabilities import capabilities_of

OF_SEVERAL = tuple(name for name in STRATEGIES.names() if capabilities_of(name).max_workers != 1)
"""The strategies that divide a step among workers."""
