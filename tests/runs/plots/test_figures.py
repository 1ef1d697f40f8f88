from __future__ import annotations

import json
import subprocess
import sys

import pytest

from workbench.experiment import Experiment
from workbench.runs.plots.figures import FIGURES
from workbench.runs.plots.figures_trials import draw_importance
from workbench.runs.plots.parameter_axes import ParameterLayout
from workbench.runs.plots.prepare_search import prepare_importance
from workbench.runs.plots.run_data import RunData


@pytest.mark.parametrize("num_trials", [0, 1, 8, 300])
@pytest.mark.parametrize("kind", sorted(FIGURES))
def test_every_figure_is_valid_json_whatever_happened(
    kind, num_trials, make_events, two_objectives
):
    run = RunData.of(two_objectives, make_events(two_objectives, num_trials))
    options = (
        {"importance": {"x": (0.7, 0.5, 0.8), "kind": (float("nan"), 0.0, 1.0)}}
        if kind == "importance"
        else {}
    )
    document = FIGURES[kind](run, **options).to_json()
    json.loads(document, parse_constant=pytest.fail)
    assert len(document) < 400_000


def test_the_best_trial_stands_out_and_pruned_ones_stand_back(recorded_experiment, recorded_events):
    figure = FIGURES["convergence"](RunData.of(recorded_experiment, recorded_events))
    traces = {trace.name: trace for trace in figure.data}
    assert list(traces) == ["pruned", "complete", "best: trial 1", "best so far"]
    assert traces["best: trial 1"].line.width > traces["complete"].line.width
    assert traces["pruned"].opacity < traces["complete"].opacity


def test_the_axis_of_shares_ends_at_all_of_it_and_an_unclear_one_is_named():
    figure = draw_importance(prepare_importance({"x": (0.99, 0.003, 0.99)}), "loss")
    assert figure.layout.xaxis.range[1] <= 1
    assert figure.layout.title.subtitle.text == "Not resolved: x"


def test_a_point_of_the_front_names_its_objectives(two_objectives, make_events):
    figure = FIGURES["pareto"](RunData.of(two_objectives, make_events(two_objectives, 8)))
    texts = [trace.hovertemplate for trace in figure.data]
    assert texts
    assert all("<br>error: %{x:.6g}<br>speed: %{y:.6g}" in text for text in texts)


def test_a_persons_words_are_not_read_as_markup(one_objective, make_events):
    figure = FIGURES["slice"](RunData.of(one_objective, make_events(one_objective, 8)))
    shown = [label for trace in figure.data for label in trace.x if isinstance(label, str)]
    assert set(shown) == {"a&lt;i&gt;", "b"}


def test_preparing_loads_no_plotly():
    code = "import sys, workbench.runs.plots.prepare_trials; sys.exit('plotly' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_names_of_the_outer_axes_have_as_much_room_as_those_between(one_objective, make_events):
    figure = FIGURES["parallel"](RunData.of(one_objective, make_events(one_objective, 8)))
    places = [label.x for label in figure.layout.annotations if label.text.startswith("<b>")]
    assert len(places) > 2
    assert figure.layout.xaxis.range == (min(places) - 0.5, max(places) + 0.5)


@pytest.mark.parametrize("kind", ["parallel", "slice", "contour", "rank"])
def test_a_range_of_more_decades_than_a_quotient_can_hold_is_drawn(kind, make_events):
    experiment = Experiment(
        name="wide",
        train="package.module:function",
        objectives=[{"metric": "loss", "goal": "minimize"}],
        search={
            "x": {"low": 1e-300, "high": 1e30, "log": True},
            "y": {"low": 1e-200, "high": 1e200, "log": True},
        },
    )
    run = RunData.of(experiment, make_events(experiment, 8))
    json.loads(FIGURES[kind](run).to_json(), parse_constant=pytest.fail)
    places = [
        ParameterLayout("x", experiment.search.root["x"], []).place(x)
        for x in (1e-300, 1e-135, 1e30)
    ]
    assert places == pytest.approx([0.0, 0.5, 1.0])
