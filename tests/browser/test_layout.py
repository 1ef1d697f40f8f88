"""What a person sees of runs at one look.

Nothing covers anything, nothing is cut, nothing untrue is said.
"""

from __future__ import annotations

import itertools
import math
import os
import platform
import re
import shutil
import uuid
from typing import Any

import pytest

from tests.builders.machines import see_machines
from tests.builders.notebooks import write_notebook
from tests.builders.recorded_runs import (
    EXPERIMENT,
    START_UNIX_S,
    append,
    begin,
    finish,
    finished_run,
    record_run,
    trial_events,
)
from tests.services.jupyter_lab import ROOT, TOKEN, Jupyter, run_all, violations
from tests.services.live_run import LiveRun
from tests.services.waiting import wait_until
from workbench.experiment import Experiment
from workbench.experiment.actions import Snippet, snippet_of
from workbench.foundation.events import (
    AdviceRequested,
    Event,
    Noted,
    RunStateChanged,
    TrialReported,
)
from workbench.store.database import Store

pytestmark = pytest.mark.browser

LONG_NAME = "a-transformer-of-twelve-layers-on-all-of-the-text-with-a-cosine-schedule-and-mor"
# What is written on a canvas since it was last wiped, with the place that it takes.
NOTE_TEXTS = """
const { fillText, clearRect } = CanvasRenderingContext2D.prototype;
CanvasRenderingContext2D.prototype.clearRect = function (...at) {
  this.canvas.texts = [];
  return clearRect.apply(this, at);
};
CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...more) {
  const width = this.measureText(text).width;
  const left = { center: x - width / 2, right: x - width }[this.textAlign] ?? x;
  (this.canvas.texts ??= []).push({ text, left, right: left + width, y: Math.round(y) });
  return fillText.call(this, text, x, y, ...more);
};
"""
TEXTS = "() => document.querySelector('.workbench-comparison canvas').texts"
ROWS_IN_SIGHT = """(cell) => {
  const box = (selector) => cell.querySelector(selector).getBoundingClientRect();
  const view = box(".workbench"), table = box(".workbench-table");
  const head = box("thead"), plot = box(".workbench-plot-canvas");
  const found = [...cell.querySelectorAll("tbody tr:not(.workbench-spacer)")];
  const rows = found.map((row) => row.getBoundingClientRect());
  const bottom = Math.min(view.bottom, table.bottom);
  return {
    rows: rows.filter((row) => row.top >= head.bottom - 1 && row.bottom <= bottom + 1).length,
    plot: plot.height,
    isApart: plot.bottom <= table.top && plot.top >= view.top,
  };
}"""


def store_run(url: str, name: str, *events: Event) -> str:
    with Store.open(url) as store:
        run_id = store.create_run(Experiment(**{**EXPERIMENT, "name": name}))
        append(store, run_id, [*begin(), *events])
    return run_id


def run_of_trials(url: str, name: str, num_trials: int, every_s: float = 1.0) -> str:
    trials = (
        trial_events(number, at_s=number * every_s, accuracy=0.5 + 0.4 * number / num_trials)
        for number in range(num_trials)
    )
    return store_run(
        url, name, *(event for trial in trials for event in trial), *finish(num_trials * every_s)
    )


def run_of_nothing_but_nan(url: str) -> str:
    events = [
        (
            event.model_copy(update={"values": {"val_accuracy": math.nan}})
            if isinstance(event, TrialReported)
            else event
        )
        for number in range(3)
        for event in trial_events(number, at_s=number, state="failed", reason="diverged")
    ]
    return store_run(url, "nan-only", *events, *finish(9))


def failed_run(url: str) -> str:
    ended = RunStateChanged(
        state="failed", reason="error", message="too many failures", time_unix_s=START_UNIX_S + 9
    )
    return store_run(
        url, "failing", *trial_events(0, at_s=1, state="failed", reason="error"), ended
    )


def open_page(page: Any, jupyter: Jupyter, run_id: str) -> None:
    page.goto(f"{jupyter.url}workbench?token={TOKEN}#run={run_id}")
    page.locator(".workbench-head .workbench-run-title").wait_for()
    assert page.url == f"{jupyter.url}workbench#run={run_id}", "a link to share has no token"


