"""The report in a real browser: every chart is drawn, nothing complains, nothing is fetched."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from tests.builders.advice import EXPERIMENT, events
from tests.builders.report_pages import report_html
from workbench.experiment import Experiment
from workbench.foundation.events import from_json
from workbench.runs.plots.figures_advice import ADVICE_FIGURES

DATA = Path(__file__).parent.parent / "data"
pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def report_path(tmp_path_factory) -> Path:
    events = [from_json(line) for line in (DATA / "recorded_run.jsonl").read_text().splitlines()]
    page = report_html(
        Experiment.from_file(DATA / "recorded_run.yaml"),
        events,
        importance={"lr": (0.8, 0.6, 0.9), "width": (0.2, 0.1, 0.4)},
    )
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


def test_every_chart_is_drawn_without_a_complaint_or_a_request(browser, report_path):
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    complaints: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(report_path.as_uri())
    drawn = page.evaluate(
        "() => Object.fromEntries([...document.querySelectorAll('.plot')].map((p) => ["
        "p.id, p.querySelectorAll('svg svg path, svg svg circle, svg svg rect').length]))"
    )
    assert len(drawn) == 7
    assert all(count > 0 for count in drawn.values()), drawn
    assert complaints == []
    assert requests == [report_path.as_uri()]
    overflow = page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
    assert overflow <= 0
    page.close()


@pytest.fixture
def narrow_dark_page(browser, report_path) -> Iterator[Any]:
    """The report on a telephone of someone who prefers dark pages."""
    page = browser.new_page(viewport={"width": 400, "height": 900}, color_scheme="dark")
    page.goto(report_path.as_uri())
    yield page
    page.close()


def luminance(colour: Any) -> float:
    """Return the relative luminance of a colour, as contrasts are computed from it."""
    parts = np.asarray(colour)[:3] / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrasts(element: Any) -> tuple[float, float]:
    """Return the luminance of the ground of an element, and the contrast of what stands out most on
    it.
    """
    pixels = np.asarray(Image.open(io.BytesIO(element.screenshot())).convert("RGB")).reshape(-1, 3)
    colours, counts = np.unique(pixels, axis=0, return_counts=True)
    ground = luminance(colours[counts.argmax()])
    light = [luminance(colour) for colour in colours]
    return ground, max((max(one, ground) + 0.05) / (min(one, ground) + 0.05) for one in light)


def test_a_narrow_screen_scrolls_wide_figures_and_not_the_page(narrow_dark_page):
    assert narrow_dark_page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0
    widths = narrow_dark_page.evaluate(
        "() => Object.fromEntries([...document.querySelectorAll('.plot')].map((p) => [p.id,"
        " p.clientWidth]))"
    )
    assert set(widths.values()) == {600}, "texts are three quarters of their size, and no smaller"


def test_a_dark_page_has_figures_that_can_be_read_and_prints_as_a_light_one(narrow_dark_page):
    page = narrow_dark_page
    for place, least_contrast in (
        ("h1", 7.0),
        (".notice", 7.0),
        (".plot text[text-anchor=end]", 4.5),
        (".plot text[text-anchor=middle]", 4.5),
        (".plot text[transform]", 4.5),
        (".plot", 4.5),
        ("tr.first", 4.5),
    ):
        ground, contrast = contrasts(page.locator(place).first)
        assert ground < 0.05, place
        assert contrast >= least_contrast, place
    page.emulate_media(media="print", color_scheme="dark")
    for place in ("h1", ".plot", "tr.first"):
        assert contrasts(page.locator(place).first)[0] > 0.8, place


@pytest.mark.slow
def test_the_charts_of_an_advice_are_drawn_and_no_words_lie_on_others(browser, tmp_path):
    path = tmp_path / "advice.html"
    path.write_text(report_html(EXPERIMENT, events()), encoding="utf-8")
    page = browser.new_page(viewport={"width": 1000, "height": 900})
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(path.as_uri())
    drawn = page.evaluate(
        "() => Object.fromEntries([...document.querySelectorAll('.plot')].map((p) => ["
        "p.id, p.querySelectorAll('svg svg path, svg svg circle').length]))"
    )
    assert [f"plot-{name}" for name in ADVICE_FIGURES if not drawn[f"plot-{name}"]] == []
    covered = page.evaluate(
        "() => [...document.querySelectorAll('.plot')].filter((p) => {"
        " const texts = [...p.querySelectorAll('text')]"
        "   .map((t) => t.getBoundingClientRect()).filter((r) => r.width);"
        " return texts.some((a, i) => texts.some((b, j) => i < j"
        "   && a.left < b.right - 1 && b.left < a.right - 1"
        "   && a.top < b.bottom - 1 && b.top < a.bottom - 1)); }).map((p) => p.id)"
    )
    assert covered == []
    assert complaints == []
    assert page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0
    page.close()


def test_a_mark_shows_its_values_and_a_figure_can_be_saved(browser, report_path, tmp_path):
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.goto(report_path.as_uri())
    page.locator("#plot-slice circle[data-h]").first.hover()
    tip = page.locator(".tip").inner_text().splitlines()
    assert re.fullmatch(r"trial \d+: 0\.\d+", tip[0])
    assert {line.partition(":")[0] for line in tip[1:]} >= {"lr", "width"}
    line = page.locator("#plot-convergence path[data-v]").last
    line.scroll_into_view_if_needed()
    values = (line.get_attribute("data-v") or "").split()
    end = line.evaluate(
        "(path) => { const p = path.getPointAtLength(1e9).matrixTransform(path.getScreenCTM());"
        " return [p.x, p.y]; }"
    )
    page.mouse.move(*end)
    assert page.locator(".tip").inner_text().splitlines()[1:] == [
        f"Epoch {values[-2]}",
        values[-1],
    ]
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as SVG: Convergence").first.click()
    download.value.save_as(tmp_path / "figure.svg")
    saved = ElementTree.parse(tmp_path / "figure.svg").getroot()
    assert saved.tag == "{http://www.w3.org/2000/svg}svg"
    assert "data-h" not in (tmp_path / "figure.svg").read_text(encoding="utf-8")
    page.close()


def test_the_page_prints_with_figures_that_fit_the_paper_and_stay_whole(browser, report_path):
    page = browser.new_page(viewport={"width": 696, "height": 1016})  # A4 without its margins
    page.goto(report_path.as_uri())
    page.emulate_media(media="print")
    sizes = page.evaluate(
        "() => [...document.querySelectorAll('figure')].map((figure) => {"
        " const svg = figure.querySelector('svg').getBoundingClientRect();"
        " return [svg.right, figure.clientHeight, getComputedStyle(figure).breakInside]; })"
    )
    assert len(sizes) == 7
    for right, height, break_inside in sizes:
        assert right <= 696
        assert height < 1016
        assert break_inside == "avoid"
    page.close()
