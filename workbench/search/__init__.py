"""The study: what to try next, what to stop, and what was best.

This is the only package that uses Optuna. A study is a projection of a run's events: `rebuild`
replays them and then proposes what the live study would have proposed. There is no I/O except in
`export`, and neither Ray nor a clock is used, so a for-loop in a notebook can drive a study. The
driver of a run trains, and decides when to ask and when the budget is spent.

- The study: `study`, `study_records`, `follow_ups`, `export`.
- Optuna behind it: `optuna_study`, `optuna_space`, `optuna_versions`.
- What to try next: `samplers`, `sampler_and_pruner`, `first_configurations`,
  `gaussian_process_sampler`, `population`, `bandit`.
- What to stop: `pruners`, `curves`, `front_growth`.
- Models of results: `gaussian_process`, `acquisition_search`, `encoding`, `partial_results`,
  `resource_models`.
- What mattered: `importance`, `variance_shares`.
"""

from __future__ import annotations

from workbench.search.export import copy_study_file
from workbench.search.samplers import check
from workbench.search.study import Study
from workbench.search.study_records import Proposal

__all__ = ["Proposal", "Study", "check", "copy_study_file"]
