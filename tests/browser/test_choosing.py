"""A trial of the front is chosen by clicking on its point."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.test_layout import PLACE_ON_AXIS, open_page
from tests.builders.recorded_runs import EXPERIMENT, append, begin, finish, trial_events
from tests.services.waiting import wait_until
from workbench.experiment import Experiment
from workbench.store.database import Store

pytestmark = [pytest.mark.browser, pytest.mark.slow]

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
    page.get_by_label("Figure", exact=True).select_option("pareto")
    figure = page.get_by_role("figure", name="Pareto front")
    figure.locator(".scatterlayer path").first.wait_for(state="attached")
    page.mouse.click(*figure.evaluate(PLACE_ON_AXIS, list(RESULTS[1])))
    trial = page.get_by_role("complementary", name="Trial 1")
    trial.get_by_role("button", name="Choose", exact=True).click()

    words = "val_accuracy 0.97 (front's best 0.98), size_mb 1.2 (front's best 0.3)"
    page.get_by_text(f"Chosen by hand: trial 1, {words}").wait_for()
    figure.get_by_text("chosen by hand").wait_for()
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
