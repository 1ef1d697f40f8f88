"""The best so far of a run, over each axis."""

from __future__ import annotations

import pytest

from tests.builders.recorded_runs import EXPERIMENT, START_UNIX_S, begin, trial_events
from workbench.experiment import Experiment
from workbench.runs.plots.prepare_comparison import prepare_best_so_far
from workbench.runs.plots.run_data import RunData


@pytest.fixture(scope="module")
def run() -> RunData:
    """Three trials of 2 s each, at 1, 2 and 5 s.

    The second is the best and the third was pruned.
    """
    return RunData.of(
        Experiment(**EXPERIMENT),
        [
            *begin(),
            *trial_events(0, at_s=1, accuracy=0.8),
            *trial_events(1, at_s=2, accuracy=0.9),
            *trial_events(2, at_s=5, accuracy=0.7, state="pruned"),
        ],
    )


def test_over_time_a_line_rises_when_a_report_is_better_and_reaches_the_last_one(
    run: RunData,
) -> None:
    data = prepare_best_so_far(run)
    assert data.x == pytest.approx((2, 3, 4, 7))
    assert data.y == pytest.approx((0.4, 0.8, 0.9, 0.9))


def test_over_epochs_trials_lie_on_each_other(run: RunData) -> None:
    data = prepare_best_so_far(run, axis="epoch")
    assert (data.x, data.y) == ((1, 2), (0.45, 0.9))


def test_over_trials_only_complete_ones_count(run: RunData) -> None:
    data = prepare_best_so_far(run, axis="trial")
    assert (data.x, data.y) == ((0, 1), (0.8, 0.9))


def test_cost_is_the_time_of_all_workers_and_stands_still_while_nothing_trains(
    run: RunData,
) -> None:
    data = prepare_best_so_far(run, axis="cost")
    assert data.y == pytest.approx((0.4, 0.8, 0.9, 0.9))
    assert list(data.x) == sorted(data.x)
    total_s = sum(trial.duration_s or 0.0 for trial in run.history.trials.values())
    assert 0 < data.x[0] < data.x[-1] < total_s
    assert run.history.clock.at(START_UNIX_S + 1.0) == 1.0


def test_a_metric_that_nobody_reported_has_no_points(run: RunData) -> None:
    assert prepare_best_so_far(run, metric="nothing").x == ()
