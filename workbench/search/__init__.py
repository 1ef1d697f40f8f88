"""The study: what to try next, what to stop, what was best. The only package that uses Optuna.

It is a projection of a run's events: `rebuild` replays them and proposes what the live study would
have proposed. It does no I/O except in `export`, and uses neither Ray nor a clock: a for-loop in a
notebook can drive it. When to ask, when the budget is spent, and who trains is left to the driver
of a run.
"""

from __future__ import annotations

from workbench.search.export import copy_study_file
from workbench.search.records import Proposal
from workbench.search.samplers import check
from workbench.search.study import Study

__all__ = ["Proposal", "Study", "check", "copy_study_file"]
