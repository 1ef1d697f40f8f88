"""Our choices on trainings that others measured.

A part of what the benchmarks of the advisor look at.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest

from tests.benchmarks import advisor_batch, advisor_budget
from tests.builders.measured import find_measured
from tests.builders.measured_trainings import read_epochs_tasks


def measured(part: str) -> Path:
    folder = find_measured(part)
    if folder is None:
        pytest.skip(f"the public measurements are not here: {part}")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("application", ["bert", "cifar10", "ncf"])
def test_batches_chosen_from_noise_reach_the_accuracy_nearly_first(application: str) -> None:
    cases = advisor_batch.read_cases(
        measured("step_time") / application, placements=("1", "4", "44", "444")
    )
    regrets = {
        name: advisor_batch.regrets_of(cases, advisor_batch.METHODS[name])
        for name in ("most throughput", "ours, first fifth", "ours, middle")
    }
    by_method = {name: fmean(values) for name, values in regrets.items()}
    assert by_method["ours, first fifth"] <= 0.08
    assert max(regrets["ours, first fifth"]) <= 0.3
    assert by_method["ours, middle"] <= 0.08
    assert by_method["ours, middle"] <= by_method["most throughput"]


def test_three_full_runs_find_a_batch_near_the_best_and_one_that_converges() -> None:
    tasks = read_epochs_tasks(measured("batch_to_accuracy"))
    published = [task for task in tasks if task.is_published]
    batches = {
        task.name: advisor_budget.regrets(task, advisor_budget.follow_ours, num_draws=4)
        for task in published
    }
    assert len(batches) == 3
    assert fmean(regret for regrets in batches.values() for regret in regrets) <= 0.05
