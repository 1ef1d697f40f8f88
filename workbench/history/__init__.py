"""What a run has come to: its trials, its state and its best, read off its events.

A history is a projection: the same events give the same history, whoever reads them. It keeps one small
record a trial and no curves; curves are left to the plots, proposals to the study.
"""

from __future__ import annotations

from workbench.history.history import History
from workbench.history.trial import Resize, Trial

__all__ = ["History", "Resize", "Trial"]
