"""Automatic machine learning in three lines: data in, a tuned and honestly tested model out.

It detects the task, sets aside a test part that no decision uses, sweeps suitable models of the zoo
within a time budget, combines the best where that helps, and compares the result with the simplest
guess. It creates an ordinary experiment and an ordinary run: driving, following and changing it is
left to the run.

- From data to a run: `request`, `given_data`, `task_detection`, `column_roles`, `row_roles`,
  `targets`, `several_targets`, `preparation`, `launch`.
- What is tried: `presets`, `candidates`, `trials_here`.
- From trials to a model: `candidate_results`, `model_selection`, `class_decisions`, `refitting`,
  `group_offsets`, `conclusion`, `stored_model`.
- How good it is: `scores`, `score_intervals`, `error_bands`, `error_slices`, `held_out_analysis`,
  `latency`.
- The result: `result`, `result_summary`, `exported_ensemble`.
"""

from __future__ import annotations

from workbench.runs.automl.launch import automl
from workbench.runs.automl.result import AutoML

__all__ = ["AutoML", "automl"]
