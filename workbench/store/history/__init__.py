"""The history of a run, built from its events: its state, its trials and the best trial.

A history is a projection: the same events always give the same history. It keeps one small record
per trial and no curves.

- The projection: `history`, `trial`, `reports`, `blocks`, `run_clock`.
- Which trial is best: `standings`, `certainty`, `noise_floor`, `sequential_test`.
- Why trials ended: `failures`, `failure_text`, `lineage`, `programs`.
- Columns and traces: `trial_columns`, `trace`, `time_spent`.
- Special runs: `compression`, `privacy`.
"""

from __future__ import annotations

from workbench.store.history.failures import (
    FailureGroup,
    failure_groups,
    only_failures,
    reasons_of_pruning,
    systematic_failure,
)
from workbench.store.history.history import History, cost_of
from workbench.store.history.time_spent import Verdict, verdicts_of, wait_for_proposals
from workbench.store.history.trial import Resize, Trial

__all__ = [
    "FailureGroup",
    "History",
    "Resize",
    "Trial",
    "Verdict",
    "cost_of",
    "failure_groups",
    "only_failures",
    "reasons_of_pruning",
    "systematic_failure",
    "verdicts_of",
    "wait_for_proposals",
]
