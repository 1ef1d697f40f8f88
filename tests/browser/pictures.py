"""Makes the pictures of the documentation from a real run in a real JupyterLab.

`python -m tests.browser.pictures` writes them all to `docs/pictures`.
"""

from __future__ import annotations

import io
import re
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image, ImageChops

import workbench as wb
from tests.builders.notebooks import write_notebook
from tests.services.jupyter_lab import (
    KERNEL_IS_IDLE,
    ROOT,
    Jupyter,
    chromium,
    execute,
    new_page,
    open_lab,
)

FOLDER = ROOT / "docs" / "pictures"
MAX_ANIMATION_BYTES = 3_000_000
NUM_FIRST_FRAMES = 6
FRAME_PAUSE_MS = 300
FRAME_MS = 120
LAST_FRAME_MS = 3500
NUM_COLORS = 256
START = """import workbench as wb

run = wb.sweep({
    "name": "digits",
    "model": "convnet",
    "data": "digits",
    "objectives": [{"metric": "val_accuracy", "goal": "maximize"}],
    "search": {
        "lr": {"low": 1e-4, "high": 0.3, "log": True},
        "width": {"choices": [4, 8, 16]},
        "optimizer": {"choices": ["sgd", "adamw"]},
    },
    "training": {"epochs": 15},
    "budget": {"trials": 20},
    "early_stop": {"pruner": "asha", "grace": 3},
})
run"""
BEST = "{**run.best.params, **run.best.values}"
NOTEBOOK = ".jp-NotebookPanel"
CELL = ".jp-OutputArea .workbench-cell"
FORM = ".jp-OutputArea .workbench-form"
TAB = ".jp-MainAreaWidget .workbench-wide"


def main() -> None:
    """Run a sweep in JupyterLab and write every picture of it."""
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        jupyter = Jupyter(Path(folder) / "jupyter").start()
        try:
            run_id = draw_run(browser, jupyter)
            draw_report(browser, jupyter.root / "report.html")
            draw_form(browser, jupyter)
            for theme in ("light", "dark"):  # last, because the server keeps the theme
                draw_panel(browser, jupyter, run_id, theme)
        finally:
            jupyter.stop()


def draw_run(browser: Any, jupyter: Jupyter) -> str:
    """Draw the animation and the curves of a run that a notebook starts.

    Returns:
        The ID of the run.
    """
    write_notebook(jupyter.root, "digits.ipynb", START, BEST)
    page = sharp_page(browser, 900, 780)
    open_notebook(page, jupyter, "digits.ipynb")
    frames = [screenshot(page, NOTEBOOK)] * NUM_FIRST_FRAMES
    execute(page, "notebook:run-cell-and-select-next")
    cell = page.locator(CELL)
    cell.wait_for(timeout=120_000)
    has_curves = cell.get_by_role("img", name=re.compile("best so far"))
    with wb.Store.open(jupyter.store_url) as store:
        run = wb.attach("last", store=store)
        while run.is_under_way:
            page.wait_for_timeout(FRAME_PAUSE_MS)
            cell.scroll_into_view_if_needed()
            if has_curves.count() or len(frames) < 2 * NUM_FIRST_FRAMES:
                frames.append(screenshot(page, NOTEBOOK))
        page.wait_for_timeout(2000)
        save(screenshot(page, CELL), "curves")
        frames.append(screenshot(page, NOTEBOOK))
        execute(page, "notebook:run-cell-and-select-next")
        page.locator(".jp-OutputArea").get_by_text("'val_accuracy':").wait_for()
        page.wait_for_timeout(1000)
        frames.append(screenshot(page, NOTEBOOK))
        save_animation(frames)
        run.report(jupyter.root / "report.html")
        page.context.close()
        return run.run_id


