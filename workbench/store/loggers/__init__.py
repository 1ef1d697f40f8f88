"""Loggers of other makers, such as TensorBoard.

Each trial with its configuration, reports and ending.

A logger is a class with a few methods; `Forwarding` calls them in a thread beside the run, which
never waits for them. Which events there are, and when a run has them, is left to the driver.
"""

from __future__ import annotations

from workbench.store.loggers.forwarding import Forwarding
from workbench.store.loggers.logger import LOGGERS, LoggedRun, TrialLogger

__all__ = ["LOGGERS", "Forwarding", "LoggedRun", "TrialLogger"]
