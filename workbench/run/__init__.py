"""A run as a person holds it in Python: start it, look at it, ask it to change, take the result along.

Everything is read from the store, and everything that is asked is left in the store for the run's driver:
a `Run` can be made, dropped and made again at any moment without the run noticing. How a run is driven is
left to the sweeps, how pictures are drawn to the plots, how things look on a terminal to the command line.
"""

from __future__ import annotations

from workbench.run.advising import advise
from workbench.run.attached import Run, attach
from workbench.run.experiment_file import read_experiment
from workbench.run.loading import Bundle, load_bundle
from workbench.run.several import compare
from workbench.run.starting import create, missing_lessons, start, sweep, take_up
from workbench.run.submitting import SubmittedRun, submit

__all__ = [
    "Bundle",
    "Run",
    "SubmittedRun",
    "advise",
    "attach",
    "compare",
    "create",
    "load_bundle",
    "missing_lessons",
    "read_experiment",
    "start",
    "submit",
    "sweep",
    "take_up",
]
