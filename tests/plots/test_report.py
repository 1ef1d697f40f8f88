from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from workbench.events import Noted
from workbench.experiment import Experiment
from workbench.plots.figures import javascript
from workbench.plots.report import report_html
from workbench.plots.report_tables import duration

VOID = {"meta", "br", "link", "img"}


class Outline(HTMLParser):
    """Checks that tags nest, and keeps headings and identifiers."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[str] = []
        self.places: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        self.places += [value for name, value in attrs if name == "id" and tag == "div"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("h1", "h2"):
            self.headings.append(data)


def without_plotly(page: str) -> str:
    return page.replace(javascript(), "")


@pytest.fixture(scope="module")
def recorded_page(recorded_experiment, recorded_events) -> str:
    return report_html(
        recorded_experiment, recorded_events, importance={"lr": 0.8, "width": 0.2}, run_id="r-7"
    )


def test_the_page_gives_the_answer_first(recorded_page):
    assert Outline(without_plotly(recorded_page)).headings == [
        "digits-mlp",
        "Best result",
        "How the trials converged",
        "What made the difference",
        "Where the time went",
        "Best trials",
        "Failures",
        "What was searched",
        "Do it again",
        "Environment",
    ]
    assert '<div class="value">0.97333</div>' in recorded_page
    assert "Target val_accuracy 0.98 not reached" in recorded_page
    assert "workbench export r-7" in recorded_page


def test_every_figure_has_its_place(recorded_page):
    kinds = ["convergence", "by-time", "importance", "parallel", "slice", "timeline", "throughput"]
    assert Outline(without_plotly(recorded_page)).places == [f"plot-{kind}" for kind in kinds]


def test_the_page_refers_to_nothing_outside_itself(recorded_page):
    page = without_plotly(recorded_page)
    assert re.findall(r"https?://|//[a-z]+\.|src=|@import|url\(", page) == []


def test_the_experiment_on_the_page_is_the_experiment(recorded_page, recorded_experiment):
    written = re.search(r"digits-mlp.yaml</h3><pre>(.*?)</pre>", recorded_page, re.DOTALL)
    assert written
    assert Experiment.from_yaml(written[1].replace("&#x27;", "'")).hash() == recorded_experiment.hash()


@pytest.mark.parametrize(
    ("num_trials", "state", "said"),
    [
        (0, "complete", "No trial has started yet."),
        (3, "pruned", "No trial is complete yet."),
        (3, "failed", "Every trial failed."),
        (1, "complete", "loss, trial 0"),
    ],
)
def test_the_page_makes_sense_whatever_happened(num_trials, state, said, one_objective, make_events):
    page = without_plotly(report_html(one_objective, make_events(one_objective, num_trials, state=state)))
    Outline(page)
    assert said in page


def test_several_objectives_show_their_front(two_objectives, make_events):
    page = without_plotly(report_html(two_objectives, make_events(two_objectives, 40)))
    assert "plot-pareto" in Outline(page).places
    assert "beaten by no other in every objective" in page
    assert "trials on the front" in page


def test_what_people_wrote_is_escaped(one_objective, make_events):
    events = [*make_events(one_objective, 30), Noted(level="warning", message="<img src=x>")]
    page = without_plotly(report_html(one_objective, events, run_id="<r>", importance={"<x>": 1.0}))
    Outline(page)
    for raw in ("<b>", "<i>", "<host>", "<script>alert", "<img", "<string>", "<r>", "<x>"):
        assert raw not in page
    assert "&lt;img src=x&gt;" in page
    assert "<pre>workbench sweep b-bold-b-quoted.yaml</pre>" in page


def test_two_thousand_trials_fit_into_eight_megabytes(one_objective, make_events):
    page = report_html(one_objective, make_events(one_objective, 2000, num_reports=30))
    assert len(page.encode()) < 8e6


@pytest.mark.parametrize(
    ("seconds", "written"), [(0.84, "0.84 s"), (59.99, "60 s"), (250, "4 min 10 s"), (7500, "2 h 5 min")]
)
def test_durations_read_as_people_say_them(seconds, written):
    assert duration(seconds) == written
