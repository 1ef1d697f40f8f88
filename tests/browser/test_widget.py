"""The view as a widget, in a JupyterLab that does not find our extension."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders.notebooks import write_notebook
from tests.services.jupyter_lab import Jupyter, run_all
from tests.services.live_run import LiveRun
from tests.services.waiting import wait_until

pytestmark = pytest.mark.browser


@pytest.fixture
def plain_jupyter(tmp_path: Path) -> Iterator[Jupyter]:
    """A JupyterLab that does not find our extension."""
    server = Jupyter(tmp_path / "jupyter", has_extension=False).start()
    yield server
    server.stop()


@pytest.mark.slow
def test_without_the_extension_a_widget_brings_the_view_along(page, plain_jupyter) -> None:
    with LiveRun(plain_jupyter.store_url) as live:
        attach = f"import workbench as wb\nrun = wb.attach('{live.run_id}')"
        write_notebook(plain_jupyter.root, "widget.ipynb", f"{attach}\nrun", "wb.live(run)")
        run_all(page, plain_jupyter, "widget.ipynb")
        snapshot, widget = (page.locator(".jp-OutputArea-output").nth(index) for index in (0, 1))
        widget.get_by_role("img", name=re.compile("best so far")).wait_for()
        snapshot.locator("img[alt='curves of under-load']").wait_for()
        assert not page.evaluate("() => window.jupyterapp.commands.hasCommand('workbench:open')")


@pytest.mark.slow
def test_where_no_server_answers_the_kernel_sends_the_pictures(page, plain_jupyter) -> None:
    page.context.route(re.compile("/workbench/"), lambda route: route.abort())
    with LiveRun(plain_jupyter.store_url) as live:
        cells = (f"import workbench as wb\nview = wb.live('{live.run_id}')\nview", "view")
        write_notebook(plain_jupyter.root, "kernel.ipynb", *cells)
        run_all(page, plain_jupyter, "kernel.ipynb")
        views = [page.locator(".jp-OutputArea-output").nth(index) for index in range(2)]
        pictures = [view.get_by_role("img", name=re.compile("best so far")) for view in views]
        for picture in pictures:
            picture.wait_for()
        # What one view shows of it is nothing to the other.
        views[1].get_by_label("Horizontal axis").select_option("time")
        views[1].get_by_role("img", name=re.compile("by Run time .* best so far")).wait_for()
        for picture in pictures:
            before = picture.get_attribute("aria-label")

            def has_another_label(picture=picture, before=before) -> bool:
                page.wait_for_timeout(200)
                return picture.get_attribute("aria-label") != before

            wait_until(has_another_label)
        assert "by Step" in (pictures[0].get_attribute("aria-label") or "")
