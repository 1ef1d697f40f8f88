"""A summary of the data of an experiment, made in a child process.

It runs as a program, `python -m workbench.training.probes.data_summary`, so that the calling
process keeps no data and imports no user code. Making the summary is left to `data.preview`.
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
    """Summarise the data of an experiment. This takes as long as reading the data.

    Args:
        experiment: The experiment.
        needed_samples_per_s: Samples per second that the training reads, if measured.
        num_samples: Samples to show, at least 1.

    Returns:
        Plain values from `data.preview.preview`. For a table, the samples are its first rows as
        written in the file, the warnings include its notes, and the contents describe its columns.

    Raises:
        ExperimentError: If the experiment has no data, or the name or an option is wrong.
        DataError: If the data is missing or cannot be read or understood.
        RunError: If the child process ends without an answer.
    """
    if experiment.data is None:
        raise ExperimentError(
            "a train function reads its own data, so it cannot be shown", field="train"
        )
    question = {"needed_samples_per_s": needed_samples_per_s, "num_samples": num_samples}
    return query(__name__, experiment, question, purpose="the data could not be inspected")


def _answer(experiment: Experiment, question: dict[str, Any]) -> dict[str, Any]:
    """Summarise the data in this process."""
    component = experiment.data
    training = experiment.training
    num_samples = question["num_samples"]
    assert component is not None
    batch = training.global_batch
    if batch == "auto":
        batch = training.reference_batch
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
    seen["contents"] = table.lines() if table is not None else []
    seen["warnings"] += notes_of(component)
    return seen


if __name__ == "__main__":
    answer(_answer)
