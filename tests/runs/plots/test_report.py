from __future__ import annotations

import base64
import html
import re
from html.parser import HTMLParser

import pytest

from tests.builders import recorded_runs
from tests.builders.advice import EXPERIMENT, advice, events
from tests.builders.recorded_runs import (
    HOSTILE,
    SVG,
    attach,
    begin,
    finish,
    record_run,
    trial_events,
)
from tests.builders.report_pages import report_html
from workbench.experiment import Experiment
from workbench.foundation.events import AdviceGiven, AttachmentSaved, Noted, TrialProposed
from workbench.foundation.formatting import MISSING
from workbench.runs.plots.figures_advice import ADVICE_FIGURES
from workbench.store.database import Store
from workbench.store.history import History

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


@pytest.fixture(scope="module")
def recorded_page(recorded_experiment, recorded_events) -> str:
    return report_html(
        recorded_experiment,
        recorded_events,
        importance={"lr": (0.8, 0.6, 0.9), "width": (0.2, 0.1, 0.4)},
        run_id="r-7",
    )


def test_a_page_takes_little_of_a_mailbox(recorded_page):
    assert len(recorded_page.encode()) < 200_000


def test_the_page_gives_the_answer_first(recorded_page):
    assert Outline(recorded_page).headings == [
        "digits-mlp",
        "Summary",
        "Best result",
        "Notes",
        "How the trials converged",
        "What influenced the result",
        "Where the time went",
        "Best trials",
        "Failures",
        "Search space",
        "Reproduce this run",
        "Environment",
    ]
    assert '<div class="value">0.9733</div>' in recorded_page
    assert "Target val_accuracy 0.98 not reached" in recorded_page
    assert "ended early (lost)" in recorded_page
    assert (
        "Proposed by the sampler auto: first configurations that cover the space evenly"
        in recorded_page
    )
    assert "workbench export r-7" in recorded_page


def test_the_contents_lead_to_every_section_of_the_page(recorded_page):
    page = recorded_page
    (contents,) = re.findall(r'<nav class="contents".*?</nav>', page, re.DOTALL)
    listed = re.findall(r'<a href="#([^"]+)">([^<]+)</a>', contents)
    assert [title for _, title in listed] == Outline(page).headings[1:]
    assert len({place for place, _ in listed}) == len(listed)
    assert all(page.count(f'id="{place}"') == 1 for place, _ in listed)


def test_the_page_compares_with_the_default_and_states_cost_and_samples(
    recorded_experiment, recorded_events
):
    priced = recorded_experiment.replace(budget={"price": "3.60 EUR/h"})
    page = report_html(priced, recorded_events, baseline="0.9 instead of 0.8 with the default")
    assert "Baseline: 0.9 instead of 0.8 with the default." in page
    assert re.search(r"<dt>Cost</dt><dd>[\d.]+ EUR</dd>", page)


def test_the_page_says_how_long_workers_waited_for_proposals(recorded_experiment, recorded_events):
    timed = [
        event.model_copy(update={"choosing_s": 0.02}) if isinstance(event, TrialProposed) else event
        for event in recorded_events
    ]
    page = report_html(recorded_experiment, timed, importance={}, run_id="r-7")
    searched = re.search(
        r"A proposal took 20 ms in the median. Workers waited for proposals ([0-9.]+)%", page
    )
    assert searched is not None
    trials = History.of(recorded_experiment, recorded_events).trials.values()
    trained_s = sum(trial.duration_s or 0.0 for trial in trials)
    assert float(searched[1]) == pytest.approx(100 * 0.02 * len(trials) / trained_s, abs=0.2)


def test_the_best_trials_name_those_that_they_continue(
    recorded_page, recorded_experiment, recorded_events
):
    heads = re.search(r"<h2[^>]*>Best trials</h2>.*?</thead>", recorded_page, re.DOTALL)
    assert heads is not None
    assert "continues" not in heads[0], "no trial continues another"
    ranked = [trial.number for trial in History.of(recorded_experiment, recorded_events).ranked()]
    resuming = max(ranked[:2])
    page = report_html(
        recorded_experiment,
        [
            event.model_copy(update={"resumes": 0})
            if isinstance(event, TrialProposed) and event.trial == resuming
            else event
            for event in recorded_events
        ],
        importance={},
        run_id="r-7",
    )
    searched = re.search(r"<h2[^>]*>Best trials</h2>(.*?)</table>", page, re.DOTALL)
    assert searched is not None
    assert re.search(r"<th[^>]*>continues</th></tr>", searched[1])
    last = {
        int(row[1]): row[2]
        for row in re.finditer(
            r'<th scope="row" class="number">(\d+)</th>.*?<td class="number">([^<]*)</td></tr>',
            searched[1],
        )
    }
    assert last[resuming] == "0"
    assert {last[number] for number in ranked if number != resuming} == {MISSING}


