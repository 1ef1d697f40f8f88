"""A trial that is chosen by hand: where it counts, and how the choice is taken back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import workbench as wb
from tests.builders.recorded_runs import record_run
from workbench.foundation.errors import ArgumentError, RunError
from workbench.foundation.events import to_json
from workbench.runs import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return wb.attach(record_run(tmp_path), store=str(tmp_path / "store.sqlite"))


def trial_of(folder: Path) -> int:
    return json.loads((folder / "configuration.json").read_text())["trial"]


def test_a_chosen_trial_is_taken_where_none_is_named_until_it_is_undone(
    run: Run, tmp_path: Path
) -> None:
    events = [to_json(event) for event in run.events()]
    assert run.choose(0) == "trial 0 is chosen: val_accuracy 0.91 (best 0.95)"
    assert run.best is not None
    assert run.best.number == 0
    assert trial_of(run.export(tmp_path / "chosen")) == 0
    assert trial_of(run.export(tmp_path / "named", trial=1)) == 1
    assert run.to_json()["chosen"] == {"trial": 0, "message": "val_accuracy 0.91 (best 0.95)"}
    assert "chosen by hand" in run._repr_html_()  # pyright: ignore[reportOperatorIssue]
    assert "Chosen by hand: trial 0" in Path(run.report(tmp_path / "report.html")).read_text()
    assert [to_json(event) for event in run.events()] == events, "nothing of what happened changes"

    assert run.choose(undo=True) == "no trial is chosen, so the best one is used"
    assert run.best.number == 1
    assert run.to_json()["chosen"] is None


def test_a_choice_needs_a_trial_or_undo_and_is_kept_when_refused(run: Run) -> None:
    run.choose(0)
    for arguments in ({}, {"trial": 1, "undo": True}):
        with pytest.raises(ArgumentError, match="either a trial or undo"):
            run.choose(**arguments)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ArgumentError, match="trial 2 is pruned, not complete"):
        run.choose(2)
    assert run.row.chosen_trial == 0


def test_a_fold_of_an_automl_run_cannot_be_chosen(tmp_path: Path) -> None:
    run_id = record_run(tmp_path, data={"name": "table", "held_out": 0.2})
    run = wb.attach(run_id, store=str(tmp_path / "store.sqlite"))
    with pytest.raises(RunError, match="you cannot choose a trial of"):
        run.choose(0)