def press(page: Any, name: str) -> Any:
    """Press a button of the run that asks a person, and return the dialog with all of it in
    sight.
    """
    offers = page.get_by_role("group", name="Actions for the run")
    offers.get_by_role("button", name=re.compile("^More")).click()
    offers.get_by_role("button", name=f"{name}…", exact=True).click()
    return shown_in_full(page)


def shown_in_full(page: Any) -> Any:
    dialog = page.get_by_role("dialog")
    details = dialog.locator("details")
    details.wait_for(state="attached")
    details.evaluate("details => { details.open = true; }")
    return dialog


@pytest.mark.slow
def test_marks_of_the_time_axis_do_not_cover_each_other(page, jupyter) -> None:
    page.add_init_script(NOTE_TEXTS)
    for every_s in (2.0, 40.0, 1500.0):
        name = f"every-{every_s:g}-s-{uuid.uuid4().hex[:6]}"
        run_id = run_of_trials(jupyter.store_url, name, 14, every_s)
        open_page(page, jupyter, run_id)
        page.get_by_label(f"Compare {name}", exact=True).check()
        page.get_by_role("tab", name=re.compile("^Compare")).click()
        page.get_by_role("img", name=re.compile("^best .+ so far of 1 ")).wait_for()
        for width in range(720, 1480, 80):
            page.set_viewport_size({"width": width, "height": 800})
            page.wait_for_timeout(150)
            texts = page.evaluate(TEXTS)
            times = sorted(
                (one for one in texts if re.search(r"\d (s|min|h)( |$)", one["text"])),
                key=lambda one: one["left"],
            )
            assert len({time["y"] for time in times}) == 1
            assert times, (width, texts)  # besides the 0 at the beginning
            for one, other in itertools.pairwise(times):
                assert one["right"] + 4 <= other["left"], (width, one, other)
        page.get_by_label(f"Compare {name}", exact=True).uncheck()


@pytest.mark.slow
def test_a_cell_shows_curves_and_at_least_four_rows_of_trials(page, jupyter) -> None:
    names = ("many", LONG_NAME)
    cells = [
        f"import workbench as wb\nwb.attach('{run_of_trials(jupyter.store_url, name, 30)}')"
        for name in names
    ]
    write_notebook(jupyter.root, "rows.ipynb", *cells)
    run_all(page, jupyter, "rows.ipynb")
    outputs = page.locator(".jp-OutputArea .workbench-cell")
    wait_until(lambda: page.wait_for_timeout(200) or outputs.count() == 2)
    for index in range(2):
        output = outputs.nth(index)
        output.scroll_into_view_if_needed()
        output.get_by_role("img", name=re.compile("best so far")).wait_for()
        output.get_by_role("button", name="Trial 3", exact=True).last.wait_for()
        page.wait_for_timeout(300)
        seen = output.evaluate(ROWS_IN_SIGHT)
        assert seen["rows"] >= 4
        assert seen["plot"] >= 180
        assert seen["isApart"]
    # A trial takes the place of the table, with what can be done with it.
    output = outputs.nth(0)
    output.get_by_role("button", name="Trial 3", exact=True).last.click()
    trial = output.get_by_role("complementary", name="Trial 3")
    trial.get_by_role("button", name="Export…").wait_for()
    trial.get_by_role("button", name="Close the trial").click()
    # All trials are there, below the first.
    output.get_by_role("region", name="Table of trials").evaluate(
        "table => { table.scrollTop = 10_000; }"
    )
    output.get_by_role("button", name="Trial 29", exact=True).last.wait_for()

    # Shortcuts of JupyterLab work with the focus in the output; single keys, which delete cells, do
    # not.
    output.get_by_role("button", name=re.compile("^More")).focus()
    page.keyboard.press("d")
    page.keyboard.press("d")
    page.keyboard.press("Alt+Shift+W")
    page.locator("#workbench-panel .workbench-panel").wait_for(state="visible")
    num_cells = "() => window.jupyterapp.shell.currentWidget.content.model.cells.length"
    assert page.evaluate(num_cells) == len(cells)
    # The run opens beside the notebook; again, and chosen in the list of that tab, it stays one
    # tab.
    for _ in range(2):
        output.get_by_role("button", name="Open beside").click()
    tab = page.locator(".jp-MainAreaWidget .workbench-wide")
    tab.get_by_role("heading", name="many").wait_for()
    tab.locator(".workbench-run:not(.workbench-chosen) .workbench-run-button").first.click()
    tab.get_by_role("heading", name="many").wait_for(state="hidden")
    assert output.is_visible()
    assert tab.count() == 1


