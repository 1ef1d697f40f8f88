from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from workbench.experiment import Experiment
from workbench.foundation.events import TrialReported
from workbench.training import trial
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask


def climb(config, report, folder: Path) -> None:
    """Save each step, and go on from there."""
    saved = folder / "step"
    for step in range(int(saved.read_text()) + 1 if saved.exists() else 1, config["steps"] + 1):
        stop = report(step=step, loss=1 / step)
        saved.write_text(str(step))
        if stop:
            return


def climb_without_a_folder(config, report) -> None:
    report(step=1, loss=1.0)


def task(folder: Path, function: Any = climb, **fields: Any) -> TrialTask:
    experiment = Experiment(
        train=f"{__name__}:{function.__name__}",
        objectives=[{"metric": "loss", "goal": "minimize"}],
        search={"steps": 6},
    )
    return TrialTask(
        run_id="run",
        trial=0,
        attempt=0,
        experiment_json=experiment.model_dump_json(),
        params={"steps": 6},
        folder=str(folder),
        **fields,
    )


class Died(BaseException):
    pass


def run_until(step: int, folder: Path) -> None:
    """Run an attempt whose reports up to a step are made, and which ends like a killed process
    then.
    """

    def die(event: Any) -> bool:
        if event.step > step:
            raise Died
        return False

    with pytest.raises(Died):
        run_trial(task(folder), die)


def resume(folder: Path) -> tuple[Any, list[tuple[int, bool]]]:
    told: list[TrialReported] = []
    ended = run_trial(task(folder, resume=True), lambda event: bool(told.append(event)))
    return ended, [(event.step, event.told_again) for event in told]


def test_the_next_attempt_tells_again_what_was_told_before_the_step_it_goes_on_from(
    tmp_path: Path,
) -> None:
    run_until(3, tmp_path)
    ended, told = resume(tmp_path)
    # The report of step 4 was made but its checkpoint was not: the step is done again.
    assert told == [(1, True), (2, True), (3, True), (4, False), (5, False), (6, False)]
    assert (ended.state, ended.step) == ("complete", 6)


def test_a_function_with_nothing_left_to_do_is_complete_with_what_it_told_before(
    tmp_path: Path,
) -> None:
    assert run_trial(task(tmp_path), lambda event: False).state == "complete"
    ended, told = resume(tmp_path)
    assert (ended.state, ended.step) == ("complete", 6)
    assert told == [(step, True) for step in range(1, 7)]


def test_a_torn_last_line_costs_no_other(tmp_path: Path) -> None:
    run_until(3, tmp_path)
    path = tmp_path / "reports.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    assert resume(tmp_path)[1][:4] == [(1, True), (2, True), (3, True), (4, False)]
    lines = path.read_bytes().splitlines()
    assert [json.loads(line)["step"] for line in lines[-3:]] == [4, 5, 6]
    assert resume(tmp_path)[1] == [(step, True) for step in range(1, 7)]


def test_a_trial_that_keeps_no_checkpoints_writes_nothing(tmp_path: Path) -> None:
    run_trial(task(tmp_path / "trial", climb_without_a_folder), lambda event: False)
    assert not (tmp_path / "trial").exists()


def test_a_long_journal_keeps_its_newest_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "MAX_JOURNAL_BYTES", 200)
    run_trial(task(tmp_path), lambda event: False)
    told = resume(tmp_path)[1]
    assert told[-1] == (6, True)
    assert 2 <= len(told) < 6
    assert sum(path.stat().st_size for path in tmp_path.glob("reports*")) < 2000
