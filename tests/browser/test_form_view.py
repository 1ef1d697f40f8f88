"""The form in a real browser, with a real draft behind it and pictures as a kernel sends them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.browser import form_pictures
from tests.browser.form_page import RUN_ID, FormKernel, enter, open_form, row, show, until
from tests.services.jupyter_lab import new_page, violations
from workbench.experiment import Experiment
from workbench.foundation.errors import DataError

pytestmark = pytest.mark.browser

PARTS = ("Model", "Data", "Search space", "Advice", "Run", "Result")


def search_of(kernel: FormKernel) -> Any:
    return kernel.draft.document["search"]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.slow
def test_every_part_is_readable_for_all(page, kernel, dark) -> None:
    open_form(page, kernel, dark=dark, run_id=RUN_ID)
    for part in PARTS:
        panel = show(page, part)
        page.wait_for_timeout(400)
        page.evaluate(
            "() => document.querySelectorAll('details').forEach((one) => { one.open = true; })"
        )
        assert violations(page, ".workbench-form") == [], part
        assert panel.inner_text()


@pytest.mark.slow
def test_what_is_wrong_is_readable_for_all_and_leads_to_its_field(page, kernel) -> None:
    open_form(page, kernel)
    show(page, "Search space")
    enter(row(page, "lr").get_by_label("low", exact=True), "abc")
    page.get_by_label("1 problem").wait_for()
    assert violations(page, ".workbench-form") == []
    show(page, "Data")
    page.get_by_role("button", name="1 problem").click()
    page.get_by_role("tabpanel", name="Search space").wait_for()


# What is wider than its place lies over its neighbours.
PUSHED_OUT = (
    "() => Array.from(document.querySelectorAll('.workbench-form-row-body'))"
    ".filter((body) => body.scrollWidth > body.clientWidth).map((body) => body.textContent)"
)


@pytest.mark.parametrize("width", [380, 640, 900, 1300, 1600])
@pytest.mark.slow
def test_no_part_is_cut_off_where_there_is_little_room(live_browser, kernel, width) -> None:
    page = new_page(live_browser)
    page.set_viewport_size({"width": width, "height": 800})
    open_form(page, kernel, run_id=RUN_ID)
    for part in PARTS:
        show(page, part)
        page.wait_for_timeout(300)
        assert page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0, part
        assert page.evaluate(PUSHED_OUT) == [], part
    page.context.close()


WRONG = {
    "number": ("Run", "Target", "abc", "objectives.0.target"),
    "whole number": ("Run", "Trials", "-3", "budget.trials"),
    "duration": ("Run", "Time", "soon", "budget.time"),
    "text": ("Run", "Metric", "val_acuracy", "objectives.0.metric"),
    "size": ("Run", "Max checkpoints size", "large", "resources.max_checkpoints_size"),
    "setting of the model": (
        "Model",
        "Convolutions per block",
        "0",
        "model.convolutions_per_block",
    ),
    "setting of the data": ("Data", "Validation fraction", "2", "data.validation_fraction"),
    "model": ("Model", "Model", "no_such_model", "model"),
    "data": ("Data", "Data", "no_such_data", "data"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_input_has_its_message_under_the_field_and_stays(page, kernel, kind) -> None:
    part, label, text, path = WRONG[kind]
    open_form(page, kernel)
    panel = show(page, part)
    panel.evaluate(
        "(panel) => panel.querySelectorAll('details').forEach((one) => { one.open = true; })"
    )
    field = panel.get_by_label(label, exact=True)
    enter(field, text)

    message = panel.locator(f"[id='{(field.get_attribute('aria-describedby') or '').split()[0]}']")
    message.locator(".workbench-form-problem").wait_for()
    said = next(problem for problem in kernel.draft.problems if problem.field == path)
    assert said.problem[1:] in message.inner_text()
    assert field.input_value() == text
    assert field.get_attribute("aria-invalid") == "true"
    below, above = message.bounding_box(), field.bounding_box()
    assert below["y"] >= above["y"] + above["height"]
    assert below["y"] - above["y"] - above["height"] < 40


RANGE_WRONG = [
    ("lr", "low", "abc", "search.lr.low"),
    ("lr", "low", "0.9", "search.lr.low"),
    ("lr", "step", "0.1", "search.lr.step"),
    ("num_blocks", "high", "2.5", "search.num_blocks.high"),
    ("width", "comma-separated values", "8, 8", "search.width.choices"),
]


@pytest.mark.parametrize("wrong", RANGE_WRONG, ids="-".join)
def test_wrong_values_of_a_parameter_are_said_in_its_row(page, kernel, wrong) -> None:
    name, label, text, path = wrong
    open_form(page, kernel, ("space",))
    if label == "step":
        row(page, name).get_by_role("button", name=f"Options of {name}").click()
    field = row(page, name).get_by_label(label, exact=True)
    enter(field, text)
    row(page, name).locator(".workbench-form-problem").wait_for()
    assert [problem.field for problem in kernel.draft.problems] == [path]
    assert field.input_value() == text


@pytest.mark.slow
def test_what_is_typed_stays_until_a_busy_kernel_has_answered(page, kernel) -> None:
    open_form(page, kernel)
    panel = show(page, "Run")
    trials = panel.get_by_label("Trials", exact=True)
    kernel.is_busy = True
    enter(trials, "7")
    page.get_by_text("The kernel is busy").wait_for()
    assert trials.input_value() == "7"
    time = panel.get_by_label("Time", exact=True)
    enter(time, "1h")
    trials.fill("8")
    kernel.wake(page)
    until(page, lambda: kernel.draft.document["budget"]["trials"] == 7)
    # What is typed and not yet sent is nobody's answer.
    assert trials.input_value() == "8"
    trials.press("Enter")
    until(page, lambda: kernel.draft.document["budget"]["trials"] == 8)
    page.get_by_text("The kernel is busy").wait_for(state="detached")


def test_the_form_and_both_texts_are_in_step(page, kernel) -> None:
    open_form(page, kernel)
    yaml = page.get_by_label("The experiment as YAML")
    run = show(page, "Run")
    enter(run.get_by_label("Trials", exact=True), "11")
    page.wait_for_function("() => document.querySelector('textarea').value.includes('trials: 11')")

    yaml.fill(yaml.input_value().replace("trials: 11", "trials: 12"))
    until(page, lambda: run.get_by_label("Trials", exact=True).input_value() == "12")
    before = kernel.draft.hash
    wrong = yaml.input_value().replace("trials: 12", "trials: none at all")
    yaml.fill(wrong)
    texts = page.get_by_label("Experiment as text")
    texts.locator(".workbench-form-problem").get_by_text(re.compile("budget.trials")).wait_for()
    yaml.blur()
    assert yaml.input_value() == wrong
    assert run.get_by_label("Trials", exact=True).input_value() == "12"
    assert kernel.draft.hash == before

    enter(run.get_by_label("Trials", exact=True), "13")
    texts.locator(".workbench-form-problem").wait_for(state="detached")
    page.get_by_role("tab", name="Python").click()
    python = page.get_by_label("The experiment as Python")
    assert "trials" in python.input_value()
    python.fill(re.sub(r"\b13\b", "14", python.input_value()))
    until(page, lambda: run.get_by_label("Trials", exact=True).input_value() == "14")
    assert kernel.draft.problems == []


@pytest.mark.slow
def test_a_range_is_set_by_keys_and_by_pointer_one_change_each(page, kernel) -> None:
    open_form(page, kernel, ("space",))
    low = page.get_by_role("slider", name="Lowest lr")
    low.focus()
    for _ in range(3):
        low.press("ArrowRight")
    until(page, lambda: search_of(kernel)["lr"]["low"] == pytest.approx(1.3e-4))
    assert len(kernel.edits()) == 1
    assert low.get_attribute("aria-valuetext") == "1.3e-4"
    low.press("PageUp")
    until(page, lambda: search_of(kernel)["lr"]["low"] == pytest.approx(1.3e-3))
    low.press("End")
    until(page, lambda: search_of(kernel)["lr"]["low"] == search_of(kernel)["lr"]["high"])

    # The other end takes the pointer, also where both handles meet.
    high = page.get_by_role("slider", name="Highest dropout")
    box = high.bounding_box()
    share = high.evaluate("({ value, min, max }) => (value - min) / (max - min)")
    handle_px = 15
    x = box["x"] + handle_px / 2 + share * (box["width"] - handle_px)
    page.mouse.move(x, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(x - 60, box["y"] + box["height"] / 2, steps=5)
    num_edits = len(kernel.edits())
    page.mouse.up()
    until(page, lambda: search_of(kernel)["dropout"]["high"] < 0.39)
    assert len(kernel.edits()) == num_edits + 1
    assert search_of(kernel)["dropout"]["low"] == 0


@pytest.mark.slow
def test_a_search_space_is_built_changed_and_undone_by_clicks(page, kernel) -> None:
    open_form(page, kernel)
    first = kernel.draft.hash
    show(page, "Search space")
    row(page, "momentum").get_by_role("checkbox", name="adamw").click()
    until(page, lambda: search_of(kernel)["momentum"]["when"] == {"optimizer": ["sgd", "adamw"]})
    row(page, "dropout").get_by_role("button", name="Options of dropout").click()
    row(page, "dropout").get_by_label("When dropout exists").select_option("width")
    until(page, lambda: search_of(kernel)["dropout"]["when"] == {"width": 8})
    row(page, "dropout").get_by_role("button", name=re.compile("no longer depends")).click()
    until(page, lambda: "when" not in search_of(kernel)["dropout"])
    row(page, "width").get_by_label("Kind of width").select_option("int")
    until(page, lambda: search_of(kernel)["width"] == {"low": 8, "high": 32})
    enter(row(page, "width").get_by_label("Name of width"), "breadth")
    row(page, "breadth").get_by_role("button", name="Remove breadth").click()
    row(page, "breadth").wait_for(state="detached")
    row(page, "lr").get_by_label("Kind of lr").select_option("auto")
    row(page, "lr").wait_for(state="detached")
    enter(page.get_by_label("Add a parameter"), "weight_decay")
    row(page, "weight_decay").wait_for()
    assert search_of(kernel)["weight_decay"]["log"]

    while page.get_by_role("button", name=re.compile("Undo")).is_enabled():
        page.get_by_role("button", name=re.compile("Undo")).click()
        page.wait_for_timeout(50)
    assert kernel.draft.hash == first
    page.get_by_role("tab", name="Search space").focus()
    page.keyboard.press("Control+Shift+Z")
    until(page, lambda: kernel.draft.hash != first)
    page.keyboard.press("Control+Z")
    until(page, lambda: kernel.draft.hash == first)


@pytest.mark.slow
def test_problems_of_a_text_come_together_and_a_lost_condition_and_a_prior_are_in_sight(
    page: Any, kernel: FormKernel
) -> None:
    open_form(page, kernel)
    show(page, "Search space")
    text = page.get_by_role("textbox", name="The experiment as YAML")
    wrong = "model: mlp\ndata: digits\nobjectives: [{metric: val_loss}]\n"
    enter(text, f"{wrong}budget: {{trials: -1}}\ntraining: {{epochs: 0}}\n")
    under = page.get_by_role("group", name="Experiment as text").get_by_role("status")
    under.get_by_text("training.epochs").wait_for()
    under.get_by_text("budget.trials").wait_for()
    page.get_by_role("button", name="Discard changes").click()

    optimizer = row(page, "optimizer")
    enter(optimizer.get_by_label("comma-separated values"), "lion, adamw")
    momentum = row(page, "momentum")
    gone = momentum.get_by_role("checkbox", name=re.compile("sgd"))
    gone.wait_for()
    assert gone.is_checked()
    momentum.get_by_text("no longer a value of optimizer").wait_for()
    assert optimizer.get_by_text("50%").count() == 2

    rate = row(page, "lr")
    rate.get_by_role("button", name="Options of lr").click()
    enter(rate.get_by_label("probably good"), "3")
    rate.get_by_text("is not a value of lr").wait_for()
    enter(rate.get_by_label("probably good"), "0.003")
    rate.get_by_text("is not a value of lr").wait_for(state="detached")
    assert search_of(kernel)["lr"]["prior"] == {"near": 0.003}
    assert violations(page, ".workbench-form") == []


def test_all_can_be_reached_and_done_with_the_keyboard_alone(page, kernel) -> None:
    open_form(page, kernel)
    page.get_by_role("tab", name="Model").focus()
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.value") == "convnet"
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.innerText") == "Built in"
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.innerText").startswith("mlp")
    page.keyboard.press("Enter")
    until(page, lambda: kernel.draft.document["model"] == "mlp")
    page.keyboard.press("Control+Z")
    until(page, lambda: kernel.draft.document["model"] == "convnet")
    for _ in range(3):
        page.keyboard.press("Shift+Tab")
    page.keyboard.press("ArrowRight")
    page.get_by_role("tabpanel", name="Data").wait_for()
    page.keyboard.press("End")
    page.get_by_role("tabpanel", name="Result").wait_for()
    page.keyboard.press("ArrowLeft")
    panel = page.get_by_role("tabpanel", name="Run")
    panel.wait_for()
    for _ in range(60):
        page.keyboard.press("Shift+Tab")
        name = page.evaluate("() => document.activeElement.ariaLabel")
        if name == "Start the run":
            break
    else:
        pytest.fail("the button is out of reach")
    focus = page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle")
    assert focus == "solid"


def test_a_setting_goes_from_fixed_to_searched_and_back(page, kernel) -> None:
    open_form(page, kernel)
    panel = show(page, "Model")
    panel.get_by_role("button", name="Search Convolutions per block").click()
    until(page, lambda: "convolutions_per_block" in search_of(kernel))
    row(page, "convolutions_per_block").wait_for()
    assert kernel.draft.problems == []
    panel = show(page, "Model")
    panel.get_by_label("Convolutions per block").get_by_text("searched").wait_for()


def test_advice_is_applied_in_part_and_overruled(page, kernel) -> None:
    kernel.pictures["advice"] = form_pictures.NO_ADVICE
    open_form(page, kernel)
    panel = show(page, "Advice")
    until(page, lambda: kernel.asked("advice") == [{"measure": False}])
    kernel.pictures["advice"] = form_pictures.ADVICE
    panel.get_by_role("button", name="Measure and advise").click()
    panel.get_by_text("Advice for the least time to val_accuracy").wait_for()
    assert kernel.asked("advice")[-1] == {"measure": True, "time": "1m", "objective": "time"}
    panel.get_by_label("Apply Workers").uncheck()
    panel.get_by_label("Value of Global batch").fill("96")
    panel.get_by_label("Value of Global batch").blur()
    panel.get_by_role("button", name="Apply 2 of 3").click()
    until(page, lambda: kernel.draft.document["training"]["global_batch"] == 96)
    assert kernel.draft.document["training"]["lr"] == 0.012
    assert "lr" not in search_of(kernel)
    assert "plan" not in kernel.draft.document
    assert len(kernel.edits()) == 1

    # What if: each control asks anew, and a number stands there with its interval or why there is
    # none.
    panel.get_by_label("Workers", exact=True).select_option("8")
    until(page, lambda: [asked["workers"] for asked in kernel.asked("what_if")][-1:] == [8])
    panel.get_by_text("15,100 to 18,200").wait_for()
    panel.get_by_text("nothing above 4 workers was measured").wait_for()


def test_data_of_every_kind_are_shown(page, kernel) -> None:
    open_form(page, kernel, ("data",))
    page.locator("img").nth(11).wait_for()
    assert page.locator("img").first.evaluate("(image) => image.naturalWidth") == 8
    for name, picture, shown in (
        ("breast_cancer", form_pictures.ROWS, "rooms"),
        ("text", form_pictures.TEXT, "line.split"),
    ):
        kernel.pictures["data"] = picture
        page.get_by_role("button", name=re.compile(rf"^{name}\b")).click()
        page.get_by_text(shown).wait_for()
    kernel.pictures["data"] = DataError(
        "the file is gone", field="data.path", next_step="Name another one."
    )
    page.get_by_role("button", name=re.compile("^digits")).click()
    page.get_by_role("alert").get_by_text("Name another one.").wait_for()
    assert kernel.draft.document["data"] == "digits"


def test_a_run_is_started_by_one_button_and_its_result_asked_for(page, kernel) -> None:
    open_form(page, kernel)
    panel = show(page, "Run")
    panel.get_by_text("about 2 min 30 s").wait_for()
    panel.get_by_text("the population needs 32 trials").wait_for()
    show(page, "Model")
    page.get_by_role("button", name="Start the run").click()
    page.get_by_text("Nothing yet.").wait_for()
    assert kernel.asked("start") == [{}]
    panel = show(page, "Result")
    panel.get_by_text("0.9861").first.wait_for()
    panel.get_by_label("Export the best to the folder").fill("mine")
    panel.get_by_role("button", name="Export").click()
    panel.get_by_text("Wrote best.").wait_for()
    assert kernel.asked("export") == [{"run_id": RUN_ID, "to": "mine"}]
    panel.get_by_role("button", name="Try it with other data").click()
    page.get_by_role("tabpanel", name="Data").wait_for()


@pytest.mark.slow
def test_who_is_told_of_what_is_chosen_by_clicks(page, kernel) -> None:
    open_form(page, kernel)
    panel = show(page, "Run")
    panel.get_by_text("Alerts", exact=True).click()
    panel.get_by_role("button", name="Add an alert").click()
    rule = row(page, "alert 1")
    rule.get_by_label("states").wait_for()
    rule.get_by_label("On", exact=True).select_option(label="log")
    page.get_by_role("button", name="1 problem").wait_for()
    assert violations(page, ".workbench-form") == []
    enter(rule.get_by_label("Pattern", exact=True), "NCCL WARN")
    rule.get_by_label("Action", exact=True).select_option(label="retry")
    wanted = [{"on": "log", "pattern": "NCCL WARN", "action": "retry"}]
    until(page, lambda: kernel.draft.document.get("alerts") == wanted)
    assert kernel.draft.problems == []
    rule.get_by_role("button", name="Remove alert 1").click()
    until(page, lambda: "alerts" not in kernel.draft.document)


def test_two_forms_of_a_notebook_share_the_draft_and_no_names_of_fields(page, kernel) -> None:
    open_form(page, kernel, ("space",))
    page.evaluate("() => { window.showAgain(); }")
    until(page, lambda: page.get_by_role("slider", name="Lowest lr").count() == 2)
    ids = page.evaluate("() => [...document.querySelectorAll('[id]')].map((one) => one.id)")
    assert len(ids) == len(set(ids)) > 10
    enter(row(page, "lr").last.get_by_label("low", exact=True), "0.002")
    until(
        page, lambda: row(page, "lr").first.get_by_label("low", exact=True).input_value() == "0.002"
    )


def test_what_is_wrong_cannot_be_started(page, kernel) -> None:
    open_form(page, kernel)
    panel = show(page, "Run")
    enter(panel.get_by_label("Trials", exact=True), "0")
    page.get_by_role("button", name="1 problem").wait_for()
    assert page.get_by_role("button", name="Start the run").is_disabled()


def test_an_experiment_is_saved_opened_and_begun_with_a_preset(
    page, kernel, tmp_path: Path
) -> None:
    open_form(page, kernel)
    saved = tmp_path / "mine.yaml"
    hint = show(page, "Run").get_by_text("save your changes first")
    assert hint.count() == 1
    page.get_by_role("button", name="Save …").click()
    dialog = page.get_by_role("dialog")
    assert violations(page, "dialog[open]") == []
    dialog.get_by_label("Path").fill(str(saved))
    dialog.get_by_role("button", name="Save").click()
    dialog.wait_for(state="detached")
    assert Experiment.from_file(saved).hash() == kernel.draft.hash
    hint.wait_for(state="detached")

    page.get_by_role("button", name="Save …").click()
    dialog.get_by_role("button", name="Save").click()
    dialog.get_by_text("already exists").wait_for()
    dialog.get_by_label("replace a file").check()
    dialog.get_by_role("button", name="Save").click()
    dialog.wait_for(state="detached")

    page.get_by_label("Start from a preset").select_option("text")
    until(page, lambda: kernel.draft.document["name"] == "text")
    page.get_by_role("button", name="Open …").click()
    dialog.get_by_label("Path").fill(str(saved))
    dialog.get_by_role("button", name="Open").click()
    dialog.wait_for(state="detached")
    assert kernel.draft.document["name"] == "digits"