def wait_for_snippet(page: Any, dialog: Any, snippet: Snippet) -> None:
    texts = dialog.locator(".workbench-code pre")
    wait_until(lambda: page.wait_for_timeout(50) or texts.all_inner_texts() == [*snippet])


@pytest.mark.slow
def test_every_dialog_shows_the_command_and_the_python_of_what_it_does(page, jupyter) -> None:
    shutil.copy(ROOT / "search_spaces" / "digits.yaml", jupyter.root / "digits.yaml")
    run_id = finished_run(jupyter.store_url, name="asked")
    open_page(page, jupyter, run_id)
    page.get_by_role("button", name=re.compile("^Start")).click()
    dialog = shown_in_full(page)
    dialog.get_by_label("Experiment file").select_option(value="digits.yaml")
    dialog.get_by_label("Settings").fill("training.epochs=3\nsampler=random\nsearch.lr=0.00001")
    dialog.get_by_label("Name").fill("it's mine")
    settings = {"training.epochs": 3, "sampler": "random", "search.lr": 1e-5}
    started = {"path": "digits.yaml", "settings": settings, "name": "it's mine"}
    wait_for_snippet(page, dialog, snippet_of("start", "", started))
    page.keyboard.press("Escape")

    for name, kind, arguments in (
        ("Replay", "replay", {}),
        ("Extend", "extend", {"trials": 10}),
        ("Export the best", "export", {"to": "best"}),
        ("Save report", "save_report", {"to": f"{run_id}-report.html"}),
    ):
        dialog = press(page, name)
        wait_for_snippet(page, dialog, snippet_of(kind, run_id, arguments))
        if "to" in arguments:
            place = dialog.get_by_label(re.compile("Folder|File"))
            place.fill("")
            # What is left empty counts as what is shown.
            page.wait_for_timeout(500)
            wait_for_snippet(page, dialog, snippet_of(kind, run_id, arguments))
        page.keyboard.press("Escape")


@pytest.mark.slow
def test_in_a_low_or_narrow_window_no_entry_is_cut_and_no_size_wraps(page, jupyter) -> None:
    open_page(page, jupyter, finished_run(jupyter.store_url, name="low"))
    page.set_viewport_size({"width": 700, "height": 330})
    page.get_by_role("group", name="Actions for the run").get_by_role("button", name="More").click()
    entries = page.locator(".workbench-menu-list button")
    for entry in (entries.first, entries.last):
        entry.scroll_into_view_if_needed()
        box = entry.bounding_box()
        assert box is not None
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= 330
    page.keyboard.press("Escape")
    page.get_by_role("tab", name="Machines").click()
    sizes = page.locator(".workbench-meter > .workbench-number")
    sizes.first.wait_for()
    for width in (320, 700, 1400):
        page.set_viewport_size({"width": width, "height": 900})
        one_line = (
            "all => all.every((one) => one.offsetHeight < 24 && one.scrollWidth <= one.clientWidth)"
        )
        assert sizes.evaluate_all(one_line), width


@pytest.mark.slow
def test_a_report_opens_as_a_page_and_is_saved_where_nothing_is(page, jupyter) -> None:
    run_id = finished_run(jupyter.store_url, name="told")
    open_page(page, jupyter, run_id)
    with page.context.expect_page() as opened:
        page.get_by_role("button", name="Report", exact=True).click()
    opened.value.get_by_role("heading").first.wait_for()
    assert opened.value.url.endswith(f"/workbench/api/runs/{run_id}/report")
    assert not list(jupyter.root.glob("*.html"))

    saved = jupyter.root / f"{run_id}-report.html"
    dialog = press(page, "Save report")
    dialog.get_by_role("button", name="Save report", exact=True).click()
    dialog.wait_for(state="hidden")
    assert "<!DOCTYPE html>" in saved.read_text()
    saved.write_text("changed by a person")
    dialog = press(page, "Save report")
    dialog.get_by_role("button", name="Save report", exact=True).click()
    dialog.get_by_role("alert").get_by_text("already").wait_for()
    assert saved.read_text() == "changed by a person"


