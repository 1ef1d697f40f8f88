"""What a user sees while a call waits for a run."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import workbench as wb
from tests.builders.recorded_runs import record_run
from workbench.runs import Run, waiting
from workbench.runs.notebook_output import RUN_MIME_TYPE
from workbench.runs.waiting import describe_silence, waiting_for


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return wb.attach(record_run(tmp_path), store=str(tmp_path / "store.sqlite"))


class Cell:
    """The output of a cell, and the counter of executions of its notebook."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.outputs: list[list[dict[str, Any]]] = []
        self.shell = SimpleNamespace(execution_count=1)
        monkeypatch.setattr(waiting, "_kernel_shell", lambda: self.shell)
        monkeypatch.setattr("IPython.display.display", self.display)

    def display(self, forms: dict[str, Any], **_: Any) -> Any:
        self.outputs.append([forms])
        return SimpleNamespace(update=lambda forms, **_: self.outputs[-1].append(forms))


def test_a_cell_shows_the_run_it_waits_for_at_once_and_only_once(run: Run, monkeypatch) -> None:
    cell = Cell(monkeypatch)
    with waiting_for(run.stored):
        assert [forms[RUN_MIME_TYPE]["run_id"] for forms in cell.outputs[0]] == [run.run_id]
        assert run.wait() is run

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


def test_a_cell_states_at_once_that_a_driver_starts_until_it_has(run: Run, monkeypatch) -> None:
    cell = Cell(monkeypatch)

    def launch(*_: Any, **__: Any) -> None:
        assert [forms["text/plain"] for forms in cell.outputs[0]] == [
            f"starting the driver of {run.run_id} …"
        ]

    monkeypatch.setattr("workbench.sweeps.launchers.launch", launch)
    monkeypatch.setattr("workbench.runs.launch.create", lambda *_, **__: run)
    wb.sweep(run.experiment, store=run.store)
    assert [forms["text/plain"] for forms in cell.outputs[0]][1:] == [""]
    assert RUN_MIME_TYPE in run._repr_mimebundle_(), "the value of the cell shows the run"
    assert len(cell.outputs) == 1


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
        words = f"no sign of the driver of {run.run_id} for 40 s; still waiting for it\n"
        assert capsys.readouterr().err == words
        show_progress(describe_silence(row))
        assert capsys.readouterr().err == "the driver answers again\n"
    assert describe_silence(replace(row, state="complete")) is None
