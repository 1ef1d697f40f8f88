"""What a followed run prints while nothing ends; whole runs are followed in `test_following`."""

from __future__ import annotations

import time

import pytest

from tests.builders.recorded_runs import EXPERIMENT, START_UNIX_S, begin, trial_events
from workbench.cli.live_table import LinesView
from workbench.experiment import Experiment
from workbench.foundation.events import TrialReported
from workbench.store.history import History


class Clock:
    """A clock that a test moves; runs began when it was made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.s = 0.0
        monkeypatch.setattr(time, "monotonic", lambda: self.s)
        monkeypatch.setattr(time, "time", lambda: START_UNIX_S + self.s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def follow(num_trials: int) -> tuple[History, LinesView]:
    """Return a run whose trials have reported two epochs each, and its view after these."""
    history = History(Experiment(**EXPERIMENT))
    view = LinesView(history, stderr=False)
    for event in [
        *begin(),
        *(e for n in range(num_trials) for e in trial_events(n, at_s=n, state="running")),
    ]:
        history.apply(event)
        view.show(event)
    return history, view


def test_a_long_trial_shows_how_far_it_is_every_half_minute(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    history, view = follow(1)
    assert "trial 0 running lr=0.01 width=16" in capsys.readouterr().out
    shown = []
    for second in range(1, 100):
        clock.s = second
        if second == 50:
            report = TrialReported(
                trial=0,
                step=60,
                epoch=3,
                values={"val_accuracy": 0.97},
                time_unix_s=START_UNIX_S + second,
            )
            history.apply(report)
            view.show(report)
        view.refresh("running")
        shown += capsys.readouterr().out.splitlines()
    assert [line.strip().split("; ")[0] for line in shown] == [
        "30 s running: trial 0 (lr=0.01 width=16) epoch 2/10 val_accuracy=0.9",
        "1 min running: trial 0 epoch 3/10 val_accuracy=0.97",
        "1 min 30 s running: trial 0 epoch 3/10 val_accuracy=0.97",
    ]


def test_a_run_that_does_not_train_says_what_it_waits_for_every_half_minute(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    history = History(Experiment(**EXPERIMENT))
    view = LinesView(history, stderr=False)
    clock.s = 29.0
    view.refresh("waiting")
    clock.s = 31.0
    view.refresh("waiting")
    for event in [*begin(), *trial_events(0, at_s=31, state="running")[:1]]:
        history.apply(event)
    clock.s = 60.0
    view.refresh("running")
    clock.s = 62.0
    view.refresh("running")
    clock.s = 100.0
    view.refresh("complete")
    assert [line[12:] for line in capsys.readouterr().out.splitlines()] == [
        "still waiting for the driver to start",
        "still waiting for the workers of trial 0",
    ]


def test_many_running_trials_stay_one_line(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    _, view = follow(5)
    capsys.readouterr()
    clock.s = 31.0
    view.refresh("running")
    [line] = capsys.readouterr().out.splitlines()
    assert "; trial 2 (lr=0.01 width=16) epoch 2/10 val_accuracy=0.9; and 2 more" in line
    assert "trial 3" not in line


def test_a_run_of_days_does_not_fill_a_log(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    _, view = follow(1)
    capsys.readouterr()
    for minute in range(2 * 24 * 60):
        clock.s = 60.0 * minute
        view.refresh("running")
    assert len(capsys.readouterr().out.splitlines()) < 400
