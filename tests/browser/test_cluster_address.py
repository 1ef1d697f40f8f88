"""Where a run goes, in a real browser.

The address of a cluster in the form and in JupyterLab's panel.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.browser.form_page import FormKernel, enter, open_form, show, until
from tests.services.jupyter_lab import execute, new_page, open_lab, violations
from workbench.foundation.errors import RunError

pytestmark = pytest.mark.browser

ADDRESS = "http://head:8265"
WRONG = {
    "head": "not an address of a cluster",
    "head:8265": "Write http://head:8265 to submit the run",
    "http://me:secret@head:8265": "must not contain a user name or a password",
}
CLUSTER = "Address of the cluster"


def under(field: Any) -> str:
    """What is said below a field, as a reader of the screen hears it."""
    return field.evaluate(
        "(one) => one.getAttribute('aria-describedby').split(' ')"
        ".map((id) => document.getElementById(id)?.innerText ?? '').join(' ')"
    )


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.slow
def test_an_address_that_is_none_is_told_under_its_field_and_starts_nothing(
    page, kernel, dark
) -> None:
    open_form(page, kernel, dark=dark)
    panel = show(page, "Run")
    panel.get_by_label("a Ray cluster").check()
    field = panel.get_by_label(CLUSTER)
    for address, said in WRONG.items():
        enter(field, address)
        until(page, lambda said=said: said in under(field))
        assert field.get_attribute("aria-invalid") == "true"
        assert field.input_value() == address
        assert page.get_by_role("button", name="Start the run").is_disabled()
        assert violations(page, ".workbench-form") == [], address
    page.get_by_role("button", name="1 problem").wait_for()
    page.get_by_text("Use a terminal or Python instead").click()
    assert "secret" not in page.inner_text("main")
    enter(field, ADDRESS)
    until(page, lambda: field.get_attribute("aria-invalid") is None)
    panel.get_by_text("workbench submit digits.yaml --address http://head:8265").wait_for()
    assert violations(page, ".workbench-form") == []


@pytest.mark.slow
def test_a_cluster_that_does_not_answer_is_told_under_its_address_until_that_changes(
    page, kernel
) -> None:
    said = f"nothing answers at {ADDRESS}"
    kernel.pictures["start"] = RunError(said, field="address")
    open_form(page, kernel)
    panel = show(page, "Run")
    panel.get_by_label("a Ray cluster").check()
    field = panel.get_by_label(CLUSTER)
    enter(field, ADDRESS)
    panel.get_by_text("about 2 min 30 s").wait_for()
    page.get_by_role("button", name="Start the run").click()
    until(page, lambda: "Nothing answers at" in under(field))
    assert panel.get_by_text("Nothing answers at").count() == 1, "once, where it can be mended"
    assert violations(page, ".workbench-form") == []
    enter(field, "http://other:8265")
    until(page, lambda: "Nothing answers at" not in under(field))


@pytest.mark.slow
def test_what_was_chosen_is_seen_at_once_also_while_the_kernel_is_busy(
    page, kernel: FormKernel
) -> None:
    open_form(page, kernel)
    panel = show(page, "Run")
    panel.get_by_label("a Ray cluster").check()
    enter(panel.get_by_label(CLUSTER), ADDRESS)
    until(page, lambda: kernel.draft.address == ADDRESS)
    kernel.is_busy = True
    panel.get_by_label("this machine").check()
    assert panel.get_by_label(CLUSTER).count() == 0
    kernel.wake(page)
    until(page, lambda: kernel.draft.address is None)
    assert panel.get_by_label("this machine").is_checked()


def test_the_address_has_room_where_there_is_little(live_browser, kernel) -> None:
    page = new_page(live_browser)
    page.set_viewport_size({"width": 380, "height": 800})
    open_form(page, kernel)
    panel = show(page, "Run")
    panel.get_by_label("a Ray cluster").check()
    enter(panel.get_by_label(CLUSTER), "http://me:secret@head:8265")
    page.get_by_role("button", name="1 problem").wait_for()
    assert page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0
    page.context.close()


@pytest.mark.slow
def test_the_panel_tells_a_wrong_cluster_under_its_field(page, jupyter) -> None:
    (jupyter.root / "mine.yaml").write_text(
        "model: mlp\ndata: digits\nobjectives: [{metric: val_loss, goal: minimize}]\n"
    )
    open_lab(page, jupyter)
    execute(page, "workbench:show-panel")
    page.locator("#workbench-panel").get_by_role("button", name=re.compile("^Start")).first.click()
    dialog = page.get_by_role("dialog")
    field = dialog.get_by_label("Cluster")
    for address, said in {
        **WRONG,
        "http://127.0.0.1:1": "nothing answers at http://127.0.0.1:1",
    }.items():
        field.fill(address)
        dialog.get_by_role("button", name="Start", exact=True).click()
        notice = dialog.get_by_role("alert").get_by_text(said)
        notice.wait_for()
        assert field.get_attribute("aria-invalid") == "true"
        assert "secret" not in "".join(dialog.get_by_role("alert").all_inner_texts())
        field_box, notice_box = field.bounding_box(), notice.bounding_box()
        assert notice_box["x"] >= field_box["x"] - 1, "below the field, not below its label"
        assert notice_box["width"] > 0.5 * field_box["width"]
        assert violations(page, "dialog[open]") == [], address
