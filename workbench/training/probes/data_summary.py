"""A summary of the data of an experiment, made in a child process.

Called as `python -m workbench.training.probes.data_summary`. The calling process keeps no data and
imports no user code. What the summary holds is left to `data.preview`.
"""

from __future__ import annotations

from typing import Any

from workbench.data import check_options, notes_of, summary_of
from workbench.data.preview import preview
from workbench.experiment import Experiment
from workbench.foundation.errors import ExperimentError
from workbench.training.loading import load_trial_data
from workbench.training.probes.child_process import answer, query


def picture_data(
    experiment: Experiment, *, needed_samples_per_s: float | None = None, num_samples: int = 12
) -> dict[str, Any]:
    """Summarise the data of an experiment; takes as long as reading it does.

    Args:
        experiment: The experiment.
        needed_samples_per_s: How many samples a second training takes, where that was measured.
        num_samples: Samples to show, at least 1.

    Returns:
        Plain values, as `data.preview.preview` returns them; of a table the first rows as they are
        written, in place of what training is given, its notes among the warnings, and as contents
        what it consists of.

    Raises:
        ExperimentError: If the experiment names no data, or the name or an option is wrong.
        DataError: If the data is missing or cannot be read or understood.
        RunError: If the child process ends without an answer.
    """
    if experiment.data is None:
        raise ExperimentError("what a train function reads is its own", field="train")
    question = {"needed_samples_per_s": needed_samples_per_s, "num_samples": num_samples}
    return query(__name__, experiment, question, purpose="the data could not be inspected")


def _answer(experiment: Experiment, question: dict[str, Any]) -> dict[str, Any]:
    """Summarise the data in this process."""
    component, training, num_samples = experiment.data, experiment.training, question["num_samples"]
    assert component is not None
    batch = training.reference_batch if training.global_batch == "auto" else training.global_batch
    datasets = load_trial_data("picture", experiment)
    seen = preview(
        datasets,
        num_samples=num_samples,
        seed=experiment.seed,
        batch=batch,
        needed_samples_per_s=question["needed_samples_per_s"],
    )
    if not component.is_reference:
        rows = check_options(component.name, component.options).written_rows(num_samples)
        if rows is not None:
            names, written = rows
            seen["samples"] = [
                {
                    "kind": "row",
                    "cells": dict(zip(names[:-1], cells, strict=False)),
                    "target": cells[-1],
                }
                for cells in written
            ]
    table = summary_of(component)
    seen["contents"] = [] if table is None else table.lines()
    seen["warnings"] += notes_of(component)
    return seen


if __name__ == "__main__":
    answer(_answer)