def test_every_figure_has_its_place(recorded_page):
    kinds = ["convergence", "by-time", "importance", "parallel", "slice", "timeline", "throughput"]
    assert Outline(recorded_page).places == [f"plot-{kind}" for kind in kinds]


def test_a_search_of_one_parameter_has_no_parallel_coordinates():
    search = {"lr": recorded_runs.EXPERIMENT["search"]["lr"]}
    events = [
        e for number in range(3) for e in trial_events(number, at_s=number, lr=0.01 * (1 + number))
    ]
    page = report_html(
        Experiment(**{**recorded_runs.EXPERIMENT, "search": search}),
        [*begin(), *events, *finish(9)],
    )
    places = Outline(page).places
    assert "plot-slice" in places
    assert "plot-parallel" not in places


def test_the_page_refers_to_nothing_outside_itself(recorded_page):
    page = recorded_page
    assert re.findall(r"https?://|//[a-z]+\.|src=|@import|url\(", page) == []


def test_the_experiment_on_the_page_is_the_experiment(recorded_page, recorded_experiment):
    written = re.search(r"digits-mlp.yaml</h3><pre>(.*?)</pre>", recorded_page, re.DOTALL)
    assert written
    assert (
        Experiment.from_yaml(written[1].replace("&#x27;", "'")).hash() == recorded_experiment.hash()
    )


@pytest.mark.parametrize(
    ("num_trials", "state", "said"),
    [
        (0, "complete", "No trial has started."),
        (3, "pruned", "No trial is complete."),
        (3, "failed", "Every trial failed."),
        (1, "complete", "loss, trial 0"),
    ],
)
def test_the_page_makes_sense_whatever_happened(
    num_trials, state, said, one_objective, make_events
):
    page = report_html(one_objective, make_events(one_objective, num_trials, state=state))
    Outline(page)
    assert said in page


def test_several_objectives_show_their_front(two_objectives, make_events):
    page = report_html(two_objectives, make_events(two_objectives, 40))
    assert "plot-pareto" in Outline(page).places
    assert re.search(r"trials? on the Pareto front", page)
    assert "trials on the front" in page


