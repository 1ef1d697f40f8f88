"""The form in a real JupyterLab with a kernel.

An experiment made by clicks alone, run and exported.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import Any

import pytest

from tests.browser.form_page import enter
from tests.builders.notebooks import write_notebook
from tests.services.jupyter_lab import (
    KERNEL_IS_IDLE,
    execute,
    new_page,
    open_lab,
    run_all,
    violations,
)
from tests.services.waiting import wait_until
from workbench.experiment import Experiment
from workbench.foundation.events import TrialProposed
from workbench.store.database import Store

pytestmark = [pytest.mark.browser, pytest.mark.ray]

FORM = ".jp-OutputArea .workbench-form"
KERNEL = "window.jupyterapp.shell.currentWidget.context.sessionContext.session.kernel"
LATE = """
def build(config):
    import torch
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
"""


def show(page: Any, part: str) -> Any:
    page.locator(FORM).get_by_role("tab", name=part, exact=True).click()
    return page.locator(FORM).get_by_role("tabpanel", name=part)


def first_proposals(store: Store, run_id: str) -> list[Any]:
    return [
        event.event.params
        for event in store.events(run_id)
        if isinstance(event.event, TrialProposed)
    ]


@pytest.mark.slow
def test_an_experiment_made_by_clicks_is_run_watched_exported_and_the_same_on_the_command_line(
    page, jupyter
) -> None:
    (jupyter.root / "clicked.yaml").unlink(missing_ok=True)
    shutil.rmtree(jupyter.root / "mine", ignore_errors=True)
    write_notebook(jupyter.root, "form.ipynb", "import workbench as wb\nwb.app()")
    run_all(page, jupyter, "form.ipynb")
    form = page.locator(FORM)
    form.get_by_role("tab", name="Model").wait_for()

    show(page, "Model").get_by_role("button", name=re.compile("^convnet")).click()
    form.get_by_role("row", name=re.compile("Conv2d")).first.wait_for()
    show(page, "Data").locator("img").first.wait_for()
    space = show(page, "Search space")
    enter(space.get_by_label("Add a parameter"), "width")
    width = space.get_by_role("group", name="width", exact=True)
    width.get_by_label("Kind of width").select_option(label="choices")
    enter(width.get_by_label("comma-separated values"), "4, 8")
    space.get_by_text("Training, the same in every trial").click()
    enter(space.get_by_label("Epochs", exact=True), "2")
    run = show(page, "Run")
    enter(run.get_by_label("Trials", exact=True), "3")
    assert violations(page, FORM) == []

    form.get_by_role("button", name="Save …").click()
    dialog = form.get_by_role("dialog")
    dialog.get_by_label("Path").fill("clicked.yaml")
    dialog.get_by_role("button", name="Save").click()
    wait_until(lambda: page.wait_for_timeout(100) or (jupyter.root / "clicked.yaml").exists())

    page.get_by_role("button", name="Start the run").click()
    form.get_by_role("img", name=re.compile("val_accuracy.*best so far 0")).wait_for()
    form.locator(".workbench-head [role=status]", has_text="complete").wait_for()
    result = show(page, "Result")
    result.get_by_label("Export the best to the folder").fill("mine")
    result.get_by_role("button", name="Export").click()
    wait_until(
        lambda: page.wait_for_timeout(100) or (jupyter.root / "mine" / "experiment.yaml").exists()
    )

    done = subprocess.run(
        [sys.executable, "-m", "workbench", "sweep", "clicked.yaml", "--json"],
        cwd=jupyter.root,
        env=jupyter.environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with Store.open(jupyter.store_url) as store:
        by_command, by_clicks = store.runs()[:2]
        assert first_proposals(store, by_command.run_id) == first_proposals(store, by_clicks.run_id)
    saved = Experiment.from_file(jupyter.root / "clicked.yaml")
    assert by_clicks.experiment_hash == by_command.experiment_hash == saved.hash()


@pytest.mark.slow
def test_the_form_is_readable_in_every_theme_and_says_when_its_kernel_is_gone(
    page, jupyter
) -> None:
    write_notebook(jupyter.root, "themes.ipynb", "import workbench as wb\nwb.app()")
    run_all(page, jupyter, "themes.ipynb")
    form = page.locator(FORM)
    form.get_by_text("✓ ready").wait_for()
    for theme in ("JupyterLab Dark", "JupyterLab Dark High Contrast", "JupyterLab Light"):
        execute(page, "apputils:change-theme", theme=theme)
        page.wait_for_function("(theme) => document.body.dataset.jpThemeName === theme", arg=theme)
        for part in ("Model", "Data", "Search space", "Advice", "Run", "Result"):
            show(page, part)
            page.wait_for_timeout(500)
            form.evaluate(
                "(one) => one.querySelectorAll('details').forEach((two) => { two.open = true; })"
            )
            assert violations(page, FORM) == [], (theme, part)

    page.evaluate(f"() => {KERNEL}.restart()")
    form.get_by_role("alert").get_by_text("No longer connected").wait_for()
    assert "ready" not in form.inner_text()
    assert form.locator("[inert]").count() == 2, "nothing can be clicked that would change nothing"
    execute(page, "notebook:run-all-cells")
    form.get_by_text("✓ ready").wait_for()
    assert form.get_by_text("No longer connected").count() == 0


@pytest.mark.slow
def test_a_notebook_that_is_opened_again_shows_the_draft_and_running_the_cell_continues_it(
    page, jupyter, live_browser
) -> None:
    write_notebook(jupyter.root, "kept.ipynb", "import workbench as wb\nwb.app()")
    run_all(page, jupyter, "kept.ipynb")
    enter(page.locator(FORM).get_by_label("Name of the experiment"), "clicked-name")
    page.locator(FORM).get_by_role("button", name="Undo: Name").wait_for()
    page.evaluate("() => { void window.jupyterapp.commands.execute('docmanager:save'); }")
    wait_until(lambda: page.wait_for_timeout(100) or any(jupyter.folder.rglob(".drafts/*.json")))
    wait_until(
        lambda: (
            page.wait_for_timeout(100) or "form+json" in (jupyter.root / "kept.ipynb").read_text()
        )
    )
    for session in jupyter.request("api/sessions"):
        jupyter.request(f"api/sessions/{session['id']}", method="DELETE")

    again = new_page(live_browser)
    open_lab(again, jupyter, "kept.ipynb")
    again.locator(".workbench-form-kept", has_text="clicked-name").wait_for()
    assert again.get_by_text("model not found").is_hidden()
    again.wait_for_function(KERNEL_IS_IDLE)
    execute(again, "notebook:run-all-cells")
    name = again.locator(FORM).get_by_label("Name of the experiment")
    name.wait_for()
    assert name.input_value() == "clicked-name"
    again.context.close()


@pytest.mark.slow
def test_a_class_that_is_named_before_its_cell_has_run_is_found_when_it_has(page, jupyter) -> None:
    write_notebook(jupyter.root, "late.ipynb", "import workbench as wb\nwb.app()")
    run_all(page, jupyter, "late.ipynb")
    form = page.locator(FORM)
    form.get_by_role("tab", name="Model").wait_for()
    panel = show(page, "Model")
    enter(panel.get_by_label("Model", exact=True), "build")
    panel.get_by_text("Run its cell first").wait_for()
    page.evaluate(f"(code) => {{ {KERNEL}.requestExecute({{ code }}); }}", LATE)
    form.get_by_text("✓ ready").wait_for()
    assert panel.get_by_role("row", name=re.compile("Linear")).count() == 1