@pytest.mark.parametrize("width", [320, pytest.param(1400, marks=pytest.mark.slow)])
def test_runs_of_every_kind_fit_and_say_what_is_so(page, jupyter, width) -> None:
    url = jupyter.store_url
    expected = {
        run_of_nothing_but_nan(url): "0 of 3 trials drawn, 3 reported no number",
        failed_run(url): "too many failures",
        store_run(url, "empty"): "No trials yet",
        run_of_trials(url, "thousand", 1000): "60 of 1,000 trials drawn",
        run_of_trials(url, LONG_NAME, 1): "1 of 1 trial drawn",
    }
    page.set_viewport_size({"width": width, "height": 900})
    for run_id, words in expected.items():
        open_page(page, jupyter, run_id)
        page.get_by_text(words, exact=True).first.wait_for()
        page.wait_for_timeout(300)
        too_wide = page.evaluate(
            "() => [...document.querySelectorAll(':is(.workbench, .workbench-main,"
            " .workbench-runs)')].filter((one) => one.scrollWidth > one.clientWidth + 1).map((one)"
            " => one.className)"
        )
        assert too_wide == [], (run_id, width)
    page.get_by_role("button", name="Trial 0", exact=True).last.click()
    page.get_by_role("complementary", name="Trial 0").get_by_text(
        re.compile("x 1 worker,")
    ).wait_for()


@pytest.mark.slow
def test_a_run_that_is_read_selects_nothing_and_blocks_no_other(page, jupyter) -> None:
    url = jupyter.store_url
    chosen = run_of_trials(url, "chosen", 3)
    long = run_of_trials(url, "long", 3000)
    open_page(page, jupyter, long)
    page.get_by_role("button", name=re.compile("^chosen")).click()
    page.get_by_text("3 of 3 trials drawn", exact=True).wait_for()
    page.get_by_role("button", name=re.compile("^long.*3,000 trials")).wait_for()
    assert page.url.endswith(f"#run={chosen}"), "it is read by now, and was not asked for"
    assert page.locator(".workbench-run-title").inner_text() == "chosen"
    page.get_by_role("button", name=re.compile("^long")).click()
    page.get_by_text("60 of 3,000 trials drawn", exact=True).wait_for()


def test_a_run_whose_trials_all_failed_says_why_once_and_leads_to_the_traceback(
    page, jupyter
) -> None:
    ended = RunStateChanged(
        state="failed",
        reason="failures",
        message="all 2 trials failed: ValueError: too wide",
        time_unix_s=START_UNIX_S + 9,
    )
    failed = [trial_events(number, at_s=number, state="failed") for number in range(2)]
    run_id = store_run(jupyter.store_url, "all-failed", *failed[0], *failed[1], ended)
    for width in (320, 1400):
        page.set_viewport_size({"width": width, "height": 900})
        open_page(page, jupyter, run_id)
        head = page.locator(".workbench-head")
        head.get_by_text(re.compile("Every trial failed: ValueError: too wide at")).wait_for()
        assert "all 2 trials failed" not in head.inner_text()
        assert head.get_by_role("button", name="Extend…").count() == 0
        assert violations(page, ".workbench-head") == []
        page.get_by_role("button", name="Show trial 0").first.click()
        trial = page.get_by_role("complementary", name="Trial 0")
        trial.get_by_text(re.compile("Traceback .most recent call last")).wait_for()
        page.keyboard.press("Escape")


LOOKS = """(table) => Object.fromEntries([...table.querySelectorAll("tbody tr")].flatMap((row) => {
  const look = (selector) => {
    const mark = row.querySelector(selector);
    if (!mark) return [];
    const { color, backgroundColor, borderTopColor, clipPath } = getComputedStyle(mark);
    return [[color, backgroundColor, borderTopColor, clipPath].join(" ")];
  };
  const number = row.querySelector("th button")?.textContent;
  const looks = [...look(".workbench-state .workbench-dot"), ...look(".workbench-star")];
  return number ? [[number, looks]] : [];
}))"""


