from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.builders.recorded_runs import record_run
from workbench.experiment.space import Choice, Float, Int
from workbench.foundation.errors import UnknownNameError
from workbench.runs import Run, attach
from workbench.runs.plots.colouring import COLOURED, SCALE, bar_of
from workbench.runs.plots.parameter_axes import ParameterLayout
from workbench.runs.plots.theme import BEST, GRID, TRIALS
from workbench.store.database import Store


@pytest.fixture
def run(tmp_path: Path) -> Run:
    # Trials 0 (lr 0.01, width 16) and 1 (lr 0.1, width 8, the best) are complete, 2 is pruned.
    run_id = record_run(tmp_path)
    return attach(run_id, store=Store.open(str(tmp_path / "store.sqlite")))


def test_what_stands_for_trials_is_coloured_by_a_parameter_and_the_best_stays(run: Run) -> None:
    for name in sorted({*COLOURED} - {"parallel", "pareto"}):
        figure = run.figure(name, colour="width")
        traces = [trace for trace in figure.data if trace.meta == TRIALS]
        coloured = [
            trace for trace in traces if trace.marker.coloraxis or trace.marker.line.coloraxis
        ]
        assert coloured, name
        complete = next(trace for trace in coloured if trace.name == "complete")
        numbers = [int(item[0]) for item in complete.customdata]
        assert list(complete.marker.color) == [{0: 1.0, 1: 0.0}[number] for number in numbers]
        assert figure.layout.coloraxis.colorbar.title.text == "width"
        assert list(figure.layout.coloraxis.colorbar.ticktext) == ["8", "16"]
        best = [trace for trace in traces if str(trace.name).startswith("best")]
        assert all(trace.marker.color == BEST for trace in best)


def test_lines_are_coloured_by_a_parameter(run: Run) -> None:
    figure = run.figure("parallel", colour="lr")
    (bar,) = [trace.marker for trace in figure.data if trace.marker.colorbar.title.text]
    assert bar.colorbar.title.text == "lr"
    assert [colour for _, colour in bar.colorscale] == SCALE


def test_lines_have_the_colours_of_the_bar_where_values_are_few(run: Run) -> None:
    figure = run.figure("parallel", colour="width")
    (bar,) = [trace.marker for trace in figure.data if trace.marker.colorbar.title.text]
    colours = list(dict.fromkeys(colour for _, colour in bar.colorscale))
    drawn = [trace.line.color for trace in figure.data if trace.name == "complete"]
    assert len(colours) == 2
    assert set(drawn) == set(colours)


@pytest.mark.parametrize(
    ("domain", "texts", "middles"),
    [
        (Int(low=1, high=4), ["1", "2", "3", "4"], [1 / 8, 3 / 8, 5 / 8, 7 / 8]),
        (Float(low=0.1, high=0.3, step=0.1), ["0.1", "0.2", "0.3"], [1 / 6, 1 / 2, 5 / 6]),
        (Choice(choices=[16, 128, 4096]), ["16", "128", "4096"], [1 / 6, 1 / 2, 5 / 6]),
    ],
)
def test_each_of_a_few_values_is_a_field_of_its_own_in_the_bar(domain, texts, middles) -> None:
    bar = bar_of(ParameterLayout("depth", domain, []).axis)
    assert bar["colorbar"]["ticktext"] == texts
    span = bar["cmax"] - bar["cmin"]
    ticks = [(place - bar["cmin"]) / span for place in bar["colorbar"]["tickvals"]]
    assert ticks == pytest.approx(middles)
    fields = [
        (low, high)
        for (low, colour), (high, same) in itertools.pairwise(bar["colorscale"])
        if colour == same
    ]
    assert all(low < tick < high for tick, (low, high) in zip(ticks, fields, strict=True))
    assert len({colour for _, colour in bar["colorscale"]}) == len(texts)


@pytest.mark.parametrize(
    "domain", [Int(low=1, high=100), Int(low=16, high=64, log=True), Float(low=0, high=1)]
)
def test_many_values_have_a_continuous_bar(domain) -> None:
    assert bar_of(ParameterLayout("depth", domain, []).axis)["colorscale"] == SCALE


def test_the_slices_of_one_trial_show_it(run: Run) -> None:
    figure = run.figure("slice", trials=[1])
    shown = [trace for trace in figure.data if trace.name == "complete"]
    assert [(trace.x[0], trace.y[0]) for trace in shown] == [(0.1, 0.95), ("8", 0.95)]


def test_lines_of_other_trials_stay_as_faint_ones(run: Run) -> None:
    figure = run.figure("parallel", trials=[0])
    drawn = {
        int(number): trace.line.color
        for trace in figure.data
        if trace.customdata is not None
        for number in trace.customdata
    }
    assert drawn.keys() == {0, 1, 2}
    assert [number for number, colour in drawn.items() if colour == GRID] == [2, 1]


def test_axes_are_described_for_those_who_select_on_them(run: Run) -> None:
    rate, width, value = run.figure("parallel").layout.meta["axes"]
    assert (rate["name"], rate["is_log"], rate["low"], rate["high"]) == ("lr", True, 1e-4, 0.5)
    assert width["choices"] == ["8", "16"]
    assert (value["name"], value["low"], value["high"]) == ("val_accuracy", 0.91, 0.95)


def test_other_figures_are_drawn_of_the_chosen_trials_alone(run: Run) -> None:
    for name in ("slice", "timeline", "convergence", "best_by_trial"):
        figure = run.figure(name, trials=[0, 1])
        shown = {
            int(item if isinstance(item, int) or not hasattr(item, "__len__") else item[0])
            for trace in figure.data
            if trace.customdata is not None
            for item in trace.customdata
        }
        assert shown == {0, 1}


def test_a_parameter_or_figure_that_does_not_fit_is_refused(run: Run) -> None:
    with pytest.raises(UnknownNameError, match=r"colour: there is no parameter 'depth'.*lr"):
        run.figure("slice", colour="depth")
    with pytest.raises(UnknownNameError, match=r"colour: there is no parameter 'depth'.*lr"):
        run.figure("parallel", colour="depth")
    with pytest.raises(UnknownNameError, match="contour has no colours to choose"):
        run.figure("contour", colour="lr")
