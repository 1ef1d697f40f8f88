"""Runs in Python: start one, inspect it, change it, export its result.

Everything is read from the store, and every command for a run's driver is stored there: a `Run`
object can be created and dropped at any moment without affecting the run. How a run is driven is
left to `sweeps`, and how results look on a terminal to `cli`.

`run` lists what can be done with a run, and says where it is done. Rooms inside: `automl`,
`bundles` (exported models), `importing` (runs of other tools), `plots` (figures and the report),
`provisioning` (machines to rent) and `scripts` (a first experiment for a script).

- Starting: `experiment_file`, `dry_run`, `creation`, `launch`, `submission`, `advising`,
  `compressing`.
- Reading: `stored_run`, `result`, `progress`, `waiting`, `summary`, `descriptions`, `event_lines`,
  `comparison`.
- Changing: `control`, `space_suggestions`.
- One object for all of it: `run`.
- Pictures and notebooks: `run_figures`, `notebook_output`, `cell_outputs`.
- Is it better: `decisions`, `trial_decisions`, `guarded_sessions`, `replay_comparison`.
- What else would be faster: `what_if`.
"""

from __future__ import annotations

from workbench.runs.advising import advise
from workbench.runs.bundles.bundle_loading import Bundle, load_bundle
from workbench.runs.bundles.ensemble import Ensemble
from workbench.runs.comparison import compare, compare_table
from workbench.runs.experiment_file import change_experiment, read_experiment
from workbench.runs.launch import (
    SIMILAR_RUNS,
    create,
    find_earlier_runs,
    find_experiment,
    find_same_run,
    missing_warm_starts,
    start,
    sweep,
)
from workbench.runs.run import Run, attach
from workbench.runs.submission import SubmittedRun, submit

__all__ = [
    "SIMILAR_RUNS",
    "Bundle",
    "Ensemble",
    "Run",
    "SubmittedRun",
    "advise",
    "attach",
    "change_experiment",
    "compare",
    "compare_table",
    "create",
    "find_earlier_runs",
    "find_experiment",
    "find_same_run",
    "load_bundle",
    "missing_warm_starts",
    "read_experiment",
    "start",
    "submit",
    "sweep",
]
