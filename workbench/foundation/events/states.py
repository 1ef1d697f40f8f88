"""The states of runs and trials, and why a trial failed."""

from __future__ import annotations

from typing import Literal

TrialState = Literal["waiting", "running", "complete", "pruned", "stopped", "failed"]
RunState = Literal["waiting", "running", "stopping", "complete", "stopped", "failed", "lost"]
Reason = Literal["oom", "diverged", "error", "lost", "timeout", "storage"]

FINISHED_TRIAL_STATES: frozenset[TrialState] = frozenset(
    {"complete", "pruned", "stopped", "failed"}
)
FINISHED_RUN_STATES: frozenset[RunState] = frozenset({"complete", "stopped", "failed"})
