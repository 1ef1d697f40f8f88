"""The study: what to try next, what to stop, what was best. The only package that uses Optuna.

A study is a projection of a run's events. `rebuild` replays them and then proposes what the live
study would have proposed. There is no I/O except in `export`, and neither Ray nor a clock is used,
so a for-loop in a notebook can drive a study. The driver of a run trains, and decides when to ask
and when the budget is spent.
"""

from __future__ import annotations

from workbench.search.export import copy_study_file
from workbench.search.samplers import check
from workbench.search.study import Study
from workbench.search.study_records import Proposal

__all__ = ["Proposal", "Study", "check", "copy_study_file"]
