"""A plotly FigureWidget in a notebook in JupyterLab, with one line a trial, that the kernel
updates.

Counted is from before `batch_update` in the kernel to the frame after plotly has drawn. Not counted
is how the kernel comes by the values: there is no store between, and the cell ends at once, as a
task goes on.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.benchmarks.live_browser import TOKEN, jupyter, page_of
from tests.benchmarks.live_plotly import WATCH, drawn_after_s

NOTE = "the kernel's own values by batch_update, no store between"
ENOUGH = (10, 8.0)

_LIVE = """
import asyncio, time
from pathlib import Path
import plotly.graph_objects as go
from tests.benchmarks.live_measure import note
from tests.benchmarks.live_store import REPORT_EVERY_S, value_of

figure = go.FigureWidget([go.Scatter(mode="lines") for _ in range({num_trials})])
figure.update_layout(xaxis_title_text="Step", showlegend=False)

async def report():
    steps, values, written = [], [[] for _ in figure.data], []
    until_s = time.time() + {for_s}
    while time.time() < until_s:
        start_s = time.time()
        steps.append(len(steps))
        written.append((steps[-1], start_s))
        with figure.batch_update():
            for trial, line in enumerate(figure.data):
                values[trial].append(value_of(trial, steps[-1]))
                line.x, line.y = steps, values[trial]
        note(Path(), written)
        await asyncio.sleep(max(0.0, REPORT_EVERY_S - (time.time() - start_s)))

task = asyncio.get_running_loop().create_task(report())
figure
"""
_FINISHED = """
import plotly.graph_objects as go
from tests.benchmarks.live_store import value_of

steps = list(range({num_steps}))
curves = ([value_of(number, step) for step in steps] for number in range({num_trials}))
figure = go.FigureWidget([go.Scatter(mode="lines", x=steps, y=curve) for curve in curves])
figure.update_layout(xaxis_title_text="Step", showlegend=False)
figure
"""


@contextlib.contextmanager
def reporting(
    folder: Path, browser: Any, num_trials: int, for_s: float
) -> Iterator[tuple[Any, Callable[[], list[tuple[int, float]]]]]:
    """Open a notebook with a figure that is updated twice a second."""
    with _notebook(folder, browser, _LIVE.format(num_trials=num_trials, for_s=for_s)) as page:
        _run(page)
        yield page, lambda: json.loads((folder / "written.json").read_text())


def open_finished(
    folder: Path, browser: Any, num_trials: int, num_steps: int, most_s: float
) -> float:
    """Return the seconds from running the cell to the picture of a finished run.

    Its values are in it.
    """
    with _notebook(
        folder, browser, _FINISHED.format(num_trials=num_trials, num_steps=num_steps)
    ) as page:
        start_s = _run(page)
        return drawn_after_s(page, start_s, most_s)


@contextlib.contextmanager
def _notebook(folder: Path, browser: Any, source: str) -> Iterator[Any]:
    import nbformat

    cells = [nbformat.v4.new_code_cell("pass"), nbformat.v4.new_code_cell(source)]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), folder / "live.ipynb")
    config = folder / "config" / "labconfig"
    config.mkdir(parents=True)
    silent = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
    (config / "page_config.json").write_text(json.dumps(silent))
    with jupyter(folder, application="lab") as server, page_of(browser, WATCH) as page:
        page.goto(f"{server.url}lab/tree/live.ipynb?token={TOKEN}")
        page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=60_000)
        _choose_kernel(page)
        yield page


def _choose_kernel(page: Any) -> None:
    page.wait_for_timeout(3000)
    question = page.locator(".jp-Dialog button.jp-mod-accept")
    if question.count():  # JupyterLab asks before it starts the kernel that the notebook names
        question.click()
    page.wait_for_function(
        "() => { const session = jupyterapp.shell.currentWidget?.sessionContext?.session;"
        " return session?.kernel?.status === 'idle'; }",
        timeout=60_000,
    )


def _run(page: Any) -> float:
    start_s = time.time()
    page.evaluate('() => { window.jupyterapp.commands.execute("notebook:run-all-cells"); }')
    return start_s
