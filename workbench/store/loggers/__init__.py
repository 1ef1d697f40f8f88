"""Loggers for other tools, such as TensorBoard, which receive each trial of a run.

A logger is a class with a few methods, for the start, the reports and the end of trials.
`Forwarding` calls them in a separate thread, so the run never waits for them. The driver passes the
events on.
"""

from __future__ import annotations

from workbench.store.loggers.logger import LOGGERS, Forwarding, LoggedRun, TrialLogger

__all__ = ["LOGGERS", "Forwarding", "LoggedRun", "TrialLogger"]
