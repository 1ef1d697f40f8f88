"""Automatic machine learning in three lines: data in, a tuned and honestly tested model out.

It detects the task, sets aside a test part that no decision uses, sweeps suitable models of the zoo
within a time budget, combines the best where that helps, and compares the result with the simplest
guess. It creates an ordinary experiment and an ordinary run: driving, following and changing it is
left to the run.
"""

from __future__ import annotations

from workbench.runs.automl.launch import automl
from workbench.runs.automl.result import AutoML

__all__ = ["AutoML", "automl"]