def test_repeats_are_ordered_by_their_mean_which_is_shown(one_objective, make_events):
    experiment = one_objective.replace(repeats=2)
    events = [
        event.model_copy(update={"configuration": event.trial // 2, "repeat": event.trial % 2})
        if isinstance(event, TrialProposed)
        else event
        for event in make_events(one_objective, 6)
    ]
    history = History.of(experiment, events)
    page = report_html(experiment, events)
    rows = re.findall(
        r'<th scope="row" class="number">(\d+)</th><td class="number">([\d.]+)</td>', page
    )
    means = [float(mean) for _, mean in rows]
    assert [int(trial) for trial, _ in rows] == [trial.number for trial in history.ranked()]
    assert means == sorted(means)
    assert means[0] == means[1] != means[2]
    assert '<th scope="col" class="number">mean loss</th>' in page
    assert "mean loss" not in report_html(one_objective, make_events(one_objective, 6))


def test_a_trial_that_was_chosen_by_hand_is_named_and_marked(two_objectives, make_events):
    events = make_events(two_objectives, 40)
    front = History.of(two_objectives, events).front()[0].number
    page = report_html(two_objectives, events, chosen_trial=front)
    Outline(page)
    assert f">Chosen by hand: trial {front}</h2><p>error " in page.replace("\n", "")
    assert ">chosen by hand</text>" in page
    assert "hosen by hand" not in report_html(two_objectives, events)


def test_what_people_wrote_is_escaped(one_objective, make_events):
    events = [*make_events(one_objective, 30), Noted(level="warning", message="<img src=x>")]
    page = report_html(
        one_objective,
        events,
        run_id="<r>",
        importance={"<x>": (1.0, 1.0, 1.0), "<y>": (0.0, 0.0, 0.1)},
    )
    Outline(page)
    for raw in ("<b>", "<i>", "<host>", "<script>alert", "<img", "<string>", "<r>", "<x>"):
        assert raw not in page
    assert "&lt;img src=x&gt;" in page
    assert "<pre>workbench sweep b-bold-b-quoted.yaml</pre>" in page


def test_the_page_of_a_command_says_what_was_run():
    experiment = Experiment(
        command="python train.py {args}",
        objectives=[{"metric": "acc", "goal": "maximize"}],
        search={"lr": {"low": 1e-4, "high": 1e-1}},
    )
    page = report_html(experiment, [])
    assert "Maximize acc: python train.py {args}, over 1 parameter" in page


def test_three_hundred_trials_fit_into_a_megabyte(one_objective, make_events):
    page = report_html(one_objective, make_events(one_objective, 300, num_reports=30))
    assert len(page.encode()) < 1e6


def test_thousands_have_separators_wherever_trials_are_counted(one_objective, make_events):
    page = report_html(one_objective, make_events(one_objective, 1_200))
    counts = re.findall(r"\b1,?200\b(?= complete trials| trials|</dd>)", page)
    assert len(counts) >= 2
    assert set(counts) == {"1,200"}


def test_advice_is_a_section_with_its_card_and_figures():
    page = report_html(EXPERIMENT, events(), run_id="r-7")
    outline = Outline(page)
    assert outline.headings[2] == "Advice"
    assert outline.places[:9] == [f"plot-{name}" for name in ADVICE_FIGURES]
    assert (
        '<th scope="row">global batch</th><td>256 samples = 128 x 1 accumulated x 2 workers</td>'
        "<td>128 samples = 64 x 1 accumulated x 2 workers</td>" in page
    )
    assert "<li>a micro batch of 256 does not fit the memory of the device</li>" in page
    assert "training: {lr: 0.003, lr_rule: sqrt, warmup_epochs: 1.0}" in page


def test_a_run_that_only_advises_says_so_and_shows_what_it_has():
    recorded = [event for event in events(with_trials=False) if event.type != "advice_given"]
    page = report_html(EXPERIMENT, recorded)
    assert "Nothing is recommended yet." in page
    assert "workbench advise" in page
    assert "not started" not in page
    assert "Plans are being measured; nothing is recommended yet." in page
    shown = ["throughput_by_batch", "step_time", "scaling", "memory", "rates", "candidates"]
    assert Outline(page).places == [f"plot-{name}" for name in shown]


def test_a_run_that_only_advises_begins_with_what_it_recommends():
    page = report_html(EXPERIMENT, events(with_trials=False))
    assert (
        '<h2 id="answer">Recommended</h2><div class="value">'
        "256 samples = 128 x 1 accumulated x 2 workers</div>" in page
    )
    assert "Best result" not in page


def test_without_advice_there_is_no_such_section_but_noise_is_shown():
    trials = [event for event in events() if event.type.startswith(("driver", "run", "trial"))]
    outline = Outline(report_html(EXPERIMENT, trials))
    assert "Advice" not in outline.headings
    assert outline.places[:3] == ["plot-convergence", "plot-by-time", "plot-noise"]


def test_what_an_advice_says_is_escaped():
    known = advice()
    known["choice"] |= {"reasons": ["<img src=x>"], "lr_rule": "<b>"}
    known["would_change"] = ["<script>alert(1)</script>"]
    recorded = [*events(with_trials=False), AdviceGiven(advice=known)]
    page = report_html(EXPERIMENT, recorded)
    Outline(page)
    assert not [raw for raw in ("<img", "<b>", "<script>alert") if raw in page]


def test_what_the_best_trial_attached_is_part_of_the_page_and_runs_nothing(tmp_path):
    run_id = record_run(tmp_path)
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        attach(store, run_id, 0)
        attach(store, run_id, 1)
        artifacts = store.artifacts_of(run_id)
        recorded = [stored.event for stored in store.events(run_id)]
        experiment = store.experiment(run_id)

    def read(saved: AttachmentSaved) -> bytes:
        return artifacts.read(f"trials/{saved.trial:05d}/{saved.file}")

    page = report_html(experiment, recorded, read=read)
    outline = Outline(page)
    assert "What trial 1 reported to look at" in outline.headings
    picture = base64.b64encode(SVG).decode()
    assert f'<img class="attached" alt="picture" src="data:image/svg+xml;base64,{picture}">' in page
    assert HOSTILE not in page
    assert page.count(html.escape(HOSTILE)) == 3, "the head and the cell of the table, and the text"
    assert "1 row of 9" in page
    artifacts.delete("trials/00001/attachments")
    assert report_html(experiment, recorded, read=read).count("its file is not there") == 3
    assert "reported to look at" not in report_html(experiment, recorded)
