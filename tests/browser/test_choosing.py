"""A trial of the front is chosen by clicking on its point."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.test_layout import open_page
from tests.builders.recorded_runs import EXPERIMENT, append, begin, finish, trial_events
from tests.services.waiting import wait_until
from workbench.experiment import Experiment
from workbench.store.database import Store

pytestmark = [pytest.mark.browser, pytest.mark.slow]

HINT_OF_TRIAL = """(plot, trial) => {
    // The dots are on a canvas, so the place of one is where the mouse shows its hint.
    const over = plot.querySelector(".u-over");
    const hint = over.querySelector(".workbench-plot-hint");
    const box = over.getBoundingClientRect();
    for (let y = 2; y < box.height; y += 4) for (let x = 2; x < box.width; x += 4) {
        const place = { clientX: box.left + x, clientY: box.top + y };
        over.dispatchEvent(new MouseEvent("mousemove", place));
        if (!hint.hidden && hint.textContent.startsWith(`Trial ${trial},`))
            return { x: place.clientX, y: place.clientY, text: hint.textContent };
    }
    return null;
}"""
RESULTS = [(0.98, 5.0), (0.97, 1.2), (0.9, 0.3), (0.85, 2.0)]


def store_run_with_a_front(url: str) -> str:
    """Store a run of two objectives, whose first three trials are on the front."""
    objectives = [
        {"metric": "val_accuracy", "goal": "maximize"},
        {"metric": "size_mb", "goal": "minimize"},
    ]
    with Store.open(url) as store:
        run_id = store.create_run(
            Experiment(**{**EXPERIMENT, "name": "front", "objectives": objectives})
        )
        events = [*begin()]
        for number, (accuracy, size_mb) in enumerate(RESULTS):
            *training, end = trial_events(number, at_s=number, accuracy=accuracy)
            values = {"val_accuracy": accuracy, "size_mb": size_mb}
            events += [*training, end.model_copy(update={"values": values})]
        append(store, run_id, [*events, *finish(9)])
    return run_id


def test_a_click_on_a_point_of_the_front_leads_to_a_choice_that_can_be_undone(
    page: Any, jupyter: Any
) -> None:
    run_id = store_run_with_a_front(jupyter.store_url)
    open_page(page, jupyter, run_id)
    page.get_by_role("tab", name="Analysis").click()
    figure = page.get_by_role("img", name="3 trials on the front of val_accuracy and size_mb")
    figure.locator(".u-over").wait_for(state="attached")
    figure.scroll_into_view_if_needed()
    place = figure.evaluate(HINT_OF_TRIAL, 1)
    assert "chosen by hand" not in place["text"]
    page.mouse.click(place["x"], place["y"])
    trial = page.get_by_role("complementary", name="Trial 1")
    trial.get_by_role("button", name="Choose", exact=True).click()

    words = "val_accuracy 0.97 (front's best 0.98), size_mb 1.2 (front's best 0.3)"
    page.get_by_text(f"Chosen by hand: trial 1, {words}").wait_for()
    wait_until(
        lambda: "Trial 1, on the front, chosen by hand" in figure.evaluate(HINT_OF_TRIAL, 1)["text"]
    )
    undo = trial.get_by_role("button", name="Undo the choice")
    undo.wait_for()
    page.get_by_role("tab", name="Curves").click()
    marks = page.get_by_role("img", name="chosen by hand")
    wait_until(lambda: page.wait_for_timeout(50) or marks.count() == 1)
    with Store.open(jupyter.store_url) as store:
        assert store.run(run_id).chosen_trial == 1

    undo.click()
    trial.get_by_role("button", name="Choose", exact=True).wait_for()
    wait_until(lambda: page.wait_for_timeout(50) or marks.count() == 0)
    assert page.get_by_text("Chosen by hand").count() == 0
    with Store.open(jupyter.store_url) as store:
        assert store.run(run_id).chosen_trial is None
