"""What a user sees while a call waits for a run."""

from __future__ import annotations

import dataclasses
import io
import os
import socket
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import workbench as wb
from tests.builders.recorded_runs import record_run
from tests.store.database.test_store import make_experiment
from workbench.cluster.head import local_head
from workbench.foundation.events import RunStateChanged
from workbench.runs import Run, cell_outputs
from workbench.runs.notebook_output import RUN_MIME_TYPE
from workbench.runs.waiting import (
    NextDriver,
    describe_silence,
    is_shown_in_this_cell,
    is_whole_in_this_cell,
    waiting_for,
)
from workbench.store.database import RunRow, Store


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return wb.attach(record_run(tmp_path), store=str(tmp_path / "store.sqlite"))


class Cell:
    """The output of a cell, and the counter of executions of its notebook."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.outputs: list[list[dict[str, Any]]] = []
        self.shell = SimpleNamespace(execution_count=1)
        monkeypatch.setattr(cell_outputs, "kernel_shell", lambda: self.shell)
        monkeypatch.setattr(cell_outputs, "_shown_runs", set())
        monkeypatch.setattr("IPython.display.display", self.display)

    def display(self, forms: dict[str, Any], **_: Any) -> Any:
        output = [forms]
        self.outputs.append(output)
        return SimpleNamespace(update=lambda forms, **_: output.append(forms))


def test_a_cell_shows_the_run_it_waits_for_at_once_and_only_once(run: Run, monkeypatch) -> None:
    cell = Cell(monkeypatch)
    with waiting_for(run.stored):
        assert [forms[RUN_MIME_TYPE]["run_id"] for forms in cell.outputs[0]] == [run.run_id]
        assert run.wait() is run
        assert is_whole_in_this_cell(run.stored)

    assert len(cell.outputs) == 1
    assert RUN_MIME_TYPE in cell.outputs[0][-1], "the snapshot is renewed when the wait is over"
    assert RUN_MIME_TYPE not in run._repr_mimebundle_(), (
        "the value of the cell does not show it again"
    )
    assert run._repr_html_() is None
    cell.shell.execution_count += 1
    assert RUN_MIME_TYPE in run._repr_mimebundle_()
    run.wait(timeout_s=0.01)
    run.wait(timeout_s=0.01)
    assert len(cell.outputs) == 2
    told = "digits-small  complete  2 complete, 1 pruned, 2 failed  best val_accuracy 0.95"
    assert cell.outputs[1][-1]["text/plain"].startswith(told), "the cell above shows the run"
    assert f"<p>{told.replace('  ', ' · ')}" in cell.outputs[1][-1]["text/html"]
    assert RUN_MIME_TYPE not in cell.outputs[1][-1]
    assert is_shown_in_this_cell(run.stored)
    assert not is_whole_in_this_cell(run.stored)


def test_a_cell_states_at_once_that_a_driver_starts_until_it_has(run: Run, monkeypatch) -> None:
    cell = Cell(monkeypatch)

    def launch(*_: Any, **__: Any) -> None:
        assert [forms["text/plain"] for forms in cell.outputs[0]] == [
            f"starting the driver of {run.run_id} …"
        ]

    monkeypatch.setattr("workbench.sweeps.launchers.launch", launch)
    monkeypatch.setattr("workbench.runs.launch.create", lambda *_, **__: run)
    wb.sweep(run.experiment, store=run.store)
    assert [forms["text/plain"] for forms in cell.outputs[0]][1:] == [f"started {run.run_id}"]
    run._ipython_display_()
    assert len(cell.outputs) == 1
    assert RUN_MIME_TYPE in cell.outputs[0][-1], "the value of the cell takes the place of the line"


def test_a_warning_is_shown_in_a_cell_while_it_holds_and_is_not_kept(
    run: Run, monkeypatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = Cell(monkeypatch)
    with waiting_for(run.stored) as show_progress:
        show_progress("the driver <is> silent")
        shown = cell.outputs[0][-1]
        assert shown["text/html"].startswith("<p>the driver &lt;is&gt; silent</p>\n")
        assert shown["text/plain"].startswith("the driver <is> silent\n")
        assert RUN_MIME_TYPE in shown
        show_progress(None)
        assert "silent" not in cell.outputs[0][-1]["text/html"]
        show_progress("silent again")
    assert "silent" not in cell.outputs[0][-1]["text/plain"], "the end of the wait takes it away"
    assert len(cell.outputs) == 1, "an output of the warning would stay behind, empty"
    assert capsys.readouterr().err == ""


def test_a_terminal_shows_one_line_of_progress_that_goes_away(run: Run, monkeypatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", stream)

    with waiting_for(run.stored, lambda: "3 candidates tried"):
        run.wait()
    assert "3 candidates tried" in stream.getvalue()
    assert "complete" not in stream.getvalue(), "an inner wait leaves the line to the outer one"
    run.wait()
    told = "digits-small  complete  2 complete, 1 pruned, 2 failed  best val_accuracy 0.95"
    assert told in stream.getvalue()
    assert "\n" not in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[2K")


def test_a_file_gets_no_progress(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run.wait()
    assert capsys.readouterr() == ("", "")


def test_a_driver_that_gives_no_sign_is_noticed_once(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    row = replace(run.row, state="running")
    with waiting_for(run.stored) as show_progress:
        assert describe_silence(row) is None
        for silent_s in (40.0, 41.0, 42.0):
            show_progress(describe_silence(replace(row, silent_s=silent_s)))
        words = f"the driver of {run.run_id} has not reported for 40 s. Still waiting for it\n"
        assert capsys.readouterr().err == words
        show_progress(describe_silence(row))
        assert capsys.readouterr().err == "the driver answers again\n"
    assert describe_silence(replace(row, state="complete")) is None


@pytest.fixture
def rows(tmp_path: Path) -> tuple[RunRow, RunRow]:
    """A run as it was while its driver lived, and after that was killed and its lease has
    expired.
    """
    with (
        Store.open(str(tmp_path / "store.sqlite")) as store,
        subprocess.Popen(["sleep", "60"]) as driver,
    ):
        run_id = store.create_run(make_experiment())
        host = socket.gethostname()
        writer = store.writer(run_id, owner_pid=driver.pid, owner_host=host, lease_timeout_s=0.2)
        writer.append(RunStateChanged(state="running"))
        living = store.run(run_id)
        driver.kill()
        driver.wait()
        writer._closing.set()  # it beats no more, and gives nothing back
        writer._heart.join()
        return living, dataclasses.replace(store.run(run_id), state="lost")


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """A head of which the driver was a process, and which is intact as long as this is not
    empty.
    """
    intact = [True]
    monkeypatch.setattr(
        local_head, "record_of_head_of", lambda pid: None if pid == os.getpid() else {}
    )
    monkeypatch.setattr(local_head, "is_intact", lambda record: bool(intact))
    return intact


def test_another_driver_is_awaited_until_the_head_ends(
    rows: tuple[RunRow, RunRow], head: list[bool]
) -> None:
    living, killed = rows
    waiting = NextDriver()
    assert not waiting.is_awaited(living)
    assert waiting.is_awaited(killed)
    assert waiting.is_awaited(killed)
    head.clear()
    assert not waiting.is_awaited(killed)


def test_it_is_awaited_for_minutes_and_not_for_ever(
    rows: tuple[RunRow, RunRow], head: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    living, killed = rows
    waiting = NextDriver()
    monkeypatch.setattr("workbench.runs.waiting.PATIENCE_S", 0.0)
    assert [waiting.is_awaited(row) for row in (living, killed)] == [False, False]


def test_no_driver_comes_after_one_that_gave_its_run_back_or_was_no_process_of_the_head(
    rows: tuple[RunRow, RunRow], head: list[bool]
) -> None:
    living, killed = rows
    waiting = NextDriver()
    waiting.is_awaited(living)
    assert not waiting.is_awaited(dataclasses.replace(killed, was_left=True))
    assert killed.owner is not None
    inline = killed.owner._replace(pid=os.getpid())
    assert not waiting.is_awaited(dataclasses.replace(killed, owner=inline))
