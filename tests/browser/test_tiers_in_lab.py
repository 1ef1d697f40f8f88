"""Tiers in a browser: in the stand-alone page, and in a notebook of a real JupyterLab.

A file without its bundle, a slider over thresholds, and processes with their queues.
"""

from __future__ import annotations

import re

import pytest

from tests.builders.notebooks import write_notebook
from tests.deploy.trained import experiment, exported
from tests.services.jupyter_lab import TOKEN, run_all, violations
from tests.services.waiting import wait_until

pytestmark = [pytest.mark.browser, pytest.mark.slow]
FILE = """
tiers:
  end: {count: 500, arrivals: 0.1/s}
  cloud: {count: 2, batch: 4}
links: {end-cloud: {bandwidth: 8Mbit, rtt: 20ms}}
place: {from: bundle, scheduler: end-cloud, threshold: 0.9}
"""


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("my-model", "'my-model' is not the folder of a bundle: it does not exist"),
        ("last/best", "'last/best' is neither the folder of a bundle nor the trial of a run"),
    ],
)
def test_a_missing_bundle_is_not_told_as_a_missing_run(page, jupyter, source, words) -> None:
    name = f"without-{source.replace('/', '-')}"
    (jupyter.root / f"{name}.yaml").write_text(FILE.replace("from: bundle", f"from: {source}"))
    page.goto(f"{jupyter.url}workbench?token={TOKEN}")
    page.get_by_role("button", name=name).click()
    problem = page.locator(".workbench-tiers").get_by_text(words)
    problem.wait_for()
    shown = page.locator(".workbench-tiers").inner_text()
    assert "place.from" in shown
    assert "Train it with workbench sweep" in shown.replace("`", ""), "what to do"
    assert "no run" not in shown.lower()
    assert violations(page, ".workbench-tiers") == []


def test_a_threshold_is_chosen_and_run(page, jupyter) -> None:
    exported(jupyter.root / "bundle", "convnet", "digits", exits=1, width=4)
    (jupyter.root / "bundle" / "experiment.yaml").write_text(
        experiment("convnet", "digits").to_yaml()
    )
    (jupyter.root / "tiers.yaml").write_text(FILE)
    write_notebook(
        jupyter.root,
        "tiers.ipynb",
        'import workbench as wb\nview = wb.widgets.tiers("tiers.yaml")\nview',
    )
    run_all(page, jupyter, "tiers.ipynb")
    slider = page.get_by_role("slider", name="Exit threshold")
    slider.wait_for()
    page.get_by_text("This threshold is in use").wait_for()
    before = slider.input_value()
    slider.press("End")
    assert int(slider.input_value()) > int(before)
    page.get_by_text("threshold: 1", exact=True).wait_for()
    page.get_by_role("img", name=re.compile("^p95 by exit threshold, at 1: ")).wait_for()
    assert violations(page, ".workbench-tiers") == []

    # Where colours are forced, too, the keys of a curve have its colours.
    page.emulate_media(forced_colors="active")
    keys = page.locator(".workbench-tiers-key[data-series]")
    colour = "all => all.map((one) => getComputedStyle(one, '::before').backgroundColor)"
    wait_until(
        lambda: (
            page.wait_for_timeout(50) or len(set(keys.evaluate_all(colour))) == keys.count() == 2
        ),
        what="a colour of its own for each key",
    )
    page.emulate_media(forced_colors="none")

    for label, value in (("Requests per second", "30"), ("Seconds", "3")):
        page.get_by_label(label).fill(value)
        page.get_by_label(label).press("Enter")
    page.get_by_role("button", name="Run end-cloud").click()
    page.get_by_role("img", name=re.compile("Queue of end: ")).wait_for()
    page.get_by_text(re.compile("end-cloud at the threshold 1: .* 0 unanswered")).wait_for()
    page.get_by_role("rowheader", name="expected").wait_for()
    assert violations(page, ".workbench-tiers") == []