def test_the_best_a_failed_and_a_rejected_trial_look_different_and_the_summary_says_why(
    page, jupyter
) -> None:
    limited = {"name": "limited", "constraints": [{"metric": "size_mb", "at_most": 1.0}]}
    events = [*begin()]
    for number, (accuracy, size_mb) in enumerate([(0.7, 0.5), (0.6, 0.5), (0.9, 2.0)]):
        *training, end = trial_events(
            number, at_s=number, lr=0.01 * (number + 1), accuracy=accuracy
        )
        values = {"val_accuracy": accuracy, "size_mb": size_mb}
        events += [*training, end.model_copy(update={"values": values})]
    events += trial_events(3, at_s=3, state="failed", reason="error")
    with Store.open(jupyter.store_url) as store:
        run_id = store.create_run(Experiment(**{**EXPERIMENT, **limited}))
        append(store, run_id, [*events, *finish(9)])
    open_page(page, jupyter, run_id)
    table = page.locator(".workbench-trials table")
    table.get_by_text("infeasible").wait_for()
    table.get_by_text("error", exact=True).wait_for()
    looks = table.evaluate(LOOKS)
    (good, star), (rejected,), (failed,) = looks["0"], looks["2"], looks["3"]
    assert len({good, star, rejected, failed}) == 4
    assert looks["1"] == [good], "complete trials look the same"
    legend = page.locator(".workbench-legend")
    assert "breaks a limit or missed its target" in legend.inner_text()

    summary = page.get_by_role("region", name="Summary")
    assert "Trial 0 is the best: val_accuracy 0.7" in summary.inner_text()
    assert "It leads the second best, 0.6, by 0.1." in summary.inner_text()
    confirm = summary.get_by_role("button", name="Confirm the best 2")
    assert confirm.get_attribute("title") == f"workbench extend {run_id} --confirm 2"
    assert violations(page, ".workbench") == []


def test_an_advice_says_what_it_measures_and_shows_no_time_left_of_a_sweep(page, jupyter) -> None:
    with Store.open(jupyter.store_url) as store:
        budget = {"trials": 5, "time": "10h"}
        run_id = store.create_run(Experiment(**{**EXPERIMENT, "name": "asked", "budget": budget}))
        requested = AdviceRequested(objective="time", host="here")
        note = Noted(level="info", message="the first step time is measured")
        with store.writer(run_id, owner_pid=os.getpid(), owner_host=platform.node()) as writer:
            writer.append(requested, RunStateChanged(state="running"), note)
            open_page(page, jupyter, run_id)
            page.get_by_text("the first step time is measured").first.wait_for()
            left = page.locator(".workbench-fact-left dd")
            assert "h" not in left.inner_text()


BEYOND_THEIR_BOX = """(box) => {
    const end = box.getBoundingClientRect().right + 1;
    const isBeyond = (inner) => inner.getBoundingClientRect().right > end;
    return [...box.querySelectorAll("*")].filter(isBeyond).map((inner) => inner.textContent);
}"""


@pytest.mark.slow
def test_in_a_low_window_the_curves_are_in_sight_at_once_and_the_list_on_request(
    page, jupyter
) -> None:
    run_id = finished_run(jupyter.store_url)
    page.set_viewport_size({"width": 700, "height": 450})
    open_page(page, jupyter, run_id)
    plot = page.locator(".workbench-plot-canvas")
    plot.wait_for()
    assert plot.bounding_box()["y"] + 120 < 450
    assert page.get_by_role("tab", name="Curves").is_visible()
    assert page.get_by_role("region", name="Runs").count() == 0
    page.get_by_role("button", name="Runs").click()
    page.get_by_role("region", name="Runs").wait_for()
    assert violations(page, ".workbench") == []


def test_in_a_narrow_panel_the_reason_of_an_end_wraps(page, jupyter) -> None:
    ended = RunStateChanged(
        state="complete",
        reason="time",
        message="the time budget of 15 min is used up",
        time_unix_s=START_UNIX_S + 9,
    )
    run_id = store_run(
        jupyter.store_url, "in time", *trial_events(0, at_s=0, state="stopped"), ended
    )
    page.set_viewport_size({"width": 280, "height": 900})
    open_page(page, jupyter, run_id)
    page.get_by_text("the time budget of 15 min is used up").wait_for()
    assert page.locator(".workbench-head").evaluate(BEYOND_THEIR_BOX) == []
    page.get_by_role("button", name="Extend").wait_for()


def test_the_numbers_of_a_run_under_way_fit_into_a_narrow_panel(page, jupyter) -> None:
    page.set_viewport_size({"width": 280, "height": 900})
    with LiveRun(jupyter.store_url) as live:
        open_page(page, jupyter, live.run_id)
        facts = page.locator(".workbench-facts-live")
        facts.get_by_text("run time").wait_for()
        ends = facts.locator("dt, dd").evaluate_all(
            "(all) => all.map((one) => one.getBoundingClientRect().left + one.scrollWidth)"
        )
        assert max(ends) <= 280


