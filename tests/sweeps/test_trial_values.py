"""The same value of a trial everywhere.

What is stored, what is best, and what the sampler learns from.
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from workbench.experiment import Experiment
from workbench.foundation.events import Event, TrialEnded, TrialReported, TrialStarted
from workbench.search import Study
from workbench.store.database import Store
from workbench.store.history import History
from workbench.sweeps.budget import reason_to_end
from workbench.sweeps.ledger import Ledger
from workbench.sweeps.trial_reports import Referee, ResourcesUsed
from workbench.sweeps.warm_start import prior_trials
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask


def noisy(config: dict[str, Any], report: Callable[..., bool]) -> float | None:
    """Report a curve with one lucky value, and return what a test after the training found."""
    for step, score in enumerate(config["curve"], start=1):
        report(step=step, score=score, cost=1 - score)
    return config["returned"]


def cross_validation(config: dict[str, Any], report: Callable[..., bool]) -> None:
    """Report the running mean over folds: only the last one is the result."""
    folds = config["curve"]
    for number in range(1, len(folds) + 1):
        report(step=number, score=sum(folds[:number]) / number, cost=0.0)


LUCKY, STEADY = [0.5, 0.9, 0.6], [0.7, 0.71, 0.72]


def carry_out(
    store: Store, function: Callable[..., Any], trials: list[dict[str, Any]], **fields: Any
) -> str:
    """Run trials as a driver does, without a cluster, and return the id of the run."""
    settings: dict[str, Any] = {
        "train": function,
        "objectives": [{"metric": "score", "goal": "maximize"}],
        "search": {
            "curve": {"choices": [trial["curve"] for trial in trials]},
            "returned": (
                {"choices": list(dict.fromkeys(trial.get("returned") for trial in trials))}
                if len({trial.get("returned") for trial in trials}) > 1
                else trials[0].get("returned")
            ),
        },
    }
    experiment = Experiment(**settings | fields)
    run_id = store.create_run(experiment)
    ledger = Ledger(store, run_id)
    referee = Referee(
        ledger, ResourcesUsed(ledger, energy_wh_of=lambda *_: None, num_places=lambda: 1)
    )
    objects = store.artifacts_of(run_id).below("objects").url
    with store.writer(run_id, owner_pid=os.getpid(), owner_host=socket.gethostname()) as writer:
        ledger.replay(writer)
        for number, params in enumerate(trials):
            ledger.study.enqueue({"returned": None} | params)
            proposal = ledger.study.ask()
            assert proposal is not None
            ledger.record(proposal.event())
            events: list[Event] = [TrialStarted(trial=number, attempt=0, worker_pids=[1])]
            task = TrialTask(
                run_id,
                number,
                0,
                experiment.model_dump_json(),
                objects=objects,
                params=proposal.params,
            )

            def take(event: Event, events: list[Event] = events) -> bool:
                events.append(event)
                return False

            ended = run_trial(task, take)
            assert referee.take_in(number, [*events, ended], stop=None) is not None
    return run_id


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)  # where the journals of trials are written
    with Store.open(str(tmp_path / "store.sqlite")) as store:
        yield store


def read(store: Store, run_id: str) -> tuple[History, Study]:
    events = [stored.event for stored in store.events(run_id)]
    experiment = store.experiment(run_id)
    return History.of(experiment, events), Study.rebuild(experiment, events)


def seen_by_optuna(study: Study, path: Path) -> list[list[float]]:
    study.export(str(path), "copy")
    copy = optuna.load_study(
        study_name="copy", storage=JournalStorage(JournalFileBackend(str(path)))
    )
    return [trial.values for trial in copy.trials]


@pytest.mark.parametrize(
    ("mode", "values", "best"),
    [
        (None, [0.55, 0.72], 1),
        ("returned", [0.55, 0.72], 1),
        ("last", [0.6, 0.72], 1),
        ("best", [0.9, 0.72], 0),
        ({"mean_last": 2}, [0.75, 0.715], 0),
        ({"mean_last": 3}, [2 / 3, 0.71], 1),
    ],
)
@pytest.mark.parametrize("num_objectives", [1, 2])
def test_history_and_sampler_see_the_value_that_the_mode_names(
    store: Store,
    tmp_path: Path,
    *,
    mode: Any,
    values: list[float],
    best: int,
    num_objectives: int,
) -> None:
    how = {} if mode is None else {"value": mode}
    named = [{"metric": "score", "goal": "maximize"}, {"metric": "cost", "goal": "minimize"}]
    objectives = [item | how for item in named]
    run_id = carry_out(
        store,
        noisy,
        [{"curve": LUCKY, "returned": 0.55}, {"curve": STEADY}],
        objectives=objectives[:num_objectives],
    )
    history, study = read(store, run_id)
    assert [trial.values["score"] for trial in history.trials.values()] == pytest.approx(values)
    chosen = history.best()
    assert chosen is not None
    assert chosen.number == best
    seen = seen_by_optuna(study, tmp_path / "copy")
    assert [call[0] for call in seen] == pytest.approx(values)
    assert len(seen[0]) == num_objectives


def test_cross_validation_with_a_running_mean_chooses_the_best_mean(store: Store) -> None:
    folds = [[0.99, 0.5, 0.5, 0.5], [0.7, 0.7, 0.7, 0.7]]
    run_id = carry_out(store, cross_validation, [{"curve": curve} for curve in folds])
    history, _ = read(store, run_id)
    best = history.best()
    assert best is not None
    assert (best.number, best.values["score"]) == (1, pytest.approx(0.7))


def test_a_lucky_report_reaches_no_target(store: Store) -> None:
    target = [{"metric": "score", "goal": "maximize", "target": 0.85}]
    trials = [{"curve": LUCKY, "returned": 0.55}, {"curve": STEADY}]
    history, _ = read(store, carry_out(store, noisy, trials, objectives=target))
    assert reason_to_end(history, 0.0) is None
    lucky = [target[0] | {"value": "best"}]
    history, _ = read(store, carry_out(store, noisy, trials, objectives=lucky))
    assert (reason_to_end(history, 0.0) or ("none",))[0] == "target"


def test_what_was_returned_is_marked_in_the_store(store: Store) -> None:
    run_id = carry_out(store, noisy, [{"curve": LUCKY, "returned": 0.55}, {"curve": STEADY}])
    reports = [
        stored.event for stored in store.events(run_id) if isinstance(stored.event, TrialReported)
    ]
    assert [report.returned for report in reports] == [
        False,
        False,
        False,
        True,
        False,
        False,
        False,
    ]


def test_a_warm_start_reads_values_as_the_new_run_does(store: Store) -> None:
    trials = [{"curve": LUCKY, "returned": 0.55}, {"curve": STEADY}]
    run_id = carry_out(store, noisy, trials)
    earlier = store.experiment(run_id)
    asked = earlier.replace(objectives=[{"metric": "score", "goal": "maximize", "value": "best"}])
    assert [prior.values["score"] for prior in prior_trials(store, run_id, asked)] == [0.9, 0.72]
    assert [prior.values["score"] for prior in prior_trials(store, run_id, earlier)] == [0.55, 0.72]


def test_a_final_nan_never_completes_a_trial_whatever_sent_it(store: Store) -> None:
    experiment = Experiment(
        model="mlp",
        data="digits",
        objectives=[{"metric": "val_accuracy", "goal": "maximize"}],
        constraints=[{"metric": "size_bytes", "at_most": 1e6}],
        search={"width": {"choices": [8, 16, 32]}},
    )
    run_id = store.create_run(experiment)
    ledger = Ledger(store, run_id)
    referee = Referee(
        ledger, ResourcesUsed(ledger, energy_wh_of=lambda *_: None, num_places=lambda: 1)
    )
    values = [
        {"val_accuracy": math.nan, "size_bytes": 10.0},
        {"val_accuracy": 0.5, "size_bytes": math.nan},
        {"val_accuracy": 0.5, "size_bytes": 10.0, "val_loss": math.nan},
    ]
    with store.writer(run_id, owner_pid=os.getpid(), owner_host=socket.gethostname()) as writer:
        ledger.replay(writer)
        ends = []
        for number, final in enumerate(values):
            proposal = ledger.study.ask()
            assert proposal is not None
            ledger.record(proposal.event())
            events: list[Event] = [
                TrialStarted(trial=number, attempt=0, worker_pids=[1]),
                TrialReported(
                    trial=number, attempt=0, step=1, epoch=1.0, values={"val_accuracy": 0.9}
                ),
                TrialEnded(trial=number, attempt=0, state="complete", values=final, step=2),
            ]
            ended = referee.take_in(number, events, stop=None)
            assert isinstance(ended, TrialEnded)
            ends.append((ended.state, ended.reason, ended.message))
    assert ends == [
        ("failed", "diverged", "val_accuracy is nan at the end"),
        ("failed", "diverged", "size_bytes is nan at the end"),
        ("complete", None, None),
    ]
