"""The first notebook in a real JupyterLab.

What a person sees who runs it, and what its text claims.
"""

from __future__ import annotations

import re
import shutil
from typing import Any

import pytest

import workbench as wb
from tests.builders.notebooks import write_notebook
from tests.services.jupyter_lab import KERNEL_IS_IDLE, ROOT, run_all
from tests.services.live_run import LiveRun

pytestmark = [pytest.mark.browser, pytest.mark.ray]

NAME = "01_first_run.ipynb"
CODE_CELLS = (
    "() => Array.from(window.jupyterapp.shell.currentWidget.content.model.cells)"
    ".map((cell) => cell.toJSON()).filter((cell) => cell.cell_type === 'code')"
)


OUTPUTS = f"() => ({CODE_CELLS})().map((cell) => cell.outputs[0]?.data['text/html'] ?? '')"


@pytest.mark.slow
def test_a_saved_notebook_gets_the_end_of_a_run_and_views_of_it_are_left_as_they_are(
    page: Any, jupyter: Any
) -> None:
    with LiveRun(jupyter.store_url) as live:
        shown = (f"import workbench as wb\nwb.attach('{live.run_id}')", f"wb.live('{live.run_id}')")
        write_notebook(jupyter.root, "kept.ipynb", *shown)
        run_all(page, jupyter, "kept.ipynb")
        views = page.locator(".jp-OutputArea-output .workbench-output")
        for index in range(2):
            best = views.nth(index).get_by_role("img", name=re.compile("best so far"))
            best.first.wait_for()
            views.nth(index).evaluate("(view) => { view.isTheFirst = true; }")
        assert all("running, as of " in html for html in page.evaluate(OUTPUTS))
    page.wait_for_function(f"() => ({OUTPUTS})().every((html) => html.includes('>stopped<'))")
    assert all("<img" in html for html in page.evaluate(OUTPUTS))
    page.wait_for_timeout(1000)
    assert views.count() == 2
    assert [views.nth(index).evaluate("(view) => view.isTheFirst") for index in range(2)] == [
        True,
        True,
    ]


@pytest.mark.slow
def test_the_first_notebook_shows_its_run_live_and_ends_with_a_figure(
    page: Any, jupyter: Any
) -> None:
    shutil.copy(ROOT / "notebooks" / NAME, jupyter.root)
    run_all(page, jupyter, NAME)
    live = page.locator(".jp-OutputArea .workbench-cell")
    live.get_by_role("img", name=re.compile("best so far 0")).first.wait_for()
    page.wait_for_function(f"() => ({CODE_CELLS})().every((cell) => cell.execution_count)")
    page.wait_for_function(KERNEL_IS_IDLE)

    cells = page.evaluate(CODE_CELLS)
    assert all(len(cell["outputs"]) <= 1 for cell in cells), "each cell shows one thing once"
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {"display_data", "execute_result"}
    page.locator(".jp-OutputArea .js-plotly-plot").last.wait_for()

    with wb.Store.open(jupyter.store_url) as store:
        run = wb.attach("last", store=store)
        assert run.state == "complete"
        assert len(run.trials) == 10
        assert run.best is not None
        assert run.best.values["val_accuracy"] > 0.85
        assert (run.folder / "report.html").exists()
