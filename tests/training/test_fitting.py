"""Trees as trials: the same reports, checkpoints and endings as networks have."""

from __future__ import annotations

import os
import signal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.services.process_group import start_beside
from workbench.data import load
from workbench.experiment import Experiment
from workbench.foundation.events import CheckpointSaved, Event, TrialPlanned, TrialReported
from workbench.models.zoo import BoostedTreesConfiguration
from workbench.training import fitting
from workbench.training.trained_model import load_model, outputs_of, stored_outputs
from workbench.training.trial import run_trial
from workbench.training.worker_task import BEST, LAST, TrialTask


def experiment(**changes: Any) -> Experiment:
    fields: dict[str, Any] = {
        "model": "one_of",
        "data": "breast_cancer",
        "objectives": [{"metric": "val_accuracy", "goal": "maximize"}],
        "search": {"family": {"choices": ["mlp", "boosted_trees", "forest"]}},
        "training": {"epochs": 12},
    }
    return Experiment(**fields | changes)


def order(asked: Experiment, folder: Path, **changes: Any) -> TrialTask:
    fields: dict[str, Any] = {
        "run_id": "r",
        "trial": 0,
        "attempt": 0,
        "seed": 7,
        "folder": str(folder),
    }
    return TrialTask(**fields | {"experiment_json": asked.model_dump_json()} | changes)


def run(asked: Experiment, folder: Path, *, stop_after: int | None = None, **changes: Any):
    events: list[Event] = []

    def hear(event: Event) -> bool:
        events.append(event)
        return (
            len([reported for reported in events if isinstance(reported, TrialReported)])
            == stop_after
        )

    return run_trial(order(asked, folder, **changes), hear), events


@pytest.mark.parametrize(
    ("family", "epochs"), [("boosted_trees", range(1, 13)), ("forest", (4, 8, 12))]
)
def test_trees_report_in_epochs_and_their_best_checkpoint_says_what_was_reported(
    tmp_path, family, epochs
):
    asked = experiment()
    params = {"family": family}
    ended, events = run(asked, tmp_path, params=params)

    assert (ended.state, ended.message) == ("complete", None)
    assert isinstance(events[0], TrialPlanned)
    reports = [event for event in events if isinstance(event, TrialReported)]
    assert len(reports) == min(10, len(epochs))
    assert {report.epoch for report in reports} <= set(epochs)
    assert (reports[0].epoch, reports[-1].epoch) == (epochs[0], 12.0)
    best = max(report.values["val_accuracy"] for report in reports)
    saved = [event for event in events if isinstance(event, CheckpointSaved)]
    assert saved[-1].best
    validation = load("breast_cancer", {}).validation
    inputs, targets = validation.batch(np.arange(len(validation)))
    model = load_model(asked, params, Path(saved[-1].path), input_shape=(30,), num_outputs=2)
    said = outputs_of(model, inputs, classes=True)
    assert (said.argmax(axis=1) == targets).mean() == pytest.approx(best)


@pytest.mark.parametrize("mode", ["best", "last", {"mean_last": 3}])
def test_trees_are_kept_at_the_round_that_their_value_belongs_to(tmp_path, mode):
    asked = experiment(objectives=[{"metric": "val_accuracy", "goal": "maximize", "value": mode}])
    ended, events = run(asked, tmp_path, params={"family": "forest"})
    scores = [event.values["val_accuracy"] for event in events if isinstance(event, TrialReported)]
    saved = [event.step for event in events if isinstance(event, CheckpointSaved)]
    if mode == "best":
        assert ended.values["val_accuracy"] == max(scores)
    else:
        count = 1 if mode == "last" else 3
        assert ended.values["val_accuracy"] == pytest.approx(sum(scores[-count:]) / count)
        assert saved == [12]


def test_the_best_checkpoint_holds_its_predictions_for_the_validation_samples(tmp_path):
    asked, params = experiment(), {"family": "forest", "forest_num_trees": 8}
    _, events = run(asked, tmp_path, params=params)
    path = Path([event for event in events if isinstance(event, CheckpointSaved)][-1].path)
    validation = load("breast_cancer", {}).validation
    inputs, _ = validation.batch(np.arange(len(validation)))
    model = load_model(asked, params, path, input_shape=(30,), num_outputs=2)
    np.testing.assert_allclose(
        stored_outputs(path, len(inputs), classes=True), outputs_of(model, inputs, classes=True)
    )
    assert stored_outputs(path, len(inputs) + 1, classes=True) is None