def draw_panel(browser: Any, jupyter: Jupyter, run_id: str, theme: str) -> None:
    """Draw a run and one of its trials in a tab of JupyterLab."""
    page = sharp_page(browser, 1280, 1000)
    open_lab(page, jupyter)
    if theme == "dark":
        execute(page, "apputils:change-theme", theme="JupyterLab Dark")
        page.wait_for_selector("body[data-jp-theme-light=false]", state="attached")
        page.wait_for_timeout(2000)
    execute(page, "workbench:open", run=run_id)
    hide_sidebar(page)
    tab = page.locator(TAB)
    tab.get_by_role("img", name=re.compile("best so far")).wait_for(timeout=60_000)
    tab.locator(".workbench-trials tbody tr").first.click()
    tab.locator(".workbench-trial").wait_for()
    tab.locator(".workbench-head").scroll_into_view_if_needed()  # the click scrolled to the row
    page.wait_for_timeout(2000)
    save(screenshot(page), "panel" if theme == "light" else f"panel-{theme}")
    page.context.close()


def draw_form(browser: Any, jupyter: Jupyter) -> None:
    """Draw the form in a notebook, with the search space open."""
    write_notebook(jupyter.root, "form.ipynb", "import workbench as wb\n\nwb.app()")
    page = sharp_page(browser, 1280, 860)
    open_notebook(page, jupyter, "form.ipynb")
    execute(page, "notebook:run-all-cells")
    form = page.locator(FORM)
    form.get_by_role("tab", name="Model").wait_for(timeout=120_000)
    form.get_by_role("tab", name="Model").click()
    form.get_by_role("button", name=re.compile("^convnet")).click()
    form.get_by_role("row", name=re.compile("Conv2d")).first.wait_for(timeout=120_000)
    form.scroll_into_view_if_needed()
    page.mouse.move(0, 0)
    page.wait_for_timeout(1000)
    save(screenshot(page, NOTEBOOK), "form")
    page.context.close()


def draw_report(browser: Any, path: Path) -> None:
    """Draw the top of the report of the run."""
    page = sharp_page(browser, 1100, 900)
    page.goto(path.as_uri())
    page.wait_for_selector("svg")
    save(screenshot(page), "report")
    page.context.close()


def sharp_page(browser: Any, width: int, height: int) -> Any:
    """Open a page of a size, in CSS pixels, whose screenshots have two pixels for each."""
    page = new_page(browser, device_scale_factor=2)
    page.set_viewport_size({"width": width, "height": height})
    return page


def open_notebook(page: Any, jupyter: Jupyter, name: str) -> None:
    """Open a notebook, and wait until its kernel is idle."""
    open_lab(page, jupyter, name)
    page.wait_for_selector(f"{NOTEBOOK} .jp-Cell")
    page.wait_for_function(KERNEL_IS_IDLE)
    hide_sidebar(page)


def hide_sidebar(page: Any) -> None:
    """Give the whole width to the main area."""
    page.evaluate("() => window.jupyterapp.shell.collapseLeft()")
    page.wait_for_timeout(500)


def screenshot(page: Any, selector: str = "") -> Image.Image:
    """Return a picture of a page, or of one of its elements."""
    png = page.locator(selector).first.screenshot() if selector else page.screenshot()
    return Image.open(io.BytesIO(png)).convert("RGB")


def save(picture: Image.Image, name: str) -> None:
    """Write a picture with few colors, which halves its size."""
    few = picture.quantize(NUM_COLORS, dither=Image.Dither.NONE)
    few.save(FOLDER / f"{name}.png", optimize=True)
    print(f"{name}.png: {picture.width} x {picture.height}")


def save_animation(frames: list[Image.Image]) -> None:
    """Write the frames that differ as an animation, and reject one that is too large."""
    kept: list[Image.Image] = []
    times: list[int] = []
    for frame in frames:
        if kept and ImageChops.difference(kept[-1], frame).getbbox() is None:
            times[-1] = min(times[-1] + FRAME_MS, 1000)
        else:
            kept.append(frame)
            times.append(FRAME_MS)
    times[-2:] = [LAST_FRAME_MS // 2, LAST_FRAME_MS]
    path = FOLDER / "live.webp"
    kept[0].save(
        path, save_all=True, append_images=kept[1:], duration=times, loop=0, quality=70, method=4
    )
    size = path.stat().st_size
    if size > MAX_ANIMATION_BYTES:
        raise SystemExit(f"{path} has {size:,} bytes; the limit is {MAX_ANIMATION_BYTES:,}")
    print(f"live.webp: {len(kept)} frames, {size:,} bytes")


if __name__ == "__main__":
    main()
