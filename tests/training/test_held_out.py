"""The weights that a trial keeps are measured once on samples that choose nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbench.data import load
from workbench.experiment import Experiment
from workbench.foundation.events import (
    CheckpointSaved,
    Event,
    Noted,
    TrialPlanned,
    TrialReported,
    TrialTested,
)
from workbench.training import evaluation
from workbench.training.trained_model import load_model, outputs_of
from workbench.training.trial import run_trial
from workbench.training.worker_task import TrialTask

OPTIONS = {"test_fraction": 0.25}


def experiment(**changes: Any) -> Experiment:
    fields: dict[str, Any] = {
        "model": "mlp",
        "data": {"name": "breast_cancer", **OPTIONS},
        "objectives": [{"metric": "val_accuracy", "goal": "maximize"}],
        "training": {"epochs": 4, "global_batch": 64, "lr": 0.01},
    }
    return Experiment(**fields | changes)


def run(asked: Experiment, folder: Path, *, stop_after: int | None = None, **changes: Any) -> Any:
    events: list[Event] = []

    def hear(event: Event) -> bool:
        events.append(event)
        return (
            len([reported for reported in events if isinstance(reported, TrialReported)])
            == stop_after
        )

    fields: dict[str, Any] = {
        "run_id": "r",
        "trial": 0,
        "attempt": 0,
        "seed": 7,
        "folder": str(folder),
    }
    return run_trial(
        TrialTask(**fields | {"experiment_json": asked.model_dump_json()} | changes), hear
    ), events


def outcomes_of_test(events: list[Event]) -> list[TrialTested]:
    return [event for event in events if isinstance(event, TrialTested)]


LAST = {"metric": "val_accuracy", "goal": "maximize", "value": "last"}


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="best"),
        # The first evaluation is the best, so that a checkpoint is read for the test.
        pytest.param(
            {"objectives": [{"metric": "val_loss", "goal": "maximize"}]}, id="the first is the best"
        ),
        pytest.param({"objectives": [LAST]}, id="last"),
        pytest.param(
            {
                "training": {"epochs": 4, "global_batch": 64, "lr": 0.01, "average_decay": 0.9},
                "objectives": [{"metric": "val_loss", "goal": "maximize"}],
            },
            id="averaged",
        ),
        pytest.param({"model": "boosted_trees"}, id="trees"),
    ],
)
def test_what_is_tested_once_are_the_weights_that_are_kept(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    asked = experiment(**changes)

    ended, events = run(asked, tmp_path)

    assert (ended.state, ended.message) == ("complete", None)
    datasets = load("breast_cancer", OPTIONS)
    assert datasets.test is not None
    (planned,) = (event for event in events if isinstance(event, TrialPlanned))
    assert (planned.num_validation, planned.num_test) == (
        len(datasets.validation),
        len(datasets.test),
    )
    assert planned.rates == ["val_accuracy"]
    (tested,) = outcomes_of_test(events)
    kept = [event for event in events if isinstance(event, CheckpointSaved) and event.best][-1]
    inputs, targets = datasets.test.batch(np.arange(len(datasets.test)))
    model = load_model(asked, {}, Path(kept.path), input_shape=(30,), num_outputs=2)
    answered = outputs_of(model, inputs, classes=True).argmax(axis=1)
    assert tested.values["test_accuracy"] == pytest.approx((answered == targets).mean())
    assert not any(
        name.startswith("test_")
        for event in events
        if isinstance(event, TrialReported)
        for name in event.values
    )


def test_without_test_samples_nothing_is_tested(tmp_path: Path) -> None:
    _, events = run(experiment(data="breast_cancer"), tmp_path)
    assert outcomes_of_test(events) == []
    (planned,) = (event for event in events if isinstance(event, TrialPlanned))
    assert planned.num_test == 0


def test_a_trial_that_is_stopped_is_not_tested(tmp_path: Path) -> None:
    ended, events = run(experiment(), tmp_path, stop_after=2)
    assert ended.state == "stopped"
    assert outcomes_of_test(events) == []


def test_a_test_that_fails_costs_no_finished_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("the file is gone")

    monkeypatch.setattr(evaluation, "measure_split", fail)
    ended, events = run(experiment(), tmp_path)
    assert ended.state == "complete"
    assert outcomes_of_test(events) == []
    (note,) = (event for event in events if isinstance(event, Noted))
    assert note.message == "the test samples could not be measured: the file is gone"


def test_samples_for_the_test_come_out_of_train_and_validation_stays() -> None:
    without, with_test = load("breast_cancer", {}), load("breast_cancer", OPTIONS)
    assert with_test.test is not None
    every = np.arange(len(without.validation))
    assert np.array_equal(without.validation.batch(every)[1], with_test.validation.batch(every)[1])
    assert len(without.train) == len(with_test.train) + len(with_test.test)
