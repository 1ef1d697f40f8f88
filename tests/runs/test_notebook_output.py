"""What a run leaves in a notebook."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import workbench as wb
from tests.builders.advice import advice
from tests.builders.recorded_runs import EXPERIMENT, append, begin, record_run, trial_events
from workbench.foundation.events import AdviceGiven, AdviceRequested, RunStateChanged
from workbench.runs import Run, notebook_output
from workbench.runs.notebook_output import linked
from workbench.store.database import Store

MIME = "application/vnd.workbench.run+json"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return wb.attach(record_run(tmp_path), store=str(tmp_path / "store.sqlite"))


def picture(html: str) -> ElementTree.Element:
    searched = re.search(r'src="data:image/svg\+xml;base64,([^"]+)"', html)
    assert searched is not None
    return ElementTree.fromstring(base64.b64decode(searched[1]))


def test_an_output_names_the_run_and_keeps_a_snapshot(run: Run) -> None:
    forms = run._repr_mimebundle_()

    assert forms[MIME] == {"run_id": run.run_id, "height": notebook_output.HEIGHT_PX}
    assert forms["text/plain"].splitlines()[:5] == [
        f"run     {run.run_id}",
        "state   complete",
        "trials  2 complete, 1 pruned, 2 failed",
        "time    9 s",
        "best    trial 1: val_accuracy = 0.95",
    ]
    assert forms["text/html"] == run._repr_html_()
    assert sum(len(str(form)) for form in forms.values()) < 6000


def test_the_snapshot_of_an_advice_is_its_card(tmp_path: Path) -> None:
    given = advice()
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run_id = store.create_run(wb.Experiment(**EXPERIMENT))
        asked = AdviceRequested(objective="time", host="here")
        append(
            store,
            run_id,
            [*begin(), asked, AdviceGiven(advice=given), RunStateChanged(state="complete")],
        )
        html = wb.attach(run_id, store=store)._repr_html_()
    assert html is not None
    assert "256 samples = 128 x 1 accumulated x 2 workers" in html
    assert "<img" not in html


def test_the_picture_is_an_image_that_runs_nothing(run: Run) -> None:
    svg = picture(run._repr_html_())

    names = {element.tag.partition("}")[2] for element in svg.iter()}
    assert names <= {"svg", "title", "rect", "text", "g", "path"}
    assert "val_accuracy" in "".join(svg.itertext())
    space = "{http://www.w3.org/2000/svg}"
    lines = svg.findall(f"{space}svg/{space}g/{space}path")
    assert len(lines) == 6  # five trials and the best so far


def test_what_people_wrote_is_text_in_every_form(tmp_path: Path) -> None:
    name = '<img src=x onerror="alert(1)">'
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run = Run(store, store.create_run(wb.Experiment(**{**EXPERIMENT, "name": name})))
        append(store, run.run_id, [*begin(), *trial_events(0, at_s=0)])
        shown = run._repr_html_()

    assert "<img src=x" not in shown
    assert picture(shown) is not None


def test_a_run_without_a_trial_has_no_picture(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        shown = Run(store, store.create_run(wb.Experiment(**EXPERIMENT)))._repr_html_()

    assert "none yet" in shown
    assert "<img" not in shown


def test_who_stopped_a_run_is_named(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run_id = store.create_run(wb.Experiment(**EXPERIMENT))
        append(store, run_id, [*begin(), RunStateChanged(state="stopped", reason="person")])
        assert "stopped by the user" in Run(store, run_id)._repr_html_()


def test_a_run_too_long_to_wait_for_is_left_to_the_live_view(run: Run, monkeypatch) -> None:
    monkeypatch.setattr(notebook_output, "MAX_EVENTS", 10)

    forms = run._repr_mimebundle_()

    assert MIME in forms
    assert f'wb.attach("{run.run_id}")' in forms["text/plain"]
    assert "<img" not in forms["text/html"]


def test_in_voila_nothing_is_left_to_a_front_end(run: Run, monkeypatch) -> None:
    monkeypatch.setenv("SERVER_SOFTWARE", "voila/0.5.13")

    assert MIME not in run._repr_mimebundle_()


def test_showing_a_run_loads_no_plotly(run: Run, tmp_path: Path) -> None:
    code = (
        "import workbench as wb, sys; "
        f"wb.attach(store={str(tmp_path / 'store.sqlite')!r})._repr_mimebundle_(); "
        "print(sorted({'plotly', 'torch', 'ray', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_written_file_is_a_path_that_a_notebook_shows_as_a_link(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    page = tmp_path / "a & b.html"
    page.write_text("a page")
    written = linked(page)
    assert written == page
    assert written.read_text() == "a page"
    assert repr(written) == str(page)
    assert 'href="a%20%26%20b.html"' in written._repr_html_()
    assert ">" + str(page).replace("&", "&amp;") + "</a>" in written._repr_html_()
    for unlinked in (
        linked(tmp_path),
        linked(tmp_path.parent / "elsewhere.html"),
        linked(page, "a-run").parent,
    ):
        assert "href" not in unlinked._repr_html_()


def test_the_report_of_a_run_is_linked_on_the_server_of_the_notebook_wherever_it_lies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("JPY_PARENT_PID", "4711")
    (tmp_path / "jpserver-4711.json").write_text(json.dumps({"base_url": "/user/ann/"}))
    written = linked(tmp_path / "kept" / "report.html", "calm-owl-1")
    assert 'href="/user/ann/workbench/api/runs/calm-owl-1/report"' in written._repr_html_()