@pytest.mark.slow
def test_nothing_is_cut_or_covered_in_a_narrow_panel(page, jupyter) -> None:
    run_id = record_run(jupyter.store_url, name="narrow")
    shutil.copy(ROOT / "search_spaces" / "digits.yaml", jupyter.root / "narrow.yaml")
    page.set_viewport_size({"width": 280, "height": 900})
    open_page(page, jupyter, run_id)
    assert page.locator(".workbench-facts").evaluate(BEYOND_THEIR_BOX) == []
    page.get_by_role("button", name=re.compile("^Start")).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Experiment file").select_option(value="narrow.yaml")
    assert dialog.evaluate(BEYOND_THEIR_BOX) == []
    page.keyboard.press("Escape")
    page.get_by_role("tab", name="Analysis").click()
    page.get_by_role("img", name=re.compile("^Parallel coordinates")).wait_for()
    analysis = page.get_by_role("region", name="Analysis", exact=True)
    assert analysis.evaluate(BEYOND_THEIR_BOX) == []
    assert violations(page, ".workbench-analysis") == []


PLACE_ON_AXIS = """(plot, [axis, place, numAxes]) => {
    const box = plot.querySelector(".u-over").getBoundingClientRect();
    // As `parallelOf` lays them out: half an axis beside the outer ones, little above and below.
    const x = box.left + box.width * (axis + 0.6) / (numAxes + 0.05);
    return [x, box.top + box.height * (1.02 - place) / 1.05];
}"""


@pytest.mark.slow
def test_a_drag_along_an_axis_selects_trials_for_table_curves_and_figures(page, jupyter) -> None:
    run_id = record_run(jupyter.store_url, name="brushed")
    open_page(page, jupyter, run_id)
    page.get_by_role("tab", name="Analysis").click()
    plot = page.get_by_role("img", name=re.compile("^Parallel coordinates of lr, width"))
    plot.locator(".u-over").wait_for(state="attached")
    plot.scroll_into_view_if_needed()
    # The second axis is that of the width, with 8 at its lower and 16 at its upper end.
    x, low = plot.evaluate(PLACE_ON_AXIS, [1, 0.5, 3])
    _, high = plot.evaluate(PLACE_ON_AXIS, [1, 1.015, 3])
    page.mouse.move(x, low)
    page.mouse.down()
    page.mouse.move(x, (low + high) / 2)
    page.mouse.move(x, high)
    page.mouse.up()
    field = page.get_by_label("Filter trials")
    wait_until(lambda: page.wait_for_timeout(50) or field.input_value() == "width != 8")
    assert page.get_by_role("complementary").count() == 0, "the end of a drag opens no trial"
    page.get_by_text("4 trials match").wait_for()
    assert violations(page, ".workbench-analysis") == []
    page.get_by_role("tab", name="Curves").click()
    shown = page.locator(".workbench-trials .workbench-number").first
    wait_until(lambda: page.wait_for_timeout(50) or shown.inner_text() == "4")
    # Trial 1 has the width that was left out.
    page.locator(".workbench-legend", has_text=re.compile("best: trial 0|4 of 4 trials")).wait_for()


def test_machines_of_a_run_say_in_words_what_is_wrong_with_them(page, jupyter) -> None:
    run_id = run_of_trials(jupyter.store_url, f"machines-{uuid.uuid4().hex[:6]}", 3)
    open_page(page, jupyter, run_id)
    see_machines(jupyter.store_url, run_id)
    page.get_by_role("tab", name="Machines").click()
    big = page.get_by_role("region", name="Machine big")
    big.get_by_text("64 CPUs · 2 GPUs · trials 3, 4").wait_for()
    hot, lost = big.get_by_role("group", name="GPU 0"), big.get_by_role("group", name="GPU 1")
    assert "64 °C · 1755 MHz · trial 3" in hot.inner_text()
    for trouble in ("Slowed by heat", "1 uncorrected memory error", "Xid 79"):
        assert trouble in hot.inner_text()
    assert "This GPU is lost" in lost.inner_text()
    assert lost.get_by_role("meter").count() == 0
    assert "does not respond" in page.get_by_role("region", name="Machine far").inner_text()
    over_time = page.get_by_role("figure", name="Machine big over time")
    over_time.get_by_role("button", name="memory", exact=True).wait_for()
