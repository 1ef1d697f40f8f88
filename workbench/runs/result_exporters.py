"""Exporters of runs whose result is more than one trial.

A package that creates such runs builds on `Run`, so `Run` cannot import it. It registers its
exporter here instead, in the same way as its conclusion in `workbench.sweeps.conclusion`. The
exporter is only loaded for runs of its kind.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from workbench.experiment import Experiment
from workbench.experiment.automl import HELD_OUT, is_automl
from workbench.foundation.registry import Registry

ResultExporter: TypeAlias = Callable[[Any, str | Path, bool], Path]
"""(run, folder, force) -> the folder with the bundle. The run is a `workbench.runs.Run`."""

_EXPORTERS = Registry("result exporter", {HELD_OUT: "workbench.runs.automl.result:export_result"})


def result_exporter(experiment: Experiment) -> ResultExporter | None:
    """Return the exporter of a run's result, or None if its result is its best trial.

    Args:
        experiment: The experiment of the run.
    """
    return _EXPORTERS.load(HELD_OUT) if is_automl(experiment) else None