def test_trees_that_become_worse_are_not_grown_to_the_end(tmp_path, monkeypatch):
    monkeypatch.setattr(BoostedTreesConfiguration, "patience", 2)
    params = {
        "family": "boosted_trees",
        "boosted_trees_num_trees": 200,
        "boosted_trees_shrinkage": 1.0,
    }
    asked = experiment(objectives=[{"metric": "val_loss", "goal": "minimize"}])
    ended, events = run(asked, tmp_path, params=params)
    losses = [event.values["val_loss"] for event in events if isinstance(event, TrialReported)]
    assert ended.state == "complete"
    assert len(losses) < 10
    assert losses.index(min(losses)) == len(losses) - 3
    assert ended.values["val_loss"] == min(losses)


def test_a_linear_model_is_kept_even_if_time_is_over_when_it_starts(tmp_path):
    saved = []
    for model in ("linear", "forest"):
        asked = experiment(model=model, search={})
        fields = {"run_id": "r", "trial": 0, "attempt": 0, "seed": 7}
        folder, events = str(tmp_path / model), []
        task = TrialTask(**fields, folder=folder, experiment_json=asked.model_dump_json())
        ended = run_trial(task, lambda event, events=events: events.append(event) or True)
        assert ended.state == "stopped"
        saved.append(any(isinstance(event, CheckpointSaved) for event in events))
    assert saved == [True, False]


def test_trees_are_stopped_between_rounds(tmp_path):
    ended, events = run(experiment(), tmp_path, params={"family": "forest"}, stop_after=2)
    assert ended.state == "stopped"
    assert len([event for event in events if isinstance(event, TrialReported)]) == 2


def test_the_same_sweep_trains_networks_by_steps(tmp_path):
    ended, _ = run(experiment(training={"epochs": 2}), tmp_path, params={"family": "mlp"})
    assert ended.state == "complete"
    assert "train_loss" in ended.values
    assert ended.step > 2


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"plan": {"workers": 2}}, "can only have one worker"),
        (
            {"objectives": [{"metric": "train_loss", "goal": "minimize"}]},
            "'train_loss' is not measured for",
        ),
        ({"data": {"name": "text", "max_characters": 5000}}, "numbers of any shape"),
    ],
)
def test_what_trees_cannot_do_is_said(tmp_path, changes, part):
    asked = experiment(model="forest", search={}, **changes)
    workers = 2 if "plan" in changes else 1
    ended, _ = run(asked, tmp_path, num_workers=workers)
    assert ended.state == "failed"
    assert part in str(ended.message)


GROWN = [
    family
    for family in ("boosted_trees", "lightgbm", "tabular_mlp")
    if family != "lightgbm" or find_spec(family)
]


def asked_of(family: str) -> Experiment:
    return experiment(
        search={"family": {"choices": [family]}},
        objectives=[{"metric": "val_loss", "goal": "minimize"}],
    )


def fit_and_die(_connection: Any, family: str, folder: Path) -> None:
    """Fit, store every round, and be killed at the fourth report."""
    fitting._STORED_EVERY_S, fitting._PART_FOR_STORING = 0.0, 1e9
    seen: list[bool] = []

    def hear(event: Event) -> bool:
        seen.append(isinstance(event, TrialReported))
        if sum(seen) == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return False

    run_trial(order(asked_of(family), folder, params={"family": family}), hear)


@pytest.mark.slow
@pytest.mark.parametrize("family", GROWN)
def test_a_killed_fit_continues_after_the_last_round_that_was_stored(tmp_path, family):
    killed = tmp_path / "killed"
    process, _ = start_beside(fit_and_die, family, killed)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    asked = asked_of(family)
    assert [path.name for path in killed.rglob("*.pt")] == [LAST]

    params = {"family": family}
    ended, events = run(asked, killed, params=params, resume=True, attempt=1)
    whole, all_events = run(asked, tmp_path / "whole", params=params)
    assert ended.state == whole.state == "complete"
    assert ended.values == pytest.approx(whole.values, rel=1e-5)
    reports = [
        (event.told_again, event.step) for event in events if isinstance(event, TrialReported)
    ]
    # The round that was reported last was not stored before the kill, so it is made again.
    assert [again for again, _ in reports[:4]] == [True, True, True, False]
    assert [step for _, step in reports] == [
        event.step for event in all_events if isinstance(event, TrialReported)
    ]
    assert [path.name for path in killed.rglob("*.pt")] == [BEST]


def test_a_short_fit_stores_nothing_before_its_end(tmp_path):
    _, events = run(experiment(), tmp_path, params={"family": "forest"})
    assert [event.best for event in events if isinstance(event, CheckpointSaved)] == [True]
    assert not list(tmp_path.rglob(LAST))
