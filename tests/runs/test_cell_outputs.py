"""What a saved notebook holds of what its cells show, in a real kernel and without a page."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import workbench as wb
from tests.builders.recorded_runs import EXPERIMENT, append, begin, trial_events
from tests.services.waiting import wait_until
from workbench.foundation.events import RunStateChanged
from workbench.runs import Run, cell_outputs
from workbench.runs.cell_outputs import Look, Shown
from workbench.store.database import Store

MAX_BYTES = 200_000
SHOW = """
import workbench as wb
{value}
"""
AWAIT = """
import pathlib, time
from workbench.runs import cell_outputs
pathlib.Path("shown").touch()
while cell_outputs._renewer._outputs:
    time.sleep(0.1)
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        run_id = store.create_run(wb.Experiment(**EXPERIMENT))
        append(store, run_id, [*begin(), *trial_events(0, at_s=0)])
        yield Run(store, run_id)


def end(run: Run, begun: Path) -> None:
    wait_until(begun.exists)
    append(run.store, run.run_id, [*trial_events(1, at_s=9), RunStateChanged(state="complete")])


# The thread looks by itself only long after the notebook has been saved.
SHOW_AND_WAIT = """
import pathlib
import workbench as wb
from workbench.runs import cell_outputs
cell_outputs.LOOK_EVERY_S = 600.0
run = wb.attach('{run}')
run
"""
WAIT = """
pathlib.Path("shown").touch()
run.wait()
"""


def executed(cells: list[str], run: Run, folder: Path) -> Any:
    """Return a notebook that was run in a folder. The run ends when the cells write `shown`."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    ending = threading.Thread(target=end, args=(run, folder / "shown"))
    ending.start()
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=120, resources=resources, store_widget_state=False).execute()
    ending.join()
    return notebook


@pytest.mark.parametrize("value", ["wb.attach('{run}')", "wb.live('{run}')"])
def test_a_notebook_that_is_run_without_a_page_holds_the_end_of_a_run_that_it_only_showed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("WORKBENCH_STORE", run.store.url)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    show = SHOW.format(value=value.format(run=run.run_id))
    notebook = executed([show, AWAIT], run, tmp_path)

    (output,) = notebook.cells[0].outputs
    page = output.data["text/html"]
    assert "<td style='text-align:left'>complete</td>" in page
    assert "as of" not in page
    assert "2 complete" in page
    assert "<img" in page
    assert len(nbformat.writes(notebook)) < MAX_BYTES


@pytest.mark.slow
def test_a_run_that_was_awaited_has_ended_in_the_cell_that_shows_it_too(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKBENCH_STORE", run.store.url)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = executed([SHOW_AND_WAIT.format(run=run.run_id), WAIT], run, tmp_path)

    for cell in notebook.cells:
        (output,) = cell.outputs
        assert "2 complete" in output.data["text/html"]
        assert "as of" not in output.data["text/html"]


def test_a_picture_of_what_still_runs_says_when_it_was_drawn(run: Run) -> None:
    assert "running, as of " in run._repr_mimebundle_()["text/html"]
    append(run.store, run.run_id, [RunStateChanged(state="complete")])
    assert "as of" not in run._repr_mimebundle_()["text/html"]


class Handle:
    """What an output was updated with."""

    def __init__(self) -> None:
        self.updates: list[dict[str, Any]] = []

    def update(self, forms: dict[str, Any], *, raw: bool) -> None:
        assert raw
        self.updates.append(forms)


def test_an_output_is_drawn_when_its_mark_changes_and_updated_only_if_it_differs() -> None:
    handle = Handle()
    looks = [Look("a", False), Look("a", False), Look("b", False), Look("b", True)]
    drawn = [{"text/plain": "first"}, {"text/plain": "first"}, {"text/plain": "last"}]
    shown = Shown(lambda: drawn.pop(0), lambda: looks.pop(0), handle, {"text/plain": "first"})
    assert [shown.renew() for _ in range(4)] == [False, False, False, True]
    assert (looks, drawn) == ([], [])
    assert handle.updates == [{"text/plain": "last"}]


def test_an_error_while_drawing_is_shown_once_and_what_follows_is_drawn(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cell_outputs, "LOOK_EVERY_S", 0.001)
    broken, sound = Handle(), Handle()
    tries: list[int] = []

    def draw() -> dict[str, Any]:
        tries.append(len(tries))
        if len(tries) < 3:
            raise TypeError("what nobody expects")
        return {"text/plain": "last"}

    renewer = cell_outputs._Renewer()
    for handle, drawing in ((broken, draw), (sound, lambda: {"text/plain": "other"})):
        marks = iter(range(9))

        def look(marks: Iterator[int] = marks) -> Look:
            return Look(next(marks), True)

        renewer.add(Shown(drawing, look, handle, {"text/plain": "first"}))
    wait_until(lambda: renewer._thread is None)
    assert (broken.updates, sound.updates) == ([{"text/plain": "last"}], [{"text/plain": "other"}])
    assert capsys.readouterr().err.count("TypeError: what nobody expects") == 1


def test_a_drawing_that_fails_at_the_end_is_not_tried_at_every_look() -> None:
    tries: list[int] = []

    def draw() -> dict[str, Any]:
        tries.append(1)
        raise TypeError("what nobody expects")

    shown = Shown(draw, lambda: Look("complete", True), Handle(), {})
    for _ in range(3):
        assert not cell_outputs._renew(shown)
    assert len(tries) == 1


def test_outside_a_kernel_nothing_is_shown(run: Run) -> None:
    assert not cell_outputs.show_run(run.stored)
    with pytest.raises(NotImplementedError):
        run._ipython_display_()
