"""What a form says of the experiment is true: ready, not applied, cut off.

And lists grow by clicks.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.browser import form_pictures
from tests.browser.form_page import FormKernel, enter, open_form, row, show, until
from tests.services.jupyter_lab import violations
from workbench.experiment import Experiment
from workbench.foundation.errors import DataError
from workbench.views.forms.draft import Draft

pytestmark = pytest.mark.browser


def identity(page: Any) -> Any:
    return page.locator(".workbench-form-identity")


def test_ready_is_what_can_be_built_and_nothing_else(page, kernel) -> None:
    kernel.pictures["model"] = DataError("the model cannot take rows", field="model")
    open_form(page, kernel)
    identity(page).get_by_text("building the model failed").wait_for()
    assert kernel.draft.problems == []
    show(page, "Run")
    page.get_by_text("every trial would fail").wait_for()
    identity(page).get_by_role("button").click()
    panel = page.get_by_role("tabpanel", name="Model")
    panel.get_by_text("The model cannot take rows").wait_for()

    kernel.pictures["model"] = form_pictures.MODEL
    enter(panel.get_by_label("Convolutions per block", exact=True), "2")
    identity(page).get_by_text("✓ ready").wait_for()
    kernel.pictures["model"] = {
        **form_pictures.MODEL,
        "problems": [{"problem": "too few", "field": "model"}],
    }
    enter(panel.get_by_label("Convolutions per block", exact=True), "3")
    identity(page).get_by_text("building the model failed").wait_for()


@pytest.mark.slow
def test_a_text_that_is_not_applied_is_never_called_ready(page, kernel) -> None:
    open_form(page, kernel)
    run = show(page, "Run")
    identity(page).get_by_text("✓ ready").wait_for()
    run.get_by_text("about 2 min 30 s").wait_for()
    start = page.get_by_role("button", name="Start the run")
    yaml = page.get_by_label("The experiment as YAML")
    before = yaml.input_value()
    kernel.is_busy = True
    yaml.fill(before.replace("trials: 24", "trials: 12"))
    identity(page).get_by_text("YAML not applied").wait_for()
    assert start.is_disabled()
    assert "ready" not in identity(page).inner_text()
    page.wait_for_timeout(900)
    kernel.wake(page)
    identity(page).get_by_text("✓ ready").wait_for()
    assert kernel.draft.document["budget"]["trials"] == 12

    yaml.fill(before.replace("trials: 24", "trials: many"))
    page.get_by_text("budget.trials").wait_for()
    identity(page).get_by_text("YAML not applied").wait_for()
    assert start.is_disabled()
    page.get_by_role("button", name="Discard changes").click()
    identity(page).get_by_text("✓ ready").wait_for()
    assert "trials: 12" in yaml.input_value()
    assert start.is_enabled()


def test_the_layers_are_always_those_of_what_is_written(page, kernel) -> None:
    open_form(page, kernel)
    panel = show(page, "Model")
    panel.get_by_role("row", name=re.compile("head")).wait_for()
    # While one thing is wrong, the model is changed; the picture has to follow when the other is
    # mended.
    kernel.draft.edit([("objectives.0.target", "many")])
    enter(panel.get_by_label("Convolutions per block", exact=True), "2")
    panel.get_by_text("its last valid state").wait_for()
    page.wait_for_timeout(500)
    num_asked = len(kernel.asked("model"))
    kernel.draft.edit([], removals=["objectives.0.target"])
    enter(page.get_by_label("Name of the experiment"), "mended")
    panel.get_by_text("its last valid state").wait_for(state="detached")
    until(page, lambda: len(kernel.asked("model")) == num_asked + 1)

    # What is changed and changed back within a moment may have been answered in between.
    page.evaluate("""() => {
            const buttons = [...document.querySelectorAll(".workbench-form-head button")];
            const card = (name) => [...document.querySelectorAll(".workbench-form-card")].find(
                (one) => one.innerText.startsWith(name));
            card("resnet").click();
            setTimeout(() => buttons.find((one) => one.innerText.includes("Undo")).click(), 100);
        }""")
    until(page, lambda: len(kernel.asked("model")) == num_asked + 2)
    assert kernel.draft.document["model"] == {"name": "convnet", "convolutions_per_block": 2}


def test_what_is_searched_of_the_model_is_looked_at_anew(page, kernel) -> None:
    open_form(page, kernel)
    until(page, lambda: len(kernel.asked("model")) == 1)
    show(page, "Search space")
    enter(row(page, "width").get_by_label("comma-separated values"), "64, 128")
    until(page, lambda: len(kernel.asked("model")) == 2)


def test_trees_are_told_in_words_without_a_table_of_layers(page, kernel) -> None:
    kernel.pictures["model"] = {
        **form_pictures.MODEL,
        "layers": [],
        "num_parameters": 0,
        "memory": None,
        "words": "100 boosted trees.",
    }
    open_form(page, kernel)
    panel = show(page, "Model")
    panel.get_by_text("100 boosted trees.").wait_for()
    assert panel.get_by_role("table").count() == 0
    assert "Parameters" not in panel.inner_text()
    identity(page).get_by_text("✓ ready").wait_for()


def test_a_model_takes_the_place_of_a_train_function_and_can_be_undone(page) -> None:
    train = Experiment(train="json:dumps", objectives=[{"metric": "val_loss", "goal": "minimize"}])
    kernel = FormKernel(Draft(train))
    open_form(page, kernel)
    panel = show(page, "Model")
    panel.get_by_text("trains with its own function").wait_for()
    panel.get_by_role("button", name=re.compile("^mlp")).click()
    show(page, "Data").get_by_role("button", name=re.compile("^digits")).click()
    until(page, lambda: kernel.draft.document.get("data") == "digits")
    assert "train" not in kernel.draft.document
    assert kernel.draft.problems == []
    for _ in range(2):
        page.get_by_role("button", name=re.compile("^Undo")).click()
    until(page, lambda: kernel.draft.document == train.model_dump(mode="json"))


@pytest.mark.slow
def test_objectives_and_constraints_are_added_and_removed_by_clicks(page, kernel) -> None:
    kernel.draft.edit([("early_stop", {})])
    open_form(page, kernel)
    panel = show(page, "Run")
    assert panel.get_by_role("button", name="Remove objective 1").count() == 0
    panel.get_by_role("button", name="Add an objective").click()
    second = panel.get_by_role("group", name="objective 2")
    second.wait_for()
    assert second.get_by_label("Metric", exact=True).evaluate(
        "(one) => one === document.activeElement"
    )
    enter(second.get_by_label("Metric", exact=True), "train_loss")
    second.get_by_label("Goal", exact=True).select_option("minimize")

    def written(name: str) -> Any:
        return kernel.draft.document.get(name)

    until(
        page,
        lambda: (written("objectives") or [{}])[-1] == {"metric": "train_loss", "goal": "minimize"},
    )

    panel.get_by_text("Constraints", exact=True).click()
    panel.get_by_role("button", name="Add a constraint").click()
    limit = panel.get_by_role("group", name="constraint 1")
    limit.get_by_text("exactly one bound").wait_for()
    assert violations(page, ".workbench-form") == []
    enter(limit.get_by_label("At most", exact=True), "2.5")
    until(page, lambda: written("constraints") == [{"metric": "val_loss", "at_most": 2.5}])
    assert kernel.draft.problems == []
    yaml = page.get_by_label("The experiment as YAML")
    until(page, lambda: "at_most: 2.5" in yaml.input_value())
    yaml.fill(yaml.input_value().replace("at_most: 2.5", "at_least: 0.5"))
    until(page, lambda: limit.get_by_label("At least", exact=True).input_value() == "0.5")

    panel.get_by_role("button", name="Remove objective 1").click()
    panel.get_by_role("group", name="objective 2").wait_for(state="detached")
    limit.get_by_role("button", name="Remove constraint 1").click()
    limit.wait_for(state="detached")
    assert written("objectives") == [{"metric": "train_loss", "goal": "minimize"}]
    assert written("constraints") is None


def test_what_an_advice_would_change_is_told_of_what_is_written_now(page, kernel) -> None:
    open_form(page, kernel)
    panel = show(page, "Advice")
    panel.get_by_role("button", name="Apply all").click()
    until(page, lambda: kernel.asked("advice") == [{"measure": False}] * 2)


def test_where_the_kernel_is_gone_the_form_says_so(page, kernel) -> None:
    open_form(page, kernel)
    identity(page).get_by_text("✓ ready").wait_for()
    page.evaluate("() => window.kernelGoes()")
    page.get_by_role("alert").get_by_text("No longer connected").wait_for()
    assert "ready" not in identity(page).inner_text()
    assert violations(page, ".workbench-form") == []


def test_with_the_colours_of_the_system_what_is_chosen_wrong_and_focused_is_still_seen(
    page, kernel
) -> None:
    page.emulate_media(forced_colors="active")
    open_form(page, kernel)

    def style(element: Any, *names: str) -> list[str]:
        return element.evaluate(
            "(one, names) => names.map((name) => getComputedStyle(one)[name])", list(names)
        )

    panel = show(page, "Model")
    border = ("borderBottomWidth", "borderBottomColor")
    tabs = [page.get_by_role("tab", name=name) for name in ("Model", "Data")]
    assert style(tabs[0], *border) != style(tabs[1], *border)
    cards = [
        panel.get_by_role("button", name=re.compile(f"^{name}")) for name in ("convnet", "mlp")
    ]
    assert style(cards[0], "backgroundColor") != style(cards[1], "backgroundColor")
    parts = panel.locator(".workbench-parts-bar > div")
    parts.first.wait_for()
    assert len({style(part, "backgroundColor")[0] for part in parts.all()}) == parts.count() > 1

    # Lines of a figure's grid are drawn: they keep behind what it shows, whatever colours the
    # system has.
    page.emulate_media(forced_colors="active", color_scheme="dark")
    lightness = page.locator(".workbench").first.evaluate("""(root) => {
          const line = root.appendChild(document.createElement("i"));
          line.style.cssText = "forced-color-adjust: none; color: var(--workbench-line)";
          const parts = getComputedStyle(line).color.match(/[\\d.]+/g).slice(0, 3).map(Number);
          line.remove();
          return Math.max(...parts);
        }""")
    assert lightness < 0.3 or 1 < lightness < 80
    page.emulate_media(forced_colors="active", color_scheme="light")

    show(page, "Run")
    trials = page.get_by_label("Trials", exact=True)
    right = style(trials, "borderTopStyle")
    enter(trials, "-3")
    page.get_by_role("button", name="1 problem").wait_for()
    assert style(trials, "borderTopStyle") != right
    page.keyboard.press("Shift+Tab")
    assert style(page.locator(":focus"), "outlineStyle", "outlineWidth") == ["solid", "2px"]


def test_a_started_run_comes_into_view_and_does_not_jump_there_again(page, kernel) -> None:
    kernel.pictures["start"] = {
        **kernel.pictures["start"],
        "snapshot": "",
    }  # a run of which nothing is known yet
    open_form(page, kernel)
    run = show(page, "Run")
    live = page.locator(".workbench-form-live")
    page.get_by_role("button", name="Start the run").evaluate("(button) => button.click()")
    live.wait_for()
    until(page, lambda: page.evaluate("() => scrollY") > 0)

    def is_in_view() -> bool:
        box = live.bounding_box()
        return 0 <= box["y"] < page.viewport_size["height"]

    until(page, is_in_view)  # the page may still be scrolling
    page.evaluate("() => scrollTo(0, 0)")
    enter(run.get_by_label("Trials", exact=True), "3")
    until(page, lambda: "trials: 3" in page.get_by_label("The experiment as YAML").input_value())
    show(page, "Model")
    show(page, "Run")
    assert page.evaluate("() => scrollY") == 0


def test_the_text_is_set_in_columns_as_yaml_and_python_need_it(page, kernel) -> None:
    open_form(page, kernel)
    font = page.get_by_label("The experiment as YAML").evaluate(
        "(text) => getComputedStyle(text).fontFamily"
    )
    assert "mono" in font.lower()


@pytest.mark.slow
def test_what_is_wrong_with_a_path_is_stated_while_it_is_typed(page, kernel, tmp_path) -> None:
    open_form(page, kernel)
    panel = show(page, "Data")
    enter(panel.get_by_label("Data", exact=True), "table")
    path = panel.get_by_label("Path", exact=True)
    panel.get_by_text("Missing. Add path.").wait_for()
    path.press_sequentially(str(tmp_path / "houses.csv"))
    panel.get_by_text("houses.csv does not exist").wait_for()
    assert panel.get_by_text("Missing. Add path.").count() == 0
    assert path.evaluate("(field) => field === document.activeElement")
    path.press_sequentially(".gz")
    panel.get_by_text("houses.csv.gz does not exist").wait_for()
    assert path.input_value().endswith("houses.csv.gz")
