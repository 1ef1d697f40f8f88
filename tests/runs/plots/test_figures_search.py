"""Figures of how a search went, and what their tooltips and clicks rest on."""

from __future__ import annotations

import pytest

from workbench.runs.plots.figures import FIGURES, hover_of
from workbench.runs.plots.prepare_search import (
    prepare_best_by_trial,
    prepare_distribution,
    prepare_pairs,
)
from workbench.runs.plots.run_data import RunData
from workbench.runs.plots.theme import BEST


@pytest.fixture(scope="module")
def run(one_objective, make_events) -> RunData:
    return RunData.of(one_objective, make_events(one_objective, 30))


def test_the_best_by_trial_never_gets_worse_and_ends_at_the_best(run):
    data = prepare_best_by_trial(run)
    best = run.history.best()
    assert list(data.trials) == sorted(data.trials)
    assert list(data.best) == sorted(data.best, reverse=True), "a loss is minimized"
    assert data.best[-1] == best.values["loss"]


def test_the_best_by_trial_rings_the_best_as_other_figures_do(run):
    best = run.history.best()
    [ringed] = [trace for trace in FIGURES["best_by_trial"](run).data if trace.marker.color == BEST]
    assert (list(ringed.x), list(ringed.y)) == ([best.number], [best.values["loss"]])


def test_the_distribution_rises_from_one_trial_to_all(run):
    data = prepare_distribution(run)
    num_complete = len(run.history.ranked())
    assert (data.shares[0], data.shares[-1]) == (1 / num_complete, 1.0)
    assert list(data.values) == sorted(data.values)


def test_pairs_rank_the_best_first_and_estimate_within_what_was_seen(run):
    data = prepare_pairs(run, with_grid=True)
    assert {(panel.x_axis.name, panel.y_axis.name) for panel in data.panels} >= {("x", "kind")}
    assert data.ranks[data.trials.index(data.best_trial)] == 0.0
    for panel in data.panels:
        seen = [data.values[row] for row in panel.rows]
        assert all(min(seen) <= value <= max(seen) for row in panel.grid for value in row)


@pytest.mark.parametrize(
    "name", ["parallel", "slice", "timeline", "best_by_trial", "edf", "contour", "rank"]
)
def test_points_of_trials_have_the_number_and_the_configuration(run, name):
    figure = FIGURES[name](run)
    marked = [trace for trace in figure.data if trace.meta == "trials"]
    assert marked
    for trace in marked:
        for point in trace.customdata:
            trial = point if isinstance(point, int) else point[0]
            assert int(trial) in run.history.trials
    assert "x: " in figure.to_json()


def test_what_a_user_wrote_is_text_in_a_tooltip(run):
    numbers = [
        trial.number for trial in run.history.trials.values() if trial.params["kind"] == "a<i>"
    ]
    assert "kind: a&lt;i&gt;" in hover_of(run)(numbers[0])
